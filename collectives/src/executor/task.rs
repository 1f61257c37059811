//! One lane of one operation on its way: a program counter, and what its present step has reached.

mod ready;

use std::sync::Arc;

use vervain_transport::fabric::{RegionId, Span};
use vervain_transport::{Error, Kind, Rank, Result};

use super::connection::{Connection, EnterRecord, FOREIGN};
use super::geometry::Geometry;
use super::links::Links;
use super::staging::Staging;
use crate::buffer::{Memory, Reduction};
use crate::communicator::Protocol;
use crate::plan::{Buffer, Place, Program, Step};
use crate::reduce::{Kernel, Write};

/// What an operation works on: everything that its tasks share.
#[derive(Clone, Debug)]
pub struct Binding {
    /// Hash of the call's descriptor.
    pub hash: u64,
    /// What the caller gives.
    pub input: Memory,
    /// What the caller gets.
    pub output: Memory,
    /// Spans of `input`, if messages are sent straight from it.
    pub input_region: Option<RegionId>,
    /// Spans of `output`, if messages are sent straight from it, or peers' plain memory is read straight into it.
    pub output_region: Option<RegionId>,
    /// The executor's own memory for this call.
    pub scratch: Memory,
    /// What we tell peers at `Enter`.
    pub record: EnterRecord,
    /// Size of an element.
    pub element: usize,
    /// How elements are combined.
    pub kernel: Kernel,
    /// Contributions are scaled as they are read (float average).
    pub scaled: bool,
    /// How the message is cut.
    pub geometry: Geometry,
    /// How messages travel.
    pub protocol: Protocol,
    /// Messages go to everybody at once, by the boards.
    pub to_all: bool,
    /// How results are written that nobody reads soon.
    pub write: Write,
}

/// How far a step got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Everything is done.
    Done,
    /// Something happened; there is more.
    Moved,
    /// Nothing can happen until a peer does something.
    Stuck,
}

/// Whom a stuck task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Who must act.
    pub peer: Rank,
    /// What it owes us.
    pub what: &'static str,
}

/// Bytes of one piece of a Move between directly reachable buffers: bounds how long a step runs.
const PIECE: usize = 1 << 20;

/// What the steps of a task need besides the task.
#[derive(Debug)]
pub struct Context<'a> {
    /// Connections to the peers.
    pub links: Option<&'a mut Links>,
    /// Memory between unpacking and reducing.
    pub staging: &'a Staging,
    /// Operands of the kernel call.
    pub reduction: &'a mut Reduction,
}

impl Context<'_> {
    fn links(&mut self) -> Result<&mut Links> {
        self.links.as_deref_mut().ok_or(Error::new(Kind::Bug))
    }

    #[inline]
    fn connection(&mut self, lane: usize, peer: Rank) -> Result<&mut Connection> {
        self.links()?.connection(lane, peer)
    }
}

/// One lane of one operation.
#[derive(Debug)]
pub struct Task {
    /// Which lane of the communicator.
    lane: usize,
    /// Taken out while it runs.
    program: Option<Arc<Program>>,
    rank: Rank,
    ranks: u32,
    /// Which lane of the program.
    steps: usize,
    binding: Binding,
    round: usize,
    counter: usize,
    /// Bytes of the present Move that are done, if it goes by pieces.
    cursor: usize,
    /// Reads of the present piece have been posted.
    reading: bool,
    /// Lines of each source of the present Move that have been unpacked; `usize::MAX` when all have.
    lines: Vec<usize>,
    /// Where the peers' buffers are, since `Enter`.
    records: Vec<Option<EnterRecord>>,
    /// Who has left, since `Leave`; empty before.
    left: Vec<bool>,
    waiting: Option<Waiting>,
}

