//! What launchers tell a process about itself.

use core::fmt;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, OnceLock};

use vervain_transport::auth::Secret;
use vervain_transport::{Error, Kind, Rank};

use super::sys;
use crate::bootstrap::{InitError, Listener, UniqueId};

/// A variable's value, if it is set. `&|name| std::env::var(name).ok()` outside tests.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

type Result<T> = core::result::Result<T, Box<InitError>>;

/// Who started this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// Our own, or a user who set its variables.
    Vervain,
    /// PyTorch's.
    Torchrun,
    /// mpirun of Open MPI.
    OpenMpi,
    /// mpiexec of MPICH and its kin.
    Hydra,
    /// Slurm's.
    Srun,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Launcher::Vervain => "vervain",
            Launcher::Torchrun => "torchrun",
            Launcher::OpenMpi => "Open MPI",
            Launcher::Hydra => "MPICH",
            Launcher::Srun => "srun",
        })
    }
}

/// This process's place in a job.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Who said so.
    pub launcher: Launcher,
    /// Our rank.
    pub rank: Rank,
    /// How many ranks there are.
    pub ranks: u32,
    /// Our number on this host, if the launcher says.
    pub local_rank: Option<u32>,
    /// Where all meet.
    pub id: UniqueId,
    /// What the user should be told, loudly.
    pub warnings: Vec<String>,
}

/// Rank 0 listens this far above torchrun's MASTER_PORT, which belongs to torchrun's own store.
pub const TORCHRUN_OFFSET: u16 = 1357;
/// First port, and number of ports, of jobs on one host whose launcher names no address.
const PORTS: (u16, u16) = (24_000, 4_000);

/// The variables of a launcher. Those that several have come from inner to outer: a launcher that runs below another one counts.
struct Names {
    launcher: Launcher,
    rank: &'static str,
    /// The first that is set counts.
    ranks: &'static [&'static str],
    local_rank: &'static str,
    /// Ranks on this host: all of them are if it equals the number of ranks.
    local_ranks: &'static str,
    /// Differs between jobs.
    job: &'static [&'static str],
}

const NAMES: [Names; 5] = [
    Names {
        launcher: Launcher::Vervain,
        rank: "VERVAIN_RANK",
        ranks: &["VERVAIN_RANKS"],
        local_rank: "VERVAIN_LOCAL_RANK",
        local_ranks: "VERVAIN_LOCAL_RANKS",
        job: &[],
    },
    Names {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        ranks: &["WORLD_SIZE"],
        local_rank: "LOCAL_RANK",
        local_ranks: "LOCAL_WORLD_SIZE",
        job: &["TORCHELASTIC_RUN_ID"],
    },
    Names {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_ranks: "OMPI_COMM_WORLD_LOCAL_SIZE",
        job: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
    },
    Names {
        launcher: Launcher::Hydra,
        rank: "PMI_RANK",
        ranks: &["PMI_SIZE"],
        local_rank: "MPI_LOCALRANKID",
        local_ranks: "MPI_LOCALNRANKS",
        job: &["PMI_PORT", "PMI_ID_JOB"],
    },
    Names {
        launcher: Launcher::Srun,
        rank: "SLURM_PROCID",
        ranks: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: "SLURM_LOCALID",
        local_ranks: "SLURM_STEP_TASKS_PER_NODE",
        job: &["SLURM_JOB_ID"],
    },
];

impl Environment {
    /// What this process's environment says; `None` if no launcher started it. Warnings are also given to `tracing`.
    pub fn from_process() -> Result<Option<Self>> {
        let lookup = |name: &str| std::env::var(name).ok();
        let Some(mut environment) = Self::parse(&lookup)? else { return Ok(None) };
        environment.adopt(&lookup);
        environment.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        Ok(Some(environment))
    }

