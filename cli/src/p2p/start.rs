//! Which side this process is, and how it meets the other one.

use vervain_collectives::launch::{Launcher, Signals, expected_ranks};
use vervain_transport::host::affinity;

use super::limits::{self, Limits};
use super::meet::{self, Answer, Channel, Person, Proposal};
use super::pair::{self, Pair, Side};
use super::settings::{Settings, Trust, Way};
use crate::exit::{Failure, Status, conclude};
use crate::machine;
use crate::perf::human;
use crate::perf::start::lookup;

/// Be what we are, to the end.
pub fn run(settings: &Settings) -> Result<Status, Failure> {
    let patience = settings.patience();
    if settings.way != Way::Local {
        end_by_signals()?;
    }
    match &settings.way {
        Way::Local => local(settings),
        Way::Listen(address, trust) => {
            let secret = meet::secret(*trust)?;
            target(settings, Channel::from(*address, &secret, patience)?, &secret)
        }
        Way::Connect(address, trust) => {
            let secret = meet::secret(*trust)?;
            check_memory(settings.job.bytes_of_both() / 2, settings.job.largest())?;
            initiator(settings, Channel::to(address, &secret, patience)?, &secret, None)
        }
    }
}

/// Let Ctrl-C fail this process, as it fails two that our launcher started. The peer sees us leave.
fn end_by_signals() -> Result<(), Failure> {
    let cannot = |error| Failure::failed(format!("signals cannot be held: {error}"));
    let signals = Signals::hold().map_err(cannot)?;
    let watch = move || {
        let interrupted = Failure::failed(format!("interrupted by signal {}", signals.wait()));
        std::process::exit(conclude(Err(interrupted)) as i32)
    };
    std::thread::Builder::new().spawn(watch).map(drop).map_err(cannot)
}

fn local(settings: &Settings) -> Result<Status, Failure> {
    match expected_ranks(&lookup) {
        Some((Launcher::Vervain, 2)) => as_rank(settings),
        Some((launcher, ranks)) if ranks > 1 => Err(Failure::usage(format!(
            "{launcher} has started {ranks} processes, but p2p starts its own two; start one, or use --listen and --connect"
        ))),
        _ => {
            check_memory(settings.job.bytes_of_both(), settings.job.largest())?;
            crate::perf::start::processes(2)
        }
    }
}

/// One of the two that our launcher started.
fn as_rank(settings: &Settings) -> Result<Status, Failure> {
    let patience = settings.patience();
    let secret = meet::secret(Trust::Secret)?;
    let bootstrap = lookup("VERVAIN_BOOTSTRAP").unwrap_or_default();
    let name = meet::local_name(&bootstrap);
    if lookup("VERVAIN_RANK").as_deref() != Some("0") {
        return target(settings, Channel::from_local(&name, &secret, patience)?, &secret);
    }
    // before the target has anything to do
    let limits = if settings.limits { Some(limits::measure(&settings.job)?) } else { None };
    initiator(settings, Channel::to_local(&name, &secret, patience)?, &secret, limits.as_ref())
}

fn initiator(
    settings: &Settings,
    mut channel: Channel,
    secret: &vervain_transport::auth::Secret,
    limits: Option<&Limits>,
) -> Result<Status, Failure> {
    let us = introduce(settings, Side::Initiator);
    let end = pair::endpoint(settings, secret, channel.our_address())?;
    channel.write(&Proposal {
        version: env!("CARGO_PKG_VERSION").into(),
        job: settings.job.clone(),
        person: us.clone(),
        address: end.address()?,
    })?;
    let (them, address) = match channel.read()? {
        Answer::Yes { person, address } => (person, address),
        Answer::No(why) => return Err(Failure::usage(format!("the target refuses: {why}"))),
    };
    let mut pair = Pair::open(end, settings, Side::Initiator, &them, &address)?;
    super::measure(&mut pair, settings, [&us, &them], limits)
}

fn target(
    settings: &Settings,
    mut channel: Channel,
    secret: &vervain_transport::auth::Secret,
) -> Result<Status, Failure> {
    let proposal: Proposal = channel.read()?;
    if let Err(why) = judge(settings, &proposal) {
        channel.write(&Answer::No(why.clone()))?;
        return Err(Failure::usage(format!("the initiator was refused: {why}")));
    }
    let us = introduce(settings, Side::Target);
    // the initiator's options count for both
    let settings = Settings { job: proposal.job, ..settings.clone() };
    let end = pair::endpoint(&settings, secret, channel.our_address())?;
    channel.write(&Answer::Yes { person: us.clone(), address: end.address()? })?;
    let mut pair = Pair::open(end, &settings, Side::Target, &proposal.person, &proposal.address)?;
    super::measure(&mut pair, &settings, [&proposal.person, &us], None)
}

/// Whether we take part in this, or the sentence that says why not.
fn judge(settings: &Settings, proposal: &Proposal) -> Result<(), String> {
    let ours = env!("CARGO_PKG_VERSION");
    if proposal.version != ours {
        return Err(format!("it is version {}, and this is {ours}; install the same on both sides", proposal.version));
    }
    let (test, listens) = (proposal.job.test.name(), settings.job.test.name());
    if test != listens {
        return Err(format!("it measures {test}, and this side listens for {listens}"));
    }
    proposal.job.check()?;
    if settings.way == Way::Local {
        return Ok(());
    }
    fits(proposal.job.bytes_of_both() / 2, proposal.job.largest())
}

fn check_memory(bytes: u64, largest: u64) -> Result<(), Failure> {
    fits(bytes, largest).map_err(Failure::usage)
}

fn fits(bytes: u64, largest: u64) -> Result<(), String> {
    match machine::available_memory() {
        Some(free) if bytes > free => Err(format!(
            "transfers of {} need {} of memory here, and {} are free; lower -e/--maxbytes",
            human(largest),
            human(bytes),
            human(free)
        )),
        _ => Ok(()),
    }
}

/// Settle on a core, and say who we are. The initiator takes the first core, the target the second.
fn introduce(settings: &Settings, side: Side) -> Person {
    let cores = affinity::allowed_cores().unwrap_or_default();
    let core = cores.get(if side == Side::Initiator { 0 } else { 1 }).copied();
    let core = core.filter(|&core| settings.pins && affinity::pin_to(core).is_ok());
    Person { host: machine::host_name(), pid: std::process::id(), core, processor: machine::processor() }
}
