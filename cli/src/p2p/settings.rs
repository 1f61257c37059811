//! The options once they make sense. Everything after this file works on valid values.

use core::time::Duration;
use std::net::SocketAddr;
use std::path::PathBuf;

use vervain_transport::endpoint::MESSAGE;
use vervain_transport::fabric::Backend;

use super::job::{Job, LARGEST, Table};
use super::options::{Options, Test};
use crate::perf::Fabric;
use crate::perf::sizes::{self, Step};

/// A run that makes sense.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What both sides do.
    pub job: Job,
    /// Where the other side is.
    pub way: Way,
    /// The only fabric, if one was asked for.
    pub fabric: Option<Backend>,
    /// Memory in huge pages.
    pub huge: bool,
    /// Memory of this node.
    pub node: Option<u32>,
    /// Each side has a core.
    pub pins: bool,
    /// Ratios to what the machine allows.
    pub limits: bool,
    /// Where JSON goes.
    pub json: Option<PathBuf>,
    /// Which fabric, and why.
    pub explains: bool,
}

/// Where the other side is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// On this host: we start both.
    Local,
    /// It will connect here.
    Listen(SocketAddr, Trust),
    /// It listens there.
    Connect(String, Trust),
}

/// What is asked of a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// That it knows the secret.
    Secret,
    /// Nothing.
    Anybody,
}

impl Settings {
    /// The settings that these options ask for, or the sentence that says why they make no sense.
    pub fn new(options: &Options) -> Result<Self, String> {
        let job = job_of(options)?;
        job.check()?;
        let place = &options.place;
        let way = way(options)?;
        if way != Way::Local && options.method.limits {
            return Err("--limits are those of two cores of one host; leave --listen and --connect out".into());
        }
        for (is_set, option) in [(options.results.file.json.is_some(), "-J"), (options.results.explain, "--explain")] {
            if matches!(way, Way::Listen(..)) && is_set {
                return Err(format!(
                    "{option}: the side that listens prints nothing; give it to the one with --connect"
                ));
            }
        }
        if place.fabric == Fabric::Shm && place.sockets > 1 {
            return Err("--sockets is about tcp; leave it or --fabric shm out".into());
        }
        Ok(Self {
            job,
            way,
            fabric: place.fabric.backend(),
            huge: place.huge,
            node: place.node,
            pins: !place.no_pin,
            limits: options.method.limits,
            json: options.results.file.json.clone(),
            explains: options.results.explain,
        })
    }

    /// How long a wait may take.
    pub fn patience(&self) -> Duration {
        self.job.patience()
    }
}

fn way(options: &Options) -> Result<Way, String> {
    let place = &options.place;
    let trust = if place.insecure { Trust::Anybody } else { Trust::Secret };
    match (&place.listen, &place.connect) {
        (Some(address), _) => Ok(Way::Listen(*address, trust)),
        (None, Some(address)) if !address.contains(':') => {
            Err(format!("--connect {address} has no port; write {address}:18515"))
        }
        (None, Some(address)) => Ok(Way::Connect(address.clone(), trust)),
        (None, None) if place.insecure => {
            Err("--insecure is about --listen and --connect; local processes have a secret of their own".into())
        }
        (None, None) => Ok(Way::Local),
    }
}

fn job_of(options: &Options) -> Result<Job, String> {
    let (shape, method) = (&options.shape, &options.method);
    let tables = match (method.latency, method.bandwidth) {
        (true, _) => vec![Table::Latency],
        (_, true) => vec![Table::Bandwidth],
        (false, false) => vec![Table::Latency, Table::Bandwidth],
    };
    Ok(Job {
        test: options.test,
        sizes: sizes_of(options)?,
        iterations: method.iterations,
        warmup: method.warmup,
        duration: method.duration,
        tables,
        depth: shape.depth,
        batch: shape.batch,
        paging: shape.paged,
        bidirectional: shape.bidirectional,
        notify: shape.notify,
        inline: shape.inline,
        sockets: options.place.sockets,
        checks: method.check != 0,
        inject: method.inject_error,
        timeout: method.timeout,
    })
}