    /// What these variables say; `None` if they are no launcher's.
    ///
    /// # Errors
    /// `InvalidArgument` for variables that are missing, no numbers, or contradict each other; the report names them.
    /// `Unauthenticated` if there is no secret and rank 0 does not listen on the loopback address.
    pub fn parse(lookup: Lookup<'_>) -> Result<Option<Self>> {
        let Some(names) = find(lookup) else { return Ok(None) };
        let rank = required(lookup, &[names.rank])?;
        let ranks = required(lookup, names.ranks)?;
        if ranks == 0 {
            return Err(wrong(format!("{} is 0: a job has at least one rank", names.ranks[0])));
        }
        if rank >= ranks {
            return Err(wrong(format!("{} is {rank}, but there are only {ranks} ranks", names.rank)));
        }
        let local_rank = optional(lookup, names.local_rank)?;
        let mut warnings = Vec::new();
        let id = if ranks == 1 { alone()? } else { meeting(lookup, names, ranks, &mut warnings)? };
        let launcher = names.launcher;
        Ok(Some(Self { launcher, rank: Rank::new(rank), ranks, local_rank, id, warnings }))
    }

    /// Use the socket that our launcher bound for rank 0.
    fn adopt(&mut self, lookup: Lookup<'_>) {
        let fd = lookup("VERVAIN_BOOTSTRAP_FD").and_then(|text| text.parse().ok());
        if let Some(fd) = fd.filter(|_| self.rank.get() == 0)
            && let Some((address, slot)) = inherited(fd)
            && address == self.id.address()
        {
            self.id = UniqueId::inherited(address, self.id.secret().clone(), slot);
        }
    }
}

/// The launcher's listening socket, which waits here for the first rank 0, however often the environment is asked before.
fn inherited(fd: RawFd) -> Option<(SocketAddr, Arc<Mutex<Listener>>)> {
    type Slot = Option<(SocketAddr, Arc<Mutex<Listener>>)>;
    static SLOT: OnceLock<Slot> = OnceLock::new();
    let adopt = || {
        let listener = sys::adopt_listener(fd)?;
        Some((listener.local_addr().ok()?, Arc::new(Mutex::new(Listener::Inherited(listener)))))
    };
    SLOT.get_or_init(adopt).clone()
}

/// How many ranks a launcher seems to have started, and which launcher: to warn a program that runs alone by mistake.
pub fn expected_ranks(lookup: Lookup<'_>) -> Option<(Launcher, u32)> {
    let names = find(lookup)?;
    let ranks = names.ranks.iter().find_map(|name| lookup(name))?.trim().parse().ok()?;
    Some((names.launcher, ranks))
}

fn find(lookup: Lookup<'_>) -> Option<&'static Names> {
    let is_set = |names: &&Names| {
        let half_set = names.launcher == Launcher::Vervain && lookup(names.ranks[0]).is_some();
        lookup(names.rank).is_some() || half_set
    };
    NAMES.iter().find(is_set)
}

fn required(lookup: Lookup<'_>, names: &[&str]) -> Result<u32> {
    let Some(name) = names.iter().find(|name| lookup(name).is_some()) else {
        return Err(wrong(format!("{} is not set", names.join(" or "))));
    };
    optional(lookup, name)?.ok_or_else(|| wrong(format!("{name} is not set")))
}

fn optional(lookup: Lookup<'_>, name: &str) -> Result<Option<u32>> {
    let Some(text) = lookup(name) else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| wrong(format!("{name} is `{text}`, which is no number")))
}

/// An id that nobody has to know.
fn alone() -> Result<UniqueId> {
    Ok(UniqueId::from_parts((Ipv4Addr::LOCALHOST, 1).into(), Secret::generate().map_err(explain("no random bytes"))?))
}

fn meeting(lookup: Lookup<'_>, names: &Names, ranks: u32, warnings: &mut Vec<String>) -> Result<UniqueId> {
    let address = address(lookup, names, ranks)?;
    if address.ip().is_unspecified() {
        return Err(wrong(format!("{address} is no address that ranks can dial; name the one where rank 0 listens")));
    }
    let secret = match secret(lookup)? {
        Some(secret) => secret,
        None => no_secret(lookup, address, warnings)?,
    };
    Ok(UniqueId::from_parts(address, secret))
}

