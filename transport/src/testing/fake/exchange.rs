//! All of a network: its fabrics' parts, what is under way between them, and the clock.

use super::{
    Options,
    node::{Life, Node, Slot, State},
    wire::{End, Frame, Parcel, Port},
};
use crate::{
    Kind, Rank, Time,
    fabric::{Doorbell, Identity, LinkId},
    testing::random::Random,
};

#[derive(Debug)]
pub(super) struct Exchange {
    pub options: Options,
    pub now: Time,
    pub random: Random,
    pub nodes: Vec<Node>,
    pub wires: Vec<[End; 2]>,
    /// Frames from the first to the second wait.
    pub held: Vec<(Rank, Rank)>,
}

impl Exchange {
    pub fn new(options: Options) -> Self {
        let (now, random) = (Time::default(), Random::new(options.seed));
        Self { options, now, random, nodes: Vec::new(), wires: Vec::new(), held: Vec::new() }
    }

    pub fn add(&mut self, identity: Identity, bell: Doorbell) -> usize {
        self.nodes.push(Node::new(identity, bell));
        self.nodes.len() - 1
    }

    /// What one fabric's poll does: let its operations leave, and take what is due for it.
    pub fn turn(&mut self, node: usize, now: Time) {
        self.now = self.now.max(now);
        self.expire(node);
        self.leave(node);
        while self.take_due(node, By::Host) || (self.options.passive && self.take_due_elsewhere()) {}
    }

    /// Everything leaves, and the next frame, of whomever, arrives. Whether there was one.
    pub fn step(&mut self) -> bool {
        let alive = |node: &usize| self.nodes[*node].life == Life::Alive;
        for node in (0..self.nodes.len()).filter(alive).collect::<Vec<_>>() {
            self.leave(node);
        }
        let next = (0..self.nodes.len()).filter_map(|node| Some((self.next(node, By::Host)?, node))).min();
        let Some(((due, tie, port), node)) = next else { return false };
        self.now = self.now.max(due);
        self.take(node, (due, tie, port));
        for node in 0..self.nodes.len() {
            self.expire(node);
        }
        true
    }

    /// When something happens next, if nobody does anything: for all, or with the dials of one fabric.
    pub fn next_time(&self, node: usize) -> Option<Time> {
        let mail = (0..self.nodes.len()).filter_map(|node| self.next(node, By::Host)).map(|(due, ..)| due);
        mail.chain(self.dial_deadlines(node)).min()
    }

    /// When something happens next for this fabric.
    pub fn next_time_here(&self, node: usize) -> Option<Time> {
        self.next(node, By::Host).map(|(due, ..)| due).into_iter().chain(self.dial_deadlines(node)).min()
    }

    fn dial_deadlines(&self, node: usize) -> impl Iterator<Item = Time> {
        self.nodes[node].links.iter().filter_map(|slot| match slot {
            Slot::Live(link) => match link.state {
                State::Dialling { deadline } => Some(deadline),
                State::Up => None,
            },
            Slot::Down(_) => None,
        })
    }

    /// Dials that nobody answered in time.
    fn expire(&mut self, node: usize) {
        let now = self.now;
        let is_late = |slot: &Slot| match slot {
            Slot::Live(link) => matches!(link.state, State::Dialling { deadline } if deadline <= now),
            Slot::Down(_) => false,
        };
        for at in 0..self.nodes[node].links.len() {
            if is_late(&self.nodes[node].links[at]) {
                self.hang_up(node, LinkId(at as u32), Kind::TimedOut);
            }
        }
    }

    /// End a link here, for this reason, and tell the peer that we left.
    pub fn hang_up(&mut self, node: usize, link: LinkId, kind: Kind) {
        let Ok(known) = self.nodes[node].known(link) else { return };
        let port = known.port;
        self.nodes[node].fail(link, kind);
        self.send(port.other(), Frame::End(Kind::PeerLeft));
    }

    /// A fabric's end, told to its peers as `kind`. What has left it goes on.
    pub fn part(&mut self, node: usize, kind: Kind) {
        if self.nodes[node].life == Life::Gone {
            return;
        }
        self.nodes[node].life = Life::Gone;
        self.nodes[node].mail.clear();
        for wire in 0..self.wires.len() {
            for port in [0, 1].map(|side| Port { wire, side }) {
                if self.end(port).node == node {
                    self.part_from(port, kind);
                }
            }
        }
    }

