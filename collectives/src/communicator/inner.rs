//! What a call changes: the operations and programs it remembers, and how they are chosen and bound to buffers.

use core::task::Poll;
use std::sync::Arc;

use vervain_transport::fabric::RegionId;
use vervain_transport::{Error, Kind, Rank, Result, Time};

use super::prepare::{self, Buffers, How, Prepared, Shape};
use super::select::{self, Choice, Situation};
use super::{Begun, Call, Inner, Protocol, SHAPES, group};
use crate::buffer::{Keep, Memory};
use crate::executor::{EnterRecord, FOREIGN, Links, Until};
use crate::plan::{Algorithm, Needs, Plan, Program, builders};
use crate::{Collective, DataType, ReduceOp};

impl Inner {
    /// Find or make the operation for a call, and bind it to its buffers.
    pub(super) fn prepare(&mut self, call: &Call, rank: Rank, ranks: u32) -> Result<usize> {
        let shape = Shape::of(call, ranks)?;
        let buffers = Buffers::of(call, &shape, rank, ranks)?;
        let index = match self.find(&shape) {
            Some(index) => index,
            None => {
                let choice = self.choose(&shape, ranks)?;
                let (program, plan) = self.program(&shape, choice.algorithm, rank, ranks)?;
                let pulls = choice.algorithm.needs() == Needs::ReadablePeers;
                let mapped = self.maps();
                let to_all = ranks > 2 && mapped && choice.shows_to_all(shape.collective);
                let returns = matches!(choice.algorithm, Algorithm::TwoShot | Algorithm::Ring);
                let how = How { protocol: choice.protocol, mapped, to_all, pulls, returns };
                self.remember(Prepared::new(shape, &program, plan, how, buffers))
            }
        };
        self.bind(index, buffers)?;
        Ok(index)
    }

    pub(super) fn run_custom(
        &mut self,
        call: &Call,
        program: &Arc<Program>,
        plan: &Plan,
        rank: Rank,
        ranks: u32,
    ) -> Result<()> {
        let hash = plan.hash() | 1;
        let shape = Shape { plan: hash, ..Shape::of(call, ranks)? };
        let buffers = Buffers::of(call, &shape, rank, ranks)?;
        let mapped = shape.registered && self.maps();
        if program.is_direct() && !mapped && ranks > 1 {
            return Err(Kind::Unsupported.into());
        }
        let index = match self.find(&shape) {
            Some(index) => index,
            None => {
                let protocol = self.message_protocol(shape.block() / program.chunks.max(1) as usize);
                let how = How::by_messages(protocol, self.maps());
                self.remember(Prepared::new(shape, program, hash, how, buffers))
            }
        };
        self.bind(index, buffers)?;
        let result = self.engine.run(&mut self.prepared[index].operation);
        self.after(index);
        result
    }

    #[inline]
    fn find(&mut self, shape: &Shape) -> Option<usize> {
        if self.prepared.get(self.last).is_some_and(|prepared| prepared.shape == *shape) {
            return Some(self.last);
        }
        self.last = self.prepared.iter().position(|prepared| prepared.shape == *shape)?;
        Some(self.last)
    }

    /// Keep an operation, in place of an old one if there are many.
    fn remember(&mut self, prepared: Prepared) -> usize {
        if self.prepared.len() < SHAPES {
            self.prepared.push(prepared);
            self.last = self.prepared.len() - 1;
        } else {
            self.last = (self.last + 1) % SHAPES;
            self.prepared[self.last] = prepared;
        }
        self.last
    }

    pub(super) fn bind(&mut self, index: usize, buffers: Buffers) -> Result<()> {
        let number = self.operation;
        let shape = self.prepared[index].shape;
        let record = if shape.registered { self.record(&buffers)? } else { prepare::foreign(&buffers) };
        let wanted = self.prepared[index].wanted_spans(&buffers);
        let regions = match self.engine.links() {
            Some(links) => (span_of(links, buffers.input, wanted.0)?, span_of(links, buffers.output, wanted.1)?),
            None => (None, None),
        };
        let prepared = &mut self.prepared[index];
        prepared.bind(number, buffers, record, regions);
        self.operation += 1;
        self.engine.control().record(prepared.operation.descriptor());
        Ok(())
    }

