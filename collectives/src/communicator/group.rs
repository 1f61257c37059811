//! Messages between two ranks, alone or several at once.

use core::marker::PhantomData;
use std::sync::Arc;

use vervain_transport::{Error, Kind, Rank, Result};

use super::{Begun, Call, Elements, ElementsMut, Inner};
use crate::buffer::Memory;
use crate::call::{Descriptor, message_number};
use crate::executor::{Binding, EnterRecord, Geometry, Operation, Task, payload};
use crate::plan::{Buffer, Place, Program, Step};
use crate::reduce::{Kernel, Write};
use crate::{Collective, DataType, Element};

/// The lane of messages between two ranks.
const LANE: usize = 1;

/// One side of a message.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    sends: bool,
    peer: Rank,
    datatype: DataType,
    count: usize,
    memory: Memory,
}

impl Message {
    /// The message of a `Send` or `Recv` call.
    pub fn of(call: &Call) -> Result<Self> {
        let sends = call.collective == Collective::Send;
        let peer = call.root.ok_or(Error::new(Kind::InvalidArgument))?;
        let bytes = call.count.checked_mul(call.datatype.bytes()).filter(|&bytes| isize::try_from(bytes).is_ok());
        let bytes = bytes.ok_or(Error::new(Kind::SizeOverflow))?;
        let start = if sends { call.input } else { call.output.cast_const() };
        let memory = Memory::of_call(start, bytes).ok_or(Error::new(Kind::InvalidArgument))?;
        Ok(Self { sends, peer, datatype: call.datatype, count: call.count, memory })
    }
}

/// Messages that go at the same time.
#[derive(Debug, Default)]
pub struct Group<'data> {
    messages: Vec<Message>,
    _data: PhantomData<&'data mut ()>,
}

impl<'data> Group<'data> {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Send `data` to `peer`.
    pub fn send<'a: 'data, T: Element>(&mut self, data: &'a (impl Elements<T> + ?Sized), peer: Rank) {
        let data = data.elements();
        self.push(true, peer, T::TYPE, data.len(), data.as_ptr().cast());
    }

    /// Receive `data` from `peer`.
    pub fn recv<'a: 'data, T: Element>(&mut self, data: &'a mut (impl ElementsMut<T> + ?Sized), peer: Rank) {
        let data = data.elements_mut();
        self.push(false, peer, T::TYPE, data.len(), data.as_mut_ptr().cast_const().cast());
    }

    fn push(&mut self, sends: bool, peer: Rank, datatype: DataType, count: usize, start: *const u8) {
        let memory = Memory::of_call(start, count * datatype.bytes()).expect("a slice is never at address 0");
        self.messages.push(Message { sends, peer, datatype, count, memory });
    }
}

impl Inner {
    /// Run messages to their end.
    pub(super) fn run_messages(&mut self, messages: &[Message], rank: Rank) -> Result<()> {
        if matches!(self.begun, Some(Begun::Messages(_))) {
            return Err(Kind::InvalidUsage.into());
        }
        let mut operation = self.messages_operation(messages, rank)?;
        self.engine.run(&mut operation)
    }

    /// An operation with a task for every message.
    pub(super) fn messages_operation(&mut self, messages: &[Message], rank: Rank) -> Result<Operation> {
        if messages.iter().any(|message| message.peer.index() >= self.messages.len()) {
            return Err(Kind::InvalidArgument.into());
        }
        copy_to_ourselves(messages, rank)?;
        let mut operation = Operation::new();
        let mut order: Vec<(bool, Rank)> = Vec::with_capacity(messages.len());
        for message in messages.iter().filter(|message| message.peer != rank) {
            let key = (message.sends, message.peer);
            let after = order.iter().rposition(|&other| other == key);
            order.push(key);
            let (task, descriptor) = self.task(message, rank);
            self.engine.control().record(&descriptor);
            operation.push(task, descriptor, after, LANE, &[message.peer]);
        }
        Ok(operation)
    }

    fn task(&mut self, message: &Message, rank: Rank) -> (Task, Descriptor) {
        let (sent, received) = &mut self.messages[message.peer.index()];
        let number = if message.sends { sent } else { received };
        let (from, to) = if message.sends { (rank, message.peer) } else { (message.peer, rank) };
        let descriptor = Descriptor {
            operation: message_number(from, to, *number),
            collective: Collective::Send,
            count: message.count as u64,
            datatype: message.datatype,
            op: None,
            root: Some(to),
            registered: false,
            tuning: 0,
        };
        *number += 1;
        let program = Arc::new(program(message, rank, self.messages.len() as u32));
        let bytes = message.memory.bytes();
        let protocol = self.message_protocol(bytes);
        let binding = Binding {
            hash: descriptor.hash(),
            input: message.memory,
            output: message.memory,
            scratch: Memory::EMPTY,
            input_region: None,
            output_region: None,
            record: EnterRecord::default(),
            element: message.datatype.bytes(),
            kernel: Kernel::select(message.datatype, None, 1),
            scaled: false,
            geometry: Geometry::of_message(bytes, payload(protocol, self.maps())),
            protocol,
            to_all: false,
            write: Write::Cached,
        };
        (Task::new(LANE, program, 0, binding), descriptor)
    }
}

fn program(message: &Message, rank: Rank, ranks: u32) -> Program {
    let local = |buffer| vec![Place::Local { buffer, chunk: 0 }];
    let connection = vec![Place::Connection { peer: message.peer }];
    let (sources, destinations) =
        if message.sends { (local(Buffer::Input), connection) } else { (connection, local(Buffer::Output)) };
    Program {
        collective: if message.sends { Collective::Send } else { Collective::Recv },
        rank,
        ranks,
        root: Some(message.peer),
        chunks: 1,
        scratch: 0,
        lanes: vec![vec![Step::Move { sources, destinations, complete: false }]],
    }
}

/// Messages of a rank to itself are copied, in order; every one needs its other side in the group.
fn copy_to_ourselves(messages: &[Message], rank: Rank) -> Result<()> {
    let ours = |sends| messages.iter().filter(move |message| message.peer == rank && message.sends == sends);
    if ours(true).count() != ours(false).count() {
        return Err(Error::new(Kind::InvalidUsage).with_rank(rank));
    }
    for (from, to) in ours(true).zip(ours(false)) {
        if (from.count, from.datatype) != (to.count, to.datatype) {
            return Err(Error::new(Kind::Mismatch).with_rank(rank));
        }
        to.memory.copy_whole(from.memory);
    }
    Ok(())
}