    fn part_from(&mut self, port: Port, kind: Kind) {
        let (node, link) = (self.end(port).node, self.end(port).link);
        self.end_mut(port).inbox.clear();
        match link {
            // a dial that was not answered yet
            None => self.send(port.other(), Frame::Refused(Kind::LinkFailed)),
            Some(id) if self.nodes[node].known(LinkId(id)).is_ok() => self.send(port.other(), Frame::End(kind)),
            Some(_) => {}
        }
    }

    /// Put a frame on its way.
    pub fn send(&mut self, to: Port, frame: Frame) {
        let node = self.end(to).node;
        if self.nodes[node].life == Life::Gone {
            if frame.needs_host() {
                self.send(to.other(), Frame::Refused(Kind::LinkFailed));
            }
            return;
        }
        let end = self.end_mut(to);
        let number = end.next;
        end.next += 1;
        let echo = end.echo.take();
        self.put(to, Parcel { number, frame: frame.clone() });
        if let Some(echo) = echo {
            self.put(to, echo);
        }
        if self.random.happens(self.options.duplicates) {
            self.end_mut(to).echo = Some(Parcel { number, frame });
        }
        self.nodes[node].bell.ring();
    }

    fn put(&mut self, to: Port, parcel: Parcel) {
        let mut due = self.now.after(self.random.within(&self.options.latency));
        // even a network that loses everything gives in after a while
        let lost = (0..16).take_while(|_| self.random.happens(self.options.losses)).count();
        due = due.after(self.options.resend * lost as u32);
        let tie = self.random.bits();
        let end = self.end_mut(to);
        end.busy_until = end.busy_until.max(due);
        end.inbox.push_back(parcel);
        let entry = (end.busy_until, tie, to);
        let node = end.node;
        let is_new = self.nodes[node].mail.insert(entry);
        debug_assert!(is_new, "64 random bits do not meet");
    }

    /// The frame for this fabric that is next, whether it is due or not.
    fn next(&self, node: usize, by: By) -> Option<Entry> {
        let may_come = |(_, _, port): &&Entry| !self.is_held(*port) && (by == By::Host || !self.waits_for_host(*port));
        self.nodes[node].mail.iter().find(may_come).copied()
    }

    fn take_due(&mut self, node: usize, by: By) -> bool {
        let due = self.next(node, by).filter(|(due, ..)| *due <= self.now);
        due.is_some_and(|entry| {
            self.take(node, entry);
            true
        })
    }

    /// A passive network carries out what is for others, too.
    fn take_due_elsewhere(&mut self) -> bool {
        (0..self.nodes.len()).any(|node| self.take_due(node, By::Network))
    }

    fn take(&mut self, node: usize, entry: Entry) {
        self.nodes[node].mail.remove(&entry);
        let port = entry.2;
        let Some(parcel) = self.end_mut(port).inbox.pop_front() else { return };
        self.deliver(port, parcel);
        self.nodes[node].bell.ring();
    }

    fn is_held(&self, port: Port) -> bool {
        let rank = |port| self.nodes[self.end(port).node].identity.rank;
        !self.held.is_empty() && self.held.contains(&(rank(port.other()), rank(port)))
    }

    fn waits_for_host(&self, port: Port) -> bool {
        self.end(port).inbox.front().is_some_and(|parcel| parcel.frame.needs_host())
    }

    /// What is on its way to this end is lost.
    pub fn lose(&mut self, port: Port) {
        let end = self.end_mut(port);
        end.inbox.clear();
        end.echo = None;
        let node = end.node;
        self.nodes[node].mail.retain(|(_, _, to)| *to != port);
    }

    pub fn end(&self, port: Port) -> &End {
        &self.wires[port.wire][port.side]
    }

    pub fn end_mut(&mut self, port: Port) -> &mut End {
        &mut self.wires[port.wire][port.side]
    }
}

/// Due, drawn by chance, for whom.
type Entry = (Time, u64, Port);

/// Who takes a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The fabric that it is for.
    Host,
    /// The network, in its place.
    Network,
}