    /// The operation has ended, well or not.
    pub(super) fn after(&mut self, index: usize) {
        let Some(binding) = self.prepared[index].operation.binding() else { return };
        let regions = [binding.input_region, binding.output_region];
        if let Some(links) = self.engine.links() {
            for region in regions.into_iter().flatten() {
                // Only a region in use is refused: then the operation failed and the communicator with it.
                let _ = links.fabric().release(region);
            }
        }
    }

    /// Where registered buffers lie in the registrations.
    fn record(&mut self, buffers: &Buffers) -> Result<EnterRecord> {
        let (input_region, input) = self.find_registration(buffers.input)?;
        let (output_region, output) = self.find_registration(buffers.output)?;
        Ok(EnterRecord { hash: 0, input_region, output_region, input, output })
    }

    /// Number of and offset in the registration that a buffer lies in.
    fn find_registration(&mut self, memory: Memory) -> Result<(u32, u64)> {
        if memory.bytes() == 0 {
            return Ok((FOREIGN, 0));
        }
        let found = match self.engine.links() {
            Some(links) => links.locate(memory),
            None => self.alone.iter().zip(0..).find_map(|((part, _), number)| Some((number, memory.offset_in(*part)?))),
        };
        found.ok_or(Error::new(Kind::InvalidArgument))
    }

    pub(super) fn maps(&mut self) -> bool {
        self.engine.links().is_some_and(|links| links.fabric().capabilities().mapped)
    }

    fn situation(&mut self, shape: &Shape, ranks: u32) -> Situation {
        let mapped = shape.registered && self.maps();
        let (backend, can_pull) = match self.engine.links() {
            Some(links) => (Some(links.fabric().backend()), links.fabric().capabilities().pull),
            None => (None, false),
        };
        let pull = if can_pull { self.pull } else { Some(false) };
        Situation { collective: shape.collective, block: shape.block(), ranks, backend, mapped, pull }
    }

    /// How a message of this size travels between two ranks.
    pub(super) fn message_protocol(&mut self, bytes: usize) -> Protocol {
        let backend = self.engine.links().map(|links| links.fabric().backend());
        self.config.protocol.unwrap_or_else(|| select::protocol(backend, 2, bytes))
    }

    fn choose(&mut self, shape: &Shape, ranks: u32) -> Result<Choice> {
        let mut situation = self.situation(shape, ranks);
        let asked = self.config.algorithm == Some(Algorithm::Pull) && situation.pull.is_none();
        if ranks > 1 && (asked || self.config.algorithm.is_none() && situation.asks_for_pull()) {
            self.pull = Some(self.agree_on_pull(ranks)?);
            situation = self.situation(shape, ranks);
        }
        let mut choice = situation.choose();
        let overridden = ranks > 1 && shape.collective != Collective::Barrier;
        if let Some(algorithm) = self.config.algorithm.filter(|_| overridden) {
            choice = situation.with_algorithm(algorithm)?;
        }
        if let Some(protocol) = self.config.protocol {
            choice.protocol = protocol;
        }
        Ok(choice)
    }

    /// Whether all ranks can read each other's memory: everybody's own view, combined by the slots.
    fn agree_on_pull(&mut self, ranks: u32) -> Result<bool> {
        let mut mine = [1u8];
        let rank = self.engine.rank();
        self.engine.drive(&mut Until::new(Links::link_all))?;
        if let Some(links) = self.engine.links() {
            let others = (0..ranks).map(Rank::new).filter(|&peer| peer != rank);
            mine[0] = u8::from(others.into_iter().all(|peer| links.foreign(peer).is_some()));
        }
        let mut all = [0u8];
        let call = Call {
            collective: Collective::AllReduce,
            datatype: DataType::U8,
            op: Some(ReduceOp::Min),
            root: None,
            count: 1,
            input: mine.as_ptr(),
            output: all.as_mut_ptr(),
            registered: false,
        };
        let shape = Shape::of(&call, ranks)?;
        let buffers = Buffers::of(&call, &shape, rank, ranks)?;
        let (program, plan) = self.program(&shape, Algorithm::OneShot, rank, ranks)?;
        let mut prepared =
            Prepared::new(shape, &program, plan, How::by_messages(Protocol::Simple, self.maps()), buffers);
        prepared.bind(self.operation, buffers, prepare::foreign(&buffers), (None, None));
        self.operation += 1;
        self.engine.control().record(prepared.operation.descriptor());
        self.engine.run(&mut prepared.operation)?;
        Ok(all[0] == 1)
    }