impl Task {
    /// A task at its beginning.
    pub fn new(lane: usize, program: Arc<Program>, steps: usize, binding: Binding) -> Self {
        let most = program.lanes[steps].iter().map(Step::sources).max().unwrap_or(0);
        let (rank, ranks) = (program.rank, program.ranks);
        let direct = if program.is_direct() { ranks as usize } else { 0 };
        Self {
            lane,
            steps,
            binding,
            round: 0,
            counter: 0,
            cursor: 0,
            reading: false,
            lines: vec![0; most],
            records: vec![None; direct],
            left: Vec::with_capacity(direct),
            waiting: None,
            program: Some(program),
            rank,
            ranks,
        }
    }

    /// The same lane again, for another call with the same program and geometry.
    pub fn restart(&mut self, change: impl FnOnce(&mut Binding)) {
        change(&mut self.binding);
        (self.round, self.counter, self.cursor, self.reading) = (0, 0, 0, false);
        self.lines.fill(0);
        self.left.clear();
        self.waiting = None;
    }

    /// What it works on.
    pub fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Whom it waits for, if it is stuck.
    pub fn waiting(&self) -> Option<Waiting> {
        self.waiting
    }

    /// Go on until the end, until stuck, or for about [`PIECE`] bytes.
    pub fn advance(&mut self, cx: &mut Context<'_>) -> Result<Advance> {
        let program = self.program.take().ok_or(Error::new(Kind::Bug))?;
        let result = self.run_steps(cx, &program.lanes[self.steps]);
        self.program = Some(program);
        result
    }

    fn run_steps(&mut self, cx: &mut Context<'_>, steps: &[Step]) -> Result<Advance> {
        let mut moved = false;
        while self.round < self.binding.geometry.rounds() {
            let Some(step) = steps.get(self.counter) else {
                (self.round, self.counter) = (self.round + 1, 0);
                continue;
            };
            match self.step(cx, step)? {
                Advance::Done => {
                    self.counter += 1;
                    moved = true;
                }
                Advance::Moved => return Ok(Advance::Moved),
                Advance::Stuck => return Ok(if moved { Advance::Moved } else { Advance::Stuck }),
            }
        }
        Ok(Advance::Done)
    }

    #[inline]
    fn step(&mut self, cx: &mut Context<'_>, step: &Step) -> Result<Advance> {
        match step {
            Step::Move { destinations, .. } if self.is_shown_already(destinations) => Ok(Advance::Done),
            Step::Move { sources, destinations, complete } => self.move_chunk(cx, sources, destinations, *complete),
            Step::Enter => self.enter(cx),
            Step::Leave => self.leave(cx),
            Step::Signal { peer } => {
                cx.connection(self.lane, *peer)?.signal();
                Ok(Advance::Done)
            }
            Step::Wait { peer } => {
                let seen = cx.connection(self.lane, *peer)?.signalled()?;
                Ok(if seen { Advance::Done } else { self.stuck(*peer, "a signal") })
            }
        }
    }

    /// Whether this is a send to one rank of what all have seen with the send to the next rank, which plans for everybody begin with.
    #[inline]
    fn is_shown_already(&self, destinations: &[Place]) -> bool {
        let next = Rank::new((self.rank.get() + 1) % self.ranks);
        self.binding.to_all && matches!(destinations, [Place::Connection { peer }] if *peer != next)
    }

    fn enter(&mut self, cx: &mut Context<'_>) -> Result<Advance> {
        self.records.fill(None);
        for peer in self.others() {
            cx.connection(self.lane, peer)?.enter(&self.binding.record);
        }
        Ok(Advance::Done)
    }

    fn leave(&mut self, cx: &mut Context<'_>) -> Result<Advance> {
        if self.left.is_empty() {
            self.left.resize(self.ranks as usize, false);
            for peer in self.others() {
                cx.connection(self.lane, peer)?.leave();
            }
        }
        for peer in self.others() {
            if self.left[peer.index()] {
                continue;
            }
            // Its record is used up even if we did not touch its buffers: it also proves that it is in the same operation.
            if self.record(cx, peer)?.is_none() || !cx.connection(self.lane, peer)?.peer_left()? {
                return Ok(self.stuck(peer, "it to leave"));
            }
            self.left[peer.index()] = true;
        }
        self.left.clear();
        Ok(Advance::Done)
    }

