//! Our own launcher: the ranks of a job as processes of this host.
//!
//! The launcher binds the bootstrap socket and gives it to rank 0, so that no port can be lost between choosing and using it; the secret goes
//! through the environment. Ranks die with the thread that started them, also if the launcher is killed. The first rank that fails gives the
//! others a grace period to end with an error of their own; then they are killed. Every process is waited for.

use core::time::Duration;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use vervain_transport::auth::Secret;
use vervain_transport::{Rank, Result, Time};

use super::lines::{Flow, Pipe, Sink, print};
use super::sys::{self, Signals};
use crate::control::poll::{self, Watch};

/// What becomes of what ranks print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Output {
    /// Rank 0 prints as if it ran alone; lines of the others get `[rank 3] ` in front.
    #[default]
    Prefixed,
    /// Everybody prints to our own output, as it comes.
    Inherit,
    /// Everybody's lines are kept in [`Exit::output`], up to 16 MiB a rank.
    Collect,
}

/// A job to be started.
#[derive(Clone, Debug)]
pub struct Local {
    ranks: u32,
    address: IpAddr,
    program: OsString,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    output: Output,
    grace: Duration,
}

/// How a rank ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Which.
    pub rank: Rank,
    /// How.
    pub status: ExitStatus,
    /// We killed it, because another one had failed or we were told to stop.
    pub killed: bool,
    /// Its lines, with [`Output::Collect`].
    pub output: Vec<u8>,
}

/// A job that runs. Dropping it kills what still runs, and waits.
#[derive(Debug)]
pub struct Running {
    processes: Vec<Process>,
    outs: Vec<Pipe<ChildStdout>>,
    errs: Vec<Pipe<ChildStderr>>,
    output: Output,
    grace: Duration,
    /// When those that still run are killed.
    kill_at: Time,
    signals: Signals,
    interrupted: Option<i32>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// Readable when it has ended.
    handle: Option<OwnedFd>,
    exit: Exit,
    is_running: bool,
}

/// Pause between two looks at processes where the kernel cannot wake us.
const LOOK: Duration = Duration::from_millis(10);
/// Grace after a signal.
const STOP: Duration = Duration::from_secs(2);
/// Collected bytes of a rank.
const COLLECTED: usize = 16 << 20;

impl Local {
    /// `ranks` processes of `program`, meeting on the loopback address.
    pub fn new(ranks: u32, program: impl AsRef<OsStr>) -> Self {
        Self {
            ranks,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            variables: Vec::new(),
            output: Output::default(),
            grace: Duration::from_secs(10),
        }
    }

    /// Add arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Set a variable of all ranks.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// What becomes of what ranks print.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// How long ranks may take to end by themselves after the first one failed. 10 s unless set.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Start all ranks. They live no longer than this thread. SIGINT and SIGTERM of this thread are held back until the job has ended, and
    /// are passed on to the ranks; call this before other threads exist, which would still take these signals.
    ///
    /// # Errors
    /// What the operating system says; ranks that were started are killed.
    pub fn start(&self) -> Result<Running> {
        let mut running = Running {
            processes: Vec::new(),
            outs: Vec::new(),
            errs: Vec::new(),
            output: self.output,
            grace: self.grace,
            kill_at: Time::NEVER,
            signals: Signals::hold()?,
            interrupted: None,
        };
        let listener = TcpListener::bind((self.address, 0))?;
        let bootstrap = listener.local_addr()?.to_string();
        let secret = Secret::generate()?.to_hex();
        let mut passed = Some(listener);
        for rank in (0..self.ranks).map(Rank::new) {
            let mut command = self.command(rank);
            command.env("VERVAIN_BOOTSTRAP", &bootstrap).env("VERVAIN_SECRET", &secret);
            let fd = passed.as_ref().map(AsRawFd::as_raw_fd);
            if let Some(fd) = fd {
                command.env("VERVAIN_BOOTSTRAP_FD", fd.to_string());
            }
            sys::tie_to_us(&mut command, running.signals.before(), fd);
            running.add(rank, command.spawn()?)?;
            // from here on only rank 0 has it
            passed = None;
        }
        Ok(running)
    }

