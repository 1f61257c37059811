//! Frames arrive: requests are carried out, answers end operations, messages and immediates end receives.

use super::{
    exchange::Exchange,
    node::{Arrival, Node, State},
    wire::{Answer, Frame, Parcel, Port, Request},
};
use crate::{
    Error, Kind, Rank, Result,
    auth::Secret,
    fabric::{Event, LinkId, Outcome},
};

impl Exchange {
    pub fn deliver(&mut self, port: Port, parcel: Parcel) {
        let end = self.end_mut(port);
        if parcel.number < end.expected {
            // it came before
            return;
        }
        end.expected = parcel.number + 1;
        let (node, link) = (end.node, end.link.map(LinkId));
        match (parcel.frame, link) {
            (Frame::Hello { rank, incarnation, secret }, None) => self.on_hello(port, rank, incarnation, &secret),
            (frame, Some(link)) if self.nodes[node].known(link).is_ok() => self.on_frame(node, link, port, frame),
            // for a link that has ended
            _ => {}
        }
    }

    fn on_hello(&mut self, port: Port, rank: Rank, incarnation: u64, secret: &Secret) {
        let node = &mut self.nodes[self.wires[port.wire][port.side].node];
        if node.identity.secret != *secret {
            return self.send(port.other(), Frame::Refused(Kind::Unauthenticated));
        }
        let link = node.add_link(port, rank, State::Up);
        node.events.push_back(Event::Up { link, peer: rank, incarnation });
        let (rank, incarnation) = (node.identity.rank, node.identity.incarnation);
        self.end_mut(port).link = Some(link.0);
        self.send(port.other(), Frame::Welcome { rank, incarnation });
    }

    fn on_frame(&mut self, at: usize, id: LinkId, port: Port, frame: Frame) {
        let node = &mut self.nodes[at];
        match frame {
            Frame::Hello { .. } => {}
            Frame::Welcome { rank, incarnation } => {
                if let Ok(link) = node.known(id) {
                    link.state = State::Up;
                }
                node.events.push_back(Event::Up { link: id, peer: rank, incarnation });
            }
            Frame::Refused(kind) | Frame::End(kind) => node.fail(id, kind),
            Frame::Credit(count) => {
                if let Ok(link) = node.known(id) {
                    link.credits += count;
                }
            }
            Frame::Message(data) => node.receive(id, Arrival::Message(data)),
            Frame::Answer { number, answer } => node.on_answer(id, number, answer),
            Frame::Request { number, request } => {
                let answer = node.on_request(id, request);
                self.send(port.other(), Frame::Answer { number, answer });
            }
        }
    }
}

impl Node {
    fn on_request(&mut self, id: LinkId, request: Request) -> Result<Answer, Kind> {
        let region = match request.needs() {
            None => return Ok(Answer::Done),
            Some((aim, access)) => self.granted(id, aim, access),
        };
        let result = region.and_then(|region| self.carry_out(region, &request));
        if let Request::Write { data, immediate: Some(value), .. } = request {
            match result {
                Ok(_) => self.receive(id, Arrival::Immediate { value, bytes: data.len() as u64 }),
                // the receive that it came for is free again
                Err(_) => self.give_back_credit(id),
            }
        }
        result
    }

    fn give_back_credit(&mut self, id: LinkId) {
        let Ok(link) = self.link(id) else { return };
        if link.debt > 0 {
            link.debt -= 1;
        } else {
            link.untold += 1;
        }
    }

    fn on_answer(&mut self, id: LinkId, number: u64, answer: Result<Answer, Kind>) {
        let Ok(link) = self.link(id) else { return };
        let peer = link.peer;
        let found = link.pending.iter().position(|pending| pending.number == number);
        // one that was cancelled is not there any more
        let Some(pending) = found.and_then(|at| link.pending.remove(at)) else { return };
        let result = answer.map_err(|kind| Error::new(kind).with_rank(peer)).and_then(|answer| match answer {
            Answer::Done => Ok(Outcome::Done),
            Answer::Before(before) => Ok(Outcome::Atomic { before }),
            Answer::Data(data) => {
                let local = pending.local.ok_or(Error::new(Kind::Bug))?;
                self.regions.write(local.region, local.offset, &data).map(|()| Outcome::Done)
            }
        });
        self.end(id, pending.token, pending.local, result);
    }

    /// Something for the next receive, or for the one after it if that was cancelled.
    pub fn receive(&mut self, id: LinkId, arrival: Arrival) {
        let Ok(link) = self.link(id) else { return };
        let peer = link.peer;
        let Some(receive) = link.receives.pop_front() else { return link.early.push_back(arrival) };
        let local = receive.local;
        let result = match arrival {
            Arrival::Immediate { value, bytes } => Ok(Outcome::Received { bytes, immediate: Some(value) }),
            Arrival::Message(data) if data.len() as u64 > local.bytes => {
                Err(Error::new(Kind::AccessDenied).with_rank(peer))
            }
            Arrival::Message(data) => self
                .regions
                .write(local.region, local.offset, &data)
                .map(|()| Outcome::Received { bytes: data.len() as u64, immediate: None }),
        };
        self.end(id, receive.token, Some(local), result);
    }
}