    /// Where `peer`'s buffers are, once it told.
    #[inline]
    fn record(&mut self, cx: &mut Context<'_>, peer: Rank) -> Result<Option<EnterRecord>> {
        if let Some(record) = self.records[peer.index()] {
            return Ok(Some(record));
        }
        let connection = cx.connection(self.lane, peer)?;
        let Some(record) = connection.peer_record()? else { return Ok(None) };
        if record.hash != self.binding.hash {
            return Err(Error::new(Kind::Mismatch).with_rank(peer));
        }
        connection.entered();
        self.records[peer.index()] = Some(record);
        Ok(Some(record))
    }

    fn move_chunk(
        &mut self,
        cx: &mut Context<'_>,
        sources: &[Place],
        destinations: &[Place],
        complete: bool,
    ) -> Result<Advance> {
        let mut places = sources.iter().chain(destinations);
        let by_message = places.clone().any(|place| matches!(place, Place::Connection { .. }));
        let whole = places.find_map(|place| self.chunk(place)).ok_or(Error::new(Kind::Bug))?.1;
        let piece = if by_message { whole } else { self.piece(cx, sources, destinations).min(whole - self.cursor) };
        for place in destinations {
            if !self.destination_ready(cx, place)? {
                return Ok(Advance::Stuck);
            }
        }
        if !self.sources_ready(cx, sources, destinations, piece)? {
            return Ok(Advance::Stuck);
        }
        self.run(cx, sources, destinations, piece, complete)?;
        self.reading = false;
        self.lines[..sources.len()].fill(0);
        self.cursor += piece;
        if self.cursor < whole {
            return Ok(Advance::Moved);
        }
        self.cursor = 0;
        Ok(if piece < PIECE / 4 { Advance::Done } else { self.next_and_yield() })
    }

    /// The step is done, but so much was done that the caller should look around.
    fn next_and_yield(&mut self) -> Advance {
        self.counter += 1;
        Advance::Moved
    }

    fn run(
        &mut self,
        cx: &mut Context<'_>,
        sources: &[Place],
        destinations: &[Place],
        piece: usize,
        complete: bool,
    ) -> Result<()> {
        let by_lines = self.binding.protocol != Protocol::Simple;
        let straight = self.is_straight(sources, destinations);
        let already = straight && (self.reading || (by_lines && matches!(sources[0], Place::Connection { .. })));
        let forward = by_lines && sources.len() == 1 && !self.is_raw(&sources[0]) && all_connections(destinations);
        if !already {
            let from = self.span_to_send(sources, destinations, piece);
            let result = if forward {
                self.source(cx, 0, &sources[0], piece)?
            } else if from.is_some() && all_connections(destinations) {
                Memory::EMPTY
            } else {
                self.reduce(cx, sources, destinations, piece, complete, from.is_some())?
            };
            self.send(cx, destinations, piece, result, from)?;
        }
        for place in sources {
            match *place {
                Place::Connection { peer } if self.binding.to_all => {
                    cx.links()?.boards()?.consume(self.binding.protocol, peer)?;
                }
                Place::Connection { peer } => cx.connection(self.lane, peer)?.consume(self.binding.protocol),
                _ => {}
            }
        }
        Ok(())
    }

    /// The span of a registered buffer that holds what a Move sends: its only source, or its own destination.
    fn span_to_send(&self, sources: &[Place], destinations: &[Place], piece: usize) -> Option<Span> {
        let (Protocol::Simple, Some(input), Some(output)) =
            (self.binding.protocol, self.binding.input_region, self.binding.output_region)
        else {
            return None;
        };
        let place = match sources {
            [place @ Place::Local { .. }] if !self.is_raw(place) && all_connections(destinations) => place,
            _ => destinations.iter().find(|place| matches!(place, Place::Local { buffer: Buffer::Output, .. }))?,
        };
        let region = match place {
            Place::Local { buffer: Buffer::Input, .. } => input,
            Place::Local { buffer: Buffer::Output, .. } => output,
            _ => return None,
        };
        let (start, _) = self.chunk(place)?;
        Some(Span { region, offset: (start + self.cursor) as u64, bytes: piece as u64 })
    }

