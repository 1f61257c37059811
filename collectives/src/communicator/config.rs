//! What a communicator is made with.

use core::str::FromStr;
use core::time::Duration;

use vervain_transport::fabric::Backend;
use vervain_transport::{Error, Kind};

use crate::plan::Algorithm;

/// How messages travel on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// 8 bytes of data in a line of 16: least latency.
    Ll,
    /// 120 bytes of data in a line of 128. Only on fabrics that keep lines whole.
    Ll128,
    /// Plain bytes and a counter: most bandwidth.
    Simple,
}

impl core::fmt::Display for Protocol {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Protocol::Ll => "ll",
            Protocol::Ll128 => "ll128",
            Protocol::Simple => "simple",
        })
    }
}

impl FromStr for Protocol {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "ll" => Ok(Protocol::Ll),
            "ll128" => Ok(Protocol::Ll128),
            "simple" => Ok(Protocol::Simple),
            _ => Err(Kind::InvalidArgument.into()),
        }
    }
}

/// Who drives the control mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Progress {
    /// A thread per communicator, asleep when idle.
    #[default]
    Thread,
    /// The caller, by `step`.
    Manual,
}

/// What a communicator is made with. All ranks use equal values for `fabric`, `algorithm` and `protocol`.
#[derive(Clone, Debug)]
pub struct Config {
    /// `None`: shm if all ranks are on one host, else tcp. Others than these two are `Unsupported`.
    pub fabric: Option<Backend>,
    /// `None`: by size.
    pub algorithm: Option<Algorithm>,
    /// `None`: by size.
    pub protocol: Option<Protocol>,
    /// How long `init` may take.
    pub init_timeout: Duration,
    /// How long an operation may take.
    pub timeout: Duration,
    /// Who drives the control mesh.
    pub progress: Progress,
    /// The step at which all counters begin: for tests of wrap-around.
    #[doc(hidden)]
    pub first_step: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            fabric: None,
            algorithm: None,
            protocol: None,
            init_timeout: Duration::from_secs(60),
            timeout: Duration::from_secs(300),
            progress: Progress::Thread,
            first_step: 0,
        }
    }
}