    fn command(&self, rank: Rank) -> Command {
        let mut command = Command::new(&self.program);
        let number = rank.to_string();
        command.args(&self.arguments).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env("VERVAIN_RANK", &number).env("VERVAIN_LOCAL_RANK", &number);
        command.env("VERVAIN_RANKS", self.ranks.to_string()).env("VERVAIN_LOCAL_RANKS", self.ranks.to_string());
        command.env_remove("VERVAIN_SECRET_FILE").env_remove("VERVAIN_BOOTSTRAP_FD");
        let is_first = rank.get() == 0;
        if !is_first {
            command.stdin(Stdio::null());
        }
        if self.output == Output::Collect || (self.output == Output::Prefixed && !is_first) {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        command
    }
}

impl Running {
    fn add(&mut self, rank: Rank, mut child: Child) -> Result<()> {
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let handle = Pid::from_raw(child.id() as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let exit = Exit { rank, status: ExitStatus::default(), killed: false, output: Vec::new() };
        self.processes.push(Process { child, handle, exit, is_running: true });
        if let (Some(out), Some(err)) = (out, err) {
            rustix::io::ioctl_fionbio(&out, true).map_err(std::io::Error::from)?;
            rustix::io::ioctl_fionbio(&err, true).map_err(std::io::Error::from)?;
            self.outs.push(Pipe::new(rank, Sink::Stdout, out));
            self.errs.push(Pipe::new(rank, Sink::Stderr, err));
        }
        Ok(())
    }

    /// The process numbers, by rank.
    pub fn processes(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.child.id()).collect()
    }

    /// The signal that told us to stop, if one did.
    pub fn interrupted(&self) -> Option<i32> {
        self.interrupted
    }

    /// Pass output on until all ranks have ended; by rank, how they did.
    pub fn wait(&mut self) -> Vec<Exit> {
        while self.step(Time::now()) {
            self.sleep(Time::now());
        }
        self.processes.iter_mut().map(|process| process.exit.clone()).collect()
    }

    /// Whether a rank still runs.
    fn step(&mut self, now: Time) -> bool {
        while let Some(signal) = self.signals.take() {
            self.on_signal(signal, now);
        }
        self.pass_on();
        let grace = self.grace;
        let mut first_failure = false;
        for process in self.processes.iter_mut().filter(|process| process.is_running) {
            first_failure |= process.has_failed();
        }
        if first_failure {
            self.kill_at = self.kill_at.min(now.after(grace));
        }
        if now >= self.kill_at {
            self.processes.iter_mut().for_each(Process::kill);
        }
        let goes_on = self.processes.iter().any(|process| process.is_running);
        if !goes_on {
            self.pass_on();
        }
        goes_on
    }

    fn on_signal(&mut self, signal: i32, now: Time) {
        let is_second = self.interrupted.replace(signal).is_some();
        self.kill_at = self.kill_at.min(if is_second { now } else { now.after(STOP.min(self.grace)) });
        let signal = if signal == libc::SIGINT { Signal::INT } else { Signal::TERM };
        self.processes.iter_mut().for_each(|process| process.send(signal));
    }

    fn pass_on(&mut self) {
        let (output, processes) = (self.output, &mut self.processes);
        let mut take = |rank: Rank, sink: Sink, line: &[u8]| match output {
            Output::Collect => processes[rank.index()].exit.collect(line),
            Output::Prefixed | Output::Inherit => print(rank, sink, line),
        };
        self.outs.retain_mut(|pipe| pipe.drain(&mut take) == Flow::Open);
        self.errs.retain_mut(|pipe| pipe.drain(&mut take) == Flow::Open);
    }

    fn sleep(&self, now: Time) {
        let mut watches = vec![Watch::read(self.signals.as_fd())];
        watches.extend(self.outs.iter().map(|pipe| Watch::read(pipe.as_fd())));
        watches.extend(self.errs.iter().map(|pipe| Watch::read(pipe.as_fd())));
        let running = || self.processes.iter().filter(|process| process.is_running);
        watches
            .extend(running().filter_map(|process| process.handle.as_ref()).map(|handle| Watch::read(handle.as_fd())));
        let blind = running().any(|process| process.handle.is_none());
        let wake = if blind { self.kill_at.min(now.after(LOOK)) } else { self.kill_at };
        poll::wait(&watches, now, wake);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.processes.iter_mut().for_each(Process::kill);
        for process in self.processes.iter_mut().filter(|process| process.is_running) {
            // it was killed, so this does not take long
            let _ = process.child.wait();
        }
    }
}

impl Process {
    /// Whether it has ended by now, and not well.
    fn has_failed(&mut self) -> bool {
        let status = match self.child.try_wait() {
            Ok(None) => return false,
            Ok(Some(status)) => status,
            // somebody else waited for it: how it ended is lost
            Err(_) => ExitStatus::from_raw(libc::SIGKILL),
        };
        self.is_running = false;
        self.exit.status = status;
        !status.success()
    }