    /// Run the kernel. Returns where the result lies for line messages. `sent` says that messages are sent from our own
    /// destination, so that their slots need not be filled here.
    fn reduce(
        &mut self,
        cx: &mut Context<'_>,
        sources: &[Place],
        destinations: &[Place],
        piece: usize,
        complete: bool,
        sent: bool,
    ) -> Result<Memory> {
        cx.reduction.begin(piece);
        for (index, place) in sources.iter().enumerate() {
            let memory = self.source(cx, index, place, piece)?;
            let raw = self.is_raw(place);
            cx.reduction.source(memory, raw);
        }
        let by_lines = self.binding.protocol != Protocol::Simple;
        let mut result = None;
        let mut messages = false;
        for place in destinations {
            let memory = match *place {
                Place::Connection { .. } if by_lines || sent => {
                    messages = true;
                    continue;
                }
                Place::Connection { peer } => {
                    messages = true;
                    let connection = cx.connection(self.lane, peer)?;
                    let slot = connection.free_slot(self.binding.protocol)?.ok_or(Error::new(Kind::Bug))?;
                    connection.slot_memory(slot, piece)
                }
                Place::Direct { rank, buffer, .. } if rank != self.rank => {
                    let record = self.records[rank.index()].ok_or(Error::new(Kind::Bug))?;
                    let view = self.view(cx, rank, buffer, &record);
                    let view = view.ok_or(Error::new(Kind::Corrupt).with_rank(rank))?;
                    self.within(view, place, piece).ok_or(Error::new(Kind::Corrupt).with_rank(rank))?
                }
                _ => {
                    let memory = self.local(place, piece)?;
                    result = Some(memory);
                    memory
                }
            };
            cx.reduction.destination(memory);
        }
        let result = match result {
            Some(memory) => memory,
            None if by_lines && messages => {
                let memory = cx.staging.result(piece);
                cx.reduction.destination(memory);
                memory
            }
            None => Memory::EMPTY,
        };
        let write = if messages { Write::Cached } else { self.binding.write };
        if piece > 0 {
            cx.reduction.run(&self.binding.kernel, self.binding.element, complete, write);
        }
        Ok(result)
    }

    /// Publish the messages of a Move: filled slots, or the lines of `result`.
    ///
    /// `from` is where the bytes already lie in a registered buffer of ours; the slot is then filled from there by the fabric.
    fn send(
        &mut self,
        cx: &mut Context<'_>,
        destinations: &[Place],
        piece: usize,
        result: Memory,
        from: Option<Span>,
    ) -> Result<()> {
        let (protocol, hash) = (self.binding.protocol, self.binding.hash);
        if self.binding.to_all && destinations.iter().any(|place| matches!(place, Place::Connection { .. })) {
            let links = cx.links()?;
            let slot = links.boards()?.free_slot(protocol)?.map_err(|_| Error::new(Kind::Bug))?;
            links.boards()?.show(protocol, slot, hash, result);
            links.ring_all();
            return Ok(());
        }
        for place in destinations {
            let Place::Connection { peer } = *place else { continue };
            let connection = cx.connection(self.lane, peer)?;
            let slot = connection.free_slot(protocol)?.ok_or(Error::new(Kind::Bug))?;
            match (protocol, from) {
                (Protocol::Simple, Some(span)) => connection.send_from(slot, hash, span),
                (Protocol::Simple, None) => connection.send_filled(slot, hash, piece),
                _ => connection.send_lines(protocol, slot, hash, result),
            }
            connection.ring();
        }
        Ok(())
    }