    fn program(&mut self, shape: &Shape, algorithm: Algorithm, rank: Rank, ranks: u32) -> Result<(Arc<Program>, u64)> {
        let known =
            self.programs.iter().find(|known| (known.0, known.1, known.2) == (shape.collective, algorithm, shape.root));
        if let Some((_, _, _, program, hash)) = known {
            return Ok((Arc::clone(program), *hash));
        }
        let plan = builders::plan(shape.collective, algorithm).ok_or(Error::new(Kind::Unsupported))?;
        let program = Arc::new(plan.expand(rank, ranks, shape.root).map_err(|_| Error::new(Kind::Bug))?);
        let hash = plan.hash();
        self.programs.push((shape.collective, algorithm, shape.root, Arc::clone(&program), hash));
        Ok((program, hash))
    }

    /// A part of ours that all ranks register together: what goes wrong here ends the communicator for all of them.
    pub(super) fn register(&mut self, bytes: usize) -> Result<(Memory, Keep)> {
        self.try_register(bytes).map_err(|error| {
            let difference = self.engine.links().and_then(|links| links.difference());
            let what = difference.unwrap_or_else(|| format!("allocation of {bytes} bytes"));
            self.engine.broken(error, &what)
        })
    }

    fn try_register(&mut self, bytes: usize) -> Result<(Memory, Keep)> {
        let life = Arc::new(());
        let Some(_) = self.engine.links() else {
            let (owned, memory) = crate::buffer::owned(bytes);
            self.alone.retain(|(_, life)| life.strong_count() > 0);
            self.alone.push((memory, Arc::downgrade(&life)));
            return Ok((memory, Keep::new(life, Some(Arc::new(owned)))));
        };
        let mut made = None;
        self.engine.drive(&mut Until::new(|links: &mut Links| {
            if made.is_none() && links.link_all()? {
                made = Some(links.register(bytes.max(1), Arc::downgrade(&life))?);
            }
            made.map_or(Ok(false), |(number, _)| links.registered(number))
        }))?;
        let (number, region) = made.ok_or(Error::new(Kind::Bug))?;
        let links = self.engine.links().ok_or(Error::new(Kind::Bug))?;
        let memory = links.registration(number).ok_or(Error::new(Kind::Bug))?.memory;
        Ok((memory, Keep::new(life, links.keep(region))))
    }

    pub(super) fn begin(&mut self, call: &Call, rank: Rank, ranks: u32) -> Result<()> {
        if self.begun.is_some() {
            return Err(Kind::InvalidUsage.into());
        }
        self.begun = Some(match call.collective {
            Collective::Send | Collective::Recv => {
                Begun::Messages(self.messages_operation(&[group::Message::of(call)?], rank)?)
            }
            _ => Begun::Prepared(self.prepare(call, rank, ranks)?),
        });
        Ok(())
    }

    pub(super) fn step(&mut self, now: Time) -> Poll<Result<()>> {
        self.engine.step_mesh(now);
        let result = match &mut self.begun {
            None => return Poll::Ready(self.engine.check()),
            Some(Begun::Prepared(index)) => self.engine.step(&mut self.prepared[*index].operation, now),
            Some(Begun::Messages(operation)) => self.engine.step(operation, now),
        };
        let Some(result) = result else { return Poll::Pending };
        if let Some(Begun::Prepared(index)) = self.begun.take() {
            self.after(index);
        }
        Poll::Ready(result)
    }
}

/// Make a buffer of the caller usable in spans of the fabric, if that is wanted.
fn span_of(links: &mut Links, memory: Memory, wanted: bool) -> Result<Option<RegionId>> {
    if !wanted || memory.bytes() == 0 {
        return Ok(None);
    }
    crate::buffer::register(links.fabric(), memory).map(Some)
}
