//! One socket of the mesh, and the process at its other end.

use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use vervain_transport::Rank;

use super::frame::Flood;
use super::poll::Watch;
use crate::bootstrap::channel::{Channel, Frame};
use crate::bootstrap::{Host, Member};

/// Bytes queued for a peer that does not read, beyond which droppable messages are dropped. The others are bounded in number.
const BACKLOG: usize = 64 << 10;
/// Messages taken from one edge in one step.
const BURST: usize = 256;

/// The socket to a neighbour.
#[derive(Debug)]
pub(crate) struct Edge {
    pub rank: Rank,
    channel: Channel,
    /// Readable when the process has ended; only for another process whose number we can trust.
    process: Option<OwnedFd>,
}

/// What an edge brought.
#[derive(Debug)]
pub(crate) enum Arrival {
    Flood(Flood),
    /// The peer sent what no peer sends.
    Garbage,
    /// The peer closed.
    Closed,
}

impl Edge {
    pub(crate) fn new(here: &Member, there: &Member, channel: Channel) -> Self {
        Self { rank: there.rank, channel, process: watch_process(&here.host, here.pid, there) }
    }

    /// Everything that has arrived; ends with `Garbage` or `Closed` if the edge is of no use any more.
    pub(crate) fn receive(&mut self, ranks: u32) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        while arrivals.len() < BURST {
            let arrival = match self.channel.receive() {
                Ok(None) => break,
                Ok(Some(payload)) => Flood::parse(&payload, ranks).map_or(Arrival::Garbage, Arrival::Flood),
                Err(error) if error.kind() == vervain_transport::Kind::Corrupt => Arrival::Garbage,
                Err(_) => Arrival::Closed,
            };
            let is_last = !matches!(arrival, Arrival::Flood(_));
            arrivals.push(arrival);
            if is_last {
                break;
            }
        }
        arrivals
    }

    /// Queue a message.
    pub(crate) fn send(&mut self, frame: &Frame, is_droppable: bool) {
        if !is_droppable || self.channel.backlog() < BACKLOG {
            self.channel.send(frame);
        }
    }

    pub(crate) fn flush(&mut self) {
        self.channel.flush();
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.channel.is_writing()
    }

    pub(crate) fn process(&self) -> Option<&OwnedFd> {
        self.process.as_ref()
    }

    pub(crate) fn watch<'a>(&'a self, into: &mut Vec<Watch<'a>>) {
        into.push(Watch::channel(&self.channel));
        into.extend(self.process.as_ref().map(|process| Watch::read(process.as_fd())));
    }
}

fn watch_process(host: &Host, own: u32, there: &Member) -> Option<OwnedFd> {
    if own == there.pid || !host.sees_processes_of(&there.host) {
        return None;
    }
    let pid = Pid::from_raw(i32::try_from(there.pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}