    fn send(&mut self, signal: Signal) {
        // not waited for yet, so the number is still its own
        if self.is_running
            && let Some(pid) = Pid::from_raw(self.child.id() as i32)
        {
            let _ = kill_process(pid, signal);
        }
    }

    fn kill(&mut self) {
        if self.is_running {
            self.exit.killed = true;
            self.send(Signal::KILL);
        }
    }
}

impl Exit {
    fn collect(&mut self, line: &[u8]) {
        if self.output.len() + line.len() < COLLECTED {
            self.output.extend_from_slice(line);
            self.output.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(ranks: u32, script: &str) -> Local {
        Local::new(ranks, "sh").args(["-c", script]).output(Output::Collect)
    }

    fn run(job: &Local) -> Vec<Exit> {
        job.start().unwrap().wait()
    }

    #[test]
    fn every_rank_runs_with_its_number_and_the_same_secret() {
        let exits = run(&shell(
            3,
            "echo $VERVAIN_RANK of $VERVAIN_RANKS $VERVAIN_BOOTSTRAP ${VERVAIN_BOOTSTRAP_FD:+socket}; echo $VERVAIN_SECRET >&2",
        ));
        for (rank, exit) in exits.iter().enumerate() {
            assert!(exit.status.success() && !exit.killed && exit.rank.index() == rank);
            let text = String::from_utf8(exit.output.clone()).unwrap();
            assert!(text.contains(&format!("{rank} of 3 127.0.0.1:")), "{text}");
            assert_eq!(text.contains("socket"), rank == 0);
            assert!(text.lines().any(|line| line.len() == 64));
        }
    }

    #[test]
    fn rank_0_gets_the_bound_socket_and_nobody_else() {
        let exits = run(&shell(2, "ls -l /proc/self/fd | grep -c socket"));
        assert_eq!(exits.iter().map(|exit| exit.output.as_slice()).collect::<Vec<_>>(), [b"1\n", b"0\n"]);
    }

    #[test]
    fn status_of_every_rank_is_returned() {
        let exits = run(&shell(3, "exit $VERVAIN_RANK"));
        assert_eq!(exits.iter().map(|exit| exit.status.code()).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn survivors_of_a_failure_are_killed_after_the_grace() {
        let job = shell(3, "[ $VERVAIN_RANK = 1 ] && kill -9 $$; exec sleep 600").grace(Duration::from_millis(50));
        let exits = run(&job);
        assert!(exits.iter().all(|exit| exit.status.signal() == Some(libc::SIGKILL)));
        assert_eq!(exits.iter().map(|exit| exit.killed).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn survivors_may_end_by_themselves_within_the_grace() {
        let exits = run(&shell(2, "[ $VERVAIN_RANK = 1 ] && exit 3; sleep 0.1; exit 4"));
        assert_eq!(
            exits.iter().map(|exit| (exit.status.code(), exit.killed)).collect::<Vec<_>>(),
            [(Some(4), false), (Some(3), false)]
        );
    }

    #[test]
    fn signals_are_passed_on() {
        for (signal, code) in [(libc::SIGTERM, 15), (libc::SIGINT, 2)] {
            let mut running =
                shell(2, "trap 'exit 15' TERM; trap 'exit 2' INT; echo > /dev/null; while :; do sleep 0.02; done")
                    .start()
                    .unwrap();
            // the traps stand as soon as the loops run: their first sleep is a child of each
            let pids = running.processes();
            while !pids.iter().all(|pid| has_child(*pid)) {}
            sys::raise(signal);
            let exits = running.wait();
            assert_eq!(running.interrupted(), Some(signal));
            assert_eq!(exits.iter().map(|exit| exit.status.code()).collect::<Vec<_>>(), [Some(code); 2]);
        }
    }

    #[test]
    fn dropped_job_leaves_no_process() {
        let running = shell(2, "exec sleep 600").start().unwrap();
        let pids = running.processes();
        drop(running);
        assert!(pids.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()));
    }

    #[test]
    fn missing_program_is_an_error_and_kills_nobody_else() {
        let error = Local::new(2, "/no/such/program").start().unwrap_err();
        assert_eq!(error.os(), Some(libc::ENOENT));
    }

    fn has_child(pid: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
            .is_ok_and(|children| !children.trim().is_empty())
    }
}