fn address(lookup: Lookup<'_>, names: &Names, ranks: u32) -> Result<SocketAddr> {
    if let Some(text) = lookup("VERVAIN_BOOTSTRAP") {
        return resolve("VERVAIN_BOOTSTRAP", &text);
    }
    if names.launcher == Launcher::Torchrun {
        let host = lookup("MASTER_ADDR").ok_or_else(|| wrong("neither VERVAIN_BOOTSTRAP nor MASTER_ADDR is set"))?;
        let port = required(lookup, &["MASTER_PORT"])?;
        let port = u16::try_from(port).map_err(|_| wrong(format!("MASTER_PORT is {port}, which is no port")))?;
        let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
        return resolve("MASTER_ADDR", &format!("{host}:{}", beside(port)));
    }
    if lookup(names.local_ranks).and_then(|text| text.trim().parse().ok()) == Some(ranks) {
        let job = names.job.iter().find_map(|name| lookup(name)).unwrap_or_default();
        return Ok((Ipv4Addr::LOCALHOST, port_of(&job)).into());
    }
    Err(wrong("VERVAIN_BOOTSTRAP is not set: give all ranks the `host:port` where rank 0 shall listen"))
}

/// A port other than torchrun's, the same on all ranks.
fn beside(port: u16) -> u16 {
    port.checked_add(TORCHRUN_OFFSET).unwrap_or(port.wrapping_sub(TORCHRUN_OFFSET))
}

/// Jobs on one host should not meet; if they do, their ranks are told apart, and one job fails by name.
fn port_of(job: &str) -> u16 {
    let hash = job
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    PORTS.0 + (hash % u64::from(PORTS.1)) as u16
}

fn resolve(name: &str, text: &str) -> Result<SocketAddr> {
    let found = text.trim().to_socket_addrs().ok().and_then(|mut all| all.next());
    found
        .filter(|at| at.port() != 0)
        .ok_or_else(|| wrong(format!("{name}: `{text}` is no `host:port` that this host can resolve")))
}

fn secret(lookup: Lookup<'_>) -> Result<Option<Secret>> {
    let text = match (lookup("VERVAIN_SECRET"), lookup("VERVAIN_SECRET_FILE")) {
        (Some(_), Some(_)) => return Err(wrong("VERVAIN_SECRET and VERVAIN_SECRET_FILE are both set; keep one")),
        (None, None) => return Ok(None),
        (Some(text), None) => text,
        (None, Some(path)) => std::fs::read_to_string(&path)
            .map_err(|error| explain(format!("VERVAIN_SECRET_FILE: {path} cannot be read"))(error.into()))?,
    };
    // the value itself is not repeated
    Secret::from_hex(&text)
        .map(Some)
        .ok_or_else(|| wrong("the secret is not 64 hexadecimal digits; make one with `openssl rand -hex 32`"))
}

/// Everybody knows this one: what keeps strangers out is the address alone.
fn no_secret(lookup: Lookup<'_>, address: SocketAddr, warnings: &mut Vec<String>) -> Result<Secret> {
    let advice = "set VERVAIN_SECRET or VERVAIN_SECRET_FILE on all ranks (`openssl rand -hex 32` makes one)";
    if !address.ip().is_loopback() && lookup("VERVAIN_INSECURE").as_deref() != Some("1") {
        let line = format!(
            "no secret, and {address} can be reached from other hosts: {advice}, or VERVAIN_INSECURE=1 to go on without"
        );
        return Err(Box::new(InitError::new(Kind::Unauthenticated.into(), vec![line])));
    }
    warnings.push(format!("INSECURE: no secret, so every process that reaches {address} can join this job; {advice}"));
    Ok(Secret::from_bytes(*b"vervain: a job without a secret."))
}

fn wrong(line: impl Into<String>) -> Box<InitError> {
    explain(line)(Kind::InvalidArgument.into())
}