    /// Where the bytes of a source are, once it is ready.
    fn source(&self, cx: &mut Context<'_>, index: usize, place: &Place, piece: usize) -> Result<Memory> {
        match *place {
            Place::Connection { peer } if self.binding.protocol == Protocol::Simple => {
                cx.connection(self.lane, peer)?.payload(piece)
            }
            Place::Connection { .. } => Ok(cx.staging.message(index, piece)),
            Place::Direct { rank, buffer, .. } if rank != self.rank => {
                let record = self.records[rank.index()].ok_or(Error::new(Kind::Bug))?;
                match self.view(cx, rank, buffer, &record) {
                    Some(view) => self.within(view, place, piece).ok_or(Error::new(Kind::Corrupt).with_rank(rank)),
                    None => Ok(cx.staging.pull(index, piece)),
                }
            }
            _ => self.local(place, piece),
        }
    }

    /// The present piece of a chunk in a buffer that a peer announced: its bounds are the peer's word, so they are checked.
    fn within(&self, buffer: Memory, place: &Place, piece: usize) -> Option<Memory> {
        let start = self.chunk(place)?.0 + self.cursor;
        (start.checked_add(piece)? <= buffer.bytes()).then(|| buffer.slice(start, piece))
    }

    /// The present piece of a chunk of ours.
    #[inline]
    fn local(&self, place: &Place, piece: usize) -> Result<Memory> {
        let (Place::Local { buffer, .. } | Place::Direct { buffer, .. }) = *place else {
            return Err(Kind::Bug.into());
        };
        let (start, _) = self.chunk(place).ok_or(Error::new(Kind::Bug))?;
        let memory = match buffer {
            Buffer::Input => self.binding.input,
            Buffer::Output => self.binding.output,
            Buffer::Scratch => self.binding.scratch,
        };
        Ok(memory.slice(start + self.cursor, piece))
    }

    /// Offset and length of the chunk of a place that has one.
    #[inline]
    fn chunk(&self, place: &Place) -> Option<(usize, usize)> {
        match *place {
            Place::Local { buffer: Buffer::Scratch, chunk } => Some(self.binding.geometry.scratch(self.round, chunk)),
            Place::Local { chunk, .. } | Place::Direct { chunk, .. } => {
                Some(self.binding.geometry.chunk(self.round, chunk))
            }
            Place::Connection { .. } => None,
        }
    }

    #[inline]
    fn is_raw(&self, place: &Place) -> bool {
        self.binding.scaled
            && matches!(place, Place::Local { buffer: Buffer::Input, .. } | Place::Direct { buffer: Buffer::Input, .. })
    }

    fn other(&self, place: &Place) -> Option<Rank> {
        match *place {
            Place::Direct { rank, .. } if rank != self.rank => Some(rank),
            Place::Connection { peer } => Some(peer),
            _ => None,
        }
    }

    fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let rank = self.rank;
        (0..self.ranks).map(Rank::new).filter(move |&peer| peer != rank)
    }

    fn stuck(&mut self, peer: Rank, what: &'static str) -> Advance {
        self.waiting = Some(Waiting { peer, what });
        Advance::Stuck
    }

    /// `false`, and remember why.
    fn not_ready(&mut self, peer: Rank, what: &'static str) -> bool {
        self.waiting = Some(Waiting { peer, what });
        false
    }
}

impl EnterRecord {
    /// Registration and offset of one of the buffers.
    fn of(&self, buffer: Buffer) -> (u32, u64) {
        match buffer {
            Buffer::Input => (self.input_region, self.input),
            _ => (self.output_region, self.output),
        }
    }
}

impl Step {
    /// How many sources it combines.
    fn sources(&self) -> usize {
        match self {
            Step::Move { sources, .. } => sources.len(),
            _ => 0,
        }
    }
}

fn all_connections(places: &[Place]) -> bool {
    places.iter().all(|place| matches!(place, Place::Connection { .. }))
}
