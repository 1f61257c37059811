//! How ranks are started, and how a started process learns which rank it is.
//!
//! [`Environment`] reads what a launcher left in the environment: our own, torchrun, Open MPI, MPICH (Hydra), srun. [`Local`] is our own: it
//! starts the ranks of a job as processes of this host and stays until all have ended. [`Signals`] lets a program that nobody started end by
//! Ctrl-C as it ends by an error.
//!
//! | variable | meaning |
//! |---|---|
//! | `VERVAIN_RANK`, `VERVAIN_RANKS`, `VERVAIN_LOCAL_RANK` | which rank, of how many, which on its host |
//! | `VERVAIN_BOOTSTRAP` | `host:port` where rank 0 listens |
//! | `VERVAIN_BOOTSTRAP_FD` | for rank 0 under our launcher: the socket that listens there already |
//! | `VERVAIN_SECRET`, `VERVAIN_SECRET_FILE` | 64 hexadecimal digits that all ranks share, or the file that has them |
//! | `VERVAIN_INSECURE=1` | go on without a secret although rank 0 does not listen on the loopback address |

mod environment;
mod lines;
mod local;
mod sys;

pub use environment::{Environment, Launcher, Lookup, TORCHRUN_OFFSET, expected_ranks};
pub use local::{Exit, Local, Output, Running};
pub use sys::Signals;