fn explain(line: impl Into<String>) -> impl FnOnce(Error) -> Box<InitError> {
    move |error| Box::new(InitError::new(error, vec![line.into()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: (&str, &str) = ("VERVAIN_SECRET", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
    const AT: (&str, &str) = ("VERVAIN_BOOTSTRAP", "127.0.0.1:4000");

    type Variables<'a> = &'a [(&'a str, &'a str)];

    fn parse(variables: Variables<'_>) -> Result<Option<Environment>> {
        Environment::parse(&lookup(variables))
    }

    fn lookup(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        move |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn every_launcher_is_understood() {
        let cases: [(Launcher, Variables<'_>, &str); 7] = [
            (
                Launcher::Vervain,
                &[("VERVAIN_RANK", "1"), ("VERVAIN_RANKS", "4"), ("VERVAIN_LOCAL_RANK", "1"), AT],
                "127.0.0.1:4000",
            ),
            (
                Launcher::Torchrun,
                &[
                    ("RANK", "1"),
                    ("WORLD_SIZE", "4"),
                    ("LOCAL_RANK", "1"),
                    ("MASTER_ADDR", "::1"),
                    ("MASTER_PORT", "29500"),
                ],
                "[::1]:30857",
            ),
            (
                Launcher::Torchrun,
                &[
                    ("RANK", "1"),
                    ("WORLD_SIZE", "4"),
                    ("LOCAL_RANK", "1"),
                    ("MASTER_ADDR", "127.0.0.2"),
                    ("MASTER_PORT", "65535"),
                ],
                "127.0.0.2:64178",
            ),
            (
                Launcher::OpenMpi,
                &[
                    ("OMPI_COMM_WORLD_RANK", "1"),
                    ("OMPI_COMM_WORLD_SIZE", "4"),
                    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
                    AT,
                ],
                "127.0.0.1:4000",
            ),
            (Launcher::Hydra, &[("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("MPI_LOCALRANKID", "1"), AT], "127.0.0.1:4000"),
            (
                Launcher::Srun,
                &[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4"), ("SLURM_LOCALID", "1"), AT],
                "127.0.0.1:4000",
            ),
            (
                Launcher::Srun,
                &[
                    ("SLURM_PROCID", "1"),
                    ("SLURM_NTASKS", "9"),
                    ("SLURM_STEP_NUM_TASKS", "4"),
                    ("SLURM_LOCALID", "1"),
                    AT,
                ],
                "127.0.0.1:4000",
            ),
        ];
        for (launcher, variables, address) in cases {
            let found = parse(&[variables, &[SECRET]].concat()).unwrap().unwrap();
            assert_eq!((found.launcher, found.rank.get(), found.ranks, found.local_rank), (launcher, 1, 4, Some(1)));
            assert_eq!(found.id.address(), address.parse().unwrap());
            assert!(found.warnings.is_empty());
            assert_eq!(expected_ranks(&lookup(variables)), Some((launcher, 4)));
        }
    }

    #[test]
    fn nobody_started_us() {
        assert!(parse(&[AT, SECRET, ("WORLD_SIZE", "4"), ("SLURM_NTASKS", "4")]).unwrap().is_none());
        assert_eq!(expected_ranks(&lookup(&[])), None);
    }

    #[test]
    fn wrong_variables_are_named() {
        let cases: [(Variables<'_>, &str); 13] = [
            (&[("VERVAIN_RANK", "0")], "VERVAIN_RANKS is not set"),
            (&[("VERVAIN_RANKS", "2")], "VERVAIN_RANK is not set"),
            (&[("VERVAIN_RANK", "zero"), ("VERVAIN_RANKS", "2")], "VERVAIN_RANK is `zero`"),
            (&[("VERVAIN_RANK", "-1"), ("VERVAIN_RANKS", "2")], "VERVAIN_RANK is `-1`"),
            (&[("VERVAIN_RANK", "2"), ("VERVAIN_RANKS", "2")], "only 2 ranks"),
            (&[("VERVAIN_RANK", "0"), ("VERVAIN_RANKS", "0")], "VERVAIN_RANKS is 0"),
            (&[("VERVAIN_RANK", "0"), ("VERVAIN_RANKS", "2")], "VERVAIN_BOOTSTRAP is not set"),
            (
                &[("VERVAIN_RANK", "0"), ("VERVAIN_RANKS", "2"), ("VERVAIN_BOOTSTRAP", "0.0.0.0:5")],
                "no address that ranks can dial",
            ),
            (
                &[("VERVAIN_RANK", "0"), ("VERVAIN_RANKS", "2"), ("VERVAIN_BOOTSTRAP", "127.0.0.1")],
                "VERVAIN_BOOTSTRAP: `127.0.0.1`",
            ),
            (&[("VERVAIN_RANK", "0"), ("VERVAIN_RANKS", "2"), AT, SECRET, ("VERVAIN_SECRET_FILE", "/x")], "both set"),
            (&[("VERVAIN_RANK", "0"), ("VERVAIN_RANKS", "2"), AT, ("VERVAIN_SECRET", "abc")], "64 hexadecimal digits"),
            (&[("RANK", "0"), ("WORLD_SIZE", "2")], "MASTER_ADDR"),
            (
                &[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "99999")],
                "MASTER_PORT is 99999",
            ),
        ];
        for (variables, text) in cases {
            let error = parse(variables).unwrap_err();
            assert_eq!(error.error.kind(), Kind::InvalidArgument);
            assert!(error.report.lines[0].contains(text), "{:?} lacks {text}", error.report.lines);
            assert!(!error.to_string().contains("abc"), "a secret is repeated");
        }
    }

    #[test]
    fn inner_launcher_counts() {
        let outer =
            [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2"), ("VERVAIN_RANK", "3"), ("VERVAIN_RANKS", "8"), AT, SECRET];
        let found = parse(&outer).unwrap().unwrap();
        assert_eq!((found.launcher, found.rank.get(), found.ranks), (Launcher::Vervain, 3, 8));
    }

    #[test]
    fn without_secret_only_loopback_or_on_demand() {
        let place = [("PMI_RANK", "0"), ("PMI_SIZE", "2")];
        let at =
            |address, more: &[(&str, &str)]| parse(&[&place[..], &[("VERVAIN_BOOTSTRAP", address)], more].concat());
        assert_eq!(at("127.0.0.1:5", &[]).unwrap().unwrap().warnings.len(), 1);
        assert_eq!(at("192.0.2.1:5", &[]).unwrap_err().error.kind(), Kind::Unauthenticated);
        assert_eq!(at("192.0.2.1:5", &[("VERVAIN_INSECURE", "1")]).unwrap().unwrap().warnings.len(), 1);
        assert_eq!(at("192.0.2.1:5", &[SECRET]).unwrap().unwrap().warnings.len(), 0);
    }

    #[test]
    fn one_host_needs_no_address() {
        let job = |name| {
            let names = [
                ("OMPI_COMM_WORLD_RANK", "0"),
                ("OMPI_COMM_WORLD_SIZE", "2"),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
                ("PMIX_NAMESPACE", name),
            ];
            parse(&names).unwrap().unwrap().id.address()
        };
        assert!(job("one").ip().is_loopback());
        assert_eq!(job("one"), job("one"));
        assert_ne!(job("one"), job("two"));
    }

    #[test]
    fn one_rank_needs_nothing() {
        let found = parse(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]).unwrap().unwrap();
        assert_eq!((found.ranks, found.warnings.len()), (1, 0));
    }

    #[test]
    fn secret_comes_from_a_file() {
        let path = std::env::temp_dir().join(format!("vervain-secret-{}", std::process::id()));
        std::fs::write(&path, format!("{}\n", SECRET.1)).unwrap();
        let file = ("VERVAIN_SECRET_FILE", path.to_str().unwrap());
        let found = parse(&[("PMI_RANK", "0"), ("PMI_SIZE", "2"), AT, file]).unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found.id.secret(), &Secret::from_hex(SECRET.1).unwrap());
        let gone = parse(&[("PMI_RANK", "0"), ("PMI_SIZE", "2"), AT, file]).unwrap_err();
        assert_eq!((gone.error.kind(), gone.error.os()), (Kind::Os, Some(libc::ENOENT)));
    }
}