fn sizes_of(options: &Options) -> Result<Vec<u64>, String> {
    let sweep = &options.sweep;
    if !sweep.sizes.is_empty() {
        return Ok(sweep.sizes.clone());
    }
    let default = match options.test {
        Test::Atomic => (8, 8),
        Test::Send => (8, MESSAGE as u64),
        Test::Write | Test::Read => match options.shape.paged {
            Some(paging) => (paging.page, paging.page.saturating_mul(1024)),
            None => (8, 8 << 20),
        },
    };
    let (min, max) = match (sweep.min, sweep.max) {
        (Some(min), Some(max)) => (min, max),
        (Some(one), None) | (None, Some(one)) => (one, one),
        (None, None) => default,
    };
    if min > max {
        return Err(format!("-b {min} is more than -e {max}: the smallest transfer cannot be above the largest"));
    }
    if max > LARGEST {
        return Err(format!("-e {max}: {} is the largest transfer", sizes::human(LARGEST)));
    }
    if sweep.factor < 2 {
        return Err("-f/--stepfactor must be 2 or more, or the sizes would never grow".into());
    }
    if min == 0 && max > 0 {
        // nothing times a factor stays nothing: 0, then 1 and on
        return Ok(core::iter::once(0).chain(sizes::sweep(1, max, Step::Factor(sweep.factor))).collect());
    }
    Ok(sizes::sweep(min, max, Step::Factor(sweep.factor)).collect())
}

/// The job of a command line, for tests.
#[cfg(test)]
pub fn job(line: &str) -> Result<Job, String> {
    tests::settings(line).map(|settings| settings.job)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct P2p {
        #[command(flatten)]
        options: Options,
    }

    pub fn settings(line: &str) -> Result<Settings, String> {
        let words = core::iter::once("p2p").chain(line.split_whitespace());
        let parsed = P2p::try_parse_from(words).map_err(|error| error.to_string())?;
        Settings::new(&parsed.options)
    }

    #[test]
    fn nothing_said_is_a_sweep_with_both_tables() {
        let job = job("write").unwrap();
        assert_eq!((job.sizes.len(), job.largest()), (11, 8 << 20));
        assert_eq!(job.tables, [Table::Latency, Table::Bandwidth]);
        assert!(job.checks && !job.inject);
        assert_eq!(super::job("atomic").unwrap().sizes, [8]);
        assert_eq!(super::job("send").unwrap().sizes, [8, 32, 128, 512, 2048]);
    }

    #[test]
    fn sizes_are_a_list_a_sweep_or_one() {
        assert_eq!(job("read --sizes 0,1,4K").unwrap().sizes, [0, 1, 4096]);
        assert_eq!(job("read -b 64").unwrap().sizes, [64]);
        assert_eq!(job("read -e 4G").unwrap().sizes, [4 << 30]);
        assert_eq!(job("read -b 0 -e 16 -f 4").unwrap().sizes, [0, 1, 4, 16]);
        assert_eq!(job("write --paged 4K -e 16K -b 4K").unwrap().sizes, [4096, 16384]);
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        for (line, part) in [
            ("push", "possible values"),
            ("write -b 2 -e 1", "-b 2 is more than -e 1"),
            ("write -f 1", "-f/--stepfactor"),
            ("write -b 8 -e 5G", "the largest transfer"),
            ("write -b 4294967297", "4 GiB"),
            ("write -n 0", "-n/--iters"),
            ("write --duration 0", "--duration"),
            ("write --duration nan", "--duration"),
            ("write --depth 0", "--depth 0"),
            ("write --depth 65537", "65536"),
            ("write --batch 65", "--batch 65"),
            ("write --batch 2 --inline", "--batch"),
            ("write --inline --paged 8", "--inline"),
            ("write --paged 0", "--paged 0"),
            ("write --paged 8:4", "stride"),
            ("write --paged 4K --sizes 4097", "4097"),
            ("write --paged 1 --sizes 1G", "too many"),
            ("read --notify", "--notify is about writes; read"),
            ("send -b 4089", "4088"),
            ("atomic -b 4", "an atomic has 8"),
            ("write --inject-error -c 0", "-c 0"),
            ("write --inject-error -b 0", "0 bytes"),
            ("write --listen --limits", "--limits"),
            ("write --listen -J out.json", "-J"),
            ("write --listen --explain", "--explain"),
            ("write --sizes 8,64 -f 2", "cannot be used with"),
            ("write --latency --depth 2", "cannot be used with"),
            ("write --latency --batch 2", "cannot be used with"),
            ("write --latency --bidirectional", "cannot be used with"),
            ("write --fabric shm --sockets 2", "--sockets"),
            ("write --connect host", "host:18515"),
            ("write --insecure", "--insecure"),
            ("write --listen nowhere", "nowhere"),
            ("write --listen --connect a:1", "cannot be used with"),
            ("write --sockets 0", "--sockets 0"),
            ("write -T 0", "-T/--timeout"),
            ("write --latency --bandwidth", "cannot be used with"),
        ] {
            let error = settings(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
