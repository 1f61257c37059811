//! The three protocols over mapped memory: every payload size, every edge of the step counter, and peers that lie.
#![cfg(not(vervain_loom))]

use core::ptr::NonNull;

use vervain_transport::{
    Kind,
    proto::{self, ll::Rest},
    sync::{Mapped, Ordering::Relaxed, Words},
    wire::{
        self,
        connection::{Areas, Extent, Layout},
        credit,
        simple::Record,
    },
};

const SLOTS: u32 = 4;
const BYTES: usize = 600;
/// Where counters of 31, 32, 63 and 64 bits end (B01).
const STARTS: [u64; 6] = [0, (1 << 31) - 4, (1 << 32) - 4, (1 << 63) - 4, u64::MAX - 40, wire::ll::CLEAN_PERIOD - 4];

/// One connection: the receiver's area, with the head line of the other direction standing in for the sender's.
struct Connection {
    _memory: Vec<u64>,
    words: Mapped,
    areas: Areas,
}

impl Connection {
    fn new(start: u64) -> Self {
        let layout =
            Layout { slots: SLOTS, ll_bytes: BYTES as u64, ll128_bytes: BYTES as u64, simple_bytes: BYTES as u64 };
        let areas = layout.areas().unwrap();
        let mut memory = vec![0; areas.total() as usize / 8];
        // SAFETY: the vector lives as long as the connection and is not touched otherwise.
        let words = unsafe { Mapped::new(NonNull::from(&mut memory[..]).cast(), memory.len()) };
        let connection = Self { _memory: memory, words, areas };
        connection.part(areas.tail()).store(0, start, Relaxed);
        connection.part(areas.head()).store(0, start, Relaxed);
        connection
    }

    fn part(&self, extent: Extent) -> Mapped {
        extent.of(&self.words).unwrap()
    }

    fn head(&self) -> Mapped {
        self.part(self.areas.head())
    }
}

fn payload(step: u64) -> Vec<u8> {
    let sizes = [0, 1, 7, 8, 9, 15, 16, 17, 111, 112, 113, 119, 120, 121, 231, 232, 233, 352, 353, 599, 600];
    let bytes = sizes[(step % sizes.len() as u64) as usize];
    (0..bytes).map(|at| (step as u8).wrapping_mul(7).wrapping_add(at as u8)).collect()
}

fn header(step: u64) -> u64 {
    step.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A receive buffer that notices bytes written behind the payload.
struct Buffer(Vec<u8>);

impl Buffer {
    const GUARD: usize = 64;

    fn new(bytes: usize) -> Self {
        Self(vec![0xee; bytes + Self::GUARD])
    }

    fn assert_is(&self, payload: &[u8]) {
        assert_eq!(&self.0[..payload.len()], payload);
        assert!(self.0[payload.len()..].iter().all(|byte| *byte == 0xee), "LL-5, L8-5: written behind the payload");
    }
}

/// Move 64 messages by `send` and `receive`, the sender as far ahead as it gets.
fn run<S, R>(
    start: u64,
    sender: &mut S,
    receiver: &mut R,
    send: impl Fn(&mut S, u64) -> bool,
    receive: impl Fn(&mut R, u64),
) {
    let (mut sent, mut received) = (0, 0);
    while received < 64 {
        while sent < 64 && send(sender, start.wrapping_add(sent)) {
            sent += 1;
        }
        assert!(sent - received <= SLOTS as u64, "CR-1");
        assert!(sent > received, "CR-2: credit comes back before the sender starves for ever");
        receive(receiver, start.wrapping_add(received));
        received += 1;
    }
}

#[test]
fn ll_moves_every_size_across_every_edge_of_the_step() {
    for start in STARTS {
        let connection = Connection::new(start);
        let (areas, words) = (connection.areas, |extent| connection.part(extent));
        let send = |sender: &mut proto::ll::Sender, step| {
            sender.on_credit(credit::observe(&connection.head())).unwrap();
            let Some(slot) = sender.begin().unwrap() else { return false };
            assert_eq!((slot.step, slot.index as u64), (step, slot.index as u64), "CR-4");
            let (data, place, flag) = (payload(step), words(areas.ll(slot.index)), wire::ll::flag(step));
            // SAFETY: `data` is as long as it says; the slot is ours.
            unsafe { wire::ll::pack(&place, header(step), data.as_ptr(), data.len(), flag) };
            if sender.on_filled().unwrap() == Rest::Clean {
                wire::ll::clean(&place, data.len(), flag);
                sender.on_cleaned().unwrap();
            }
            true
        };
        let receive = |receiver: &mut proto::ll::Receiver, step| {
            let slot = receiver.slot();
            let (data, place, flag) = (payload(step), words(areas.ll(slot.index)), wire::ll::flag(step));
            receiver.on_header(wire::ll::header(&place, flag).unwrap(), header(step)).unwrap();
            let mut buffer = Buffer::new(data.len());
            // SAFETY: the buffer is longer than the payload.
            let next = unsafe { wire::ll::unpack(&place, buffer.0.as_mut_ptr(), data.len(), flag, 0) };
            assert_eq!(next, wire::ll::lines(data.len()), "LL-3, LL-4");
            buffer.assert_is(&data);
            if let Some(head) = receiver.on_drained().unwrap() {
                credit::publish(&connection.head(), head);
            }
        };
        let (mut sender, mut receiver) = (proto::ll::Sender::new(SLOTS, start), proto::ll::Receiver::new(SLOTS, start));
        run(start, &mut sender, &mut receiver, send, receive);
    }
}

#[test]
fn ll128_moves_every_size_across_every_edge_of_the_step() {
    for start in STARTS {
        let connection = Connection::new(start);
        let (areas, words) = (connection.areas, |extent| connection.part(extent));
        let send = |sender: &mut proto::ll128::Sender, step| {
            sender.on_credit(credit::observe(&connection.head())).unwrap();
            let Some(slot) = sender.begin().unwrap() else { return false };
            let (data, place) = (payload(step), words(areas.ll128(slot.index)));
            // SAFETY: `data` is as long as it says; the slot is ours.
            unsafe {
                wire::ll128::pack(&place, header(step), data.as_ptr(), data.len(), wire::ll128::flag(step));
            }
            sender.on_filled().unwrap();
            true
        };
        let receive = |receiver: &mut proto::ll128::Receiver, step| {
            let slot = receiver.slot();
            let (data, place, flag) = (payload(step), words(areas.ll128(slot.index)), wire::ll128::flag(step));
            receiver.on_header(wire::ll128::header(&place, flag).unwrap(), header(step)).unwrap();
            let mut buffer = Buffer::new(data.len());
            // SAFETY: the buffer is longer than the payload.
            let next = unsafe { wire::ll128::unpack(&place, buffer.0.as_mut_ptr(), data.len(), flag, 0) };
            assert_eq!(next, wire::ll128::lines(data.len()), "L8-1, L8-4");
            buffer.assert_is(&data);
            if let Some(head) = receiver.on_drained().unwrap() {
                credit::publish(&connection.head(), head);
            }
        };
        let (mut sender, mut receiver) =
            (proto::ll128::Sender::new(SLOTS, start), proto::ll128::Receiver::new(SLOTS, start));
        run(start, &mut sender, &mut receiver, send, receive);
    }
}

#[test]
fn simple_moves_every_size_across_every_edge_of_the_step() {
    for start in STARTS {
        let connection = Connection::new(start);
        let (areas, words) = (connection.areas, |extent| connection.part(extent));
        let send = |sender: &mut proto::simple::Sender, step| {
            sender.on_credit(credit::observe(&connection.head())).unwrap();
            let Some(slot) = sender.begin().unwrap() else { return false };
            let data = payload(step);
            let record = Record { header: header(step), bytes: data.len() as u64 };
            // SAFETY: the slot is large enough and ours.
            unsafe {
                words(areas.simple(slot.index)).copy_in(0, data.as_ptr(), data.len());
                wire::simple::write_record(&words(areas.records()), slot.index, record);
            }
            wire::simple::publish(&words(areas.tail()), sender.on_filled().unwrap());
            sender.on_published().unwrap();
            true
        };
        let receive = |receiver: &mut proto::simple::Receiver, step| {
            receiver.on_tail(wire::simple::observe(&words(areas.tail()))).unwrap();
            let slot = receiver.slot().expect("SI-2: the tail covers the message");
            let data = payload(step);
            let mut buffer = Buffer::new(data.len());
            // SAFETY: the message is published; the buffer is longer than the payload.
            let record = unsafe { wire::simple::read_record(&words(areas.records()), slot.index) };
            receiver.on_record(record, Record { header: header(step), bytes: data.len() as u64 }).unwrap();
            // SAFETY: as above.
            unsafe { words(areas.simple(slot.index)).copy_out(0, buffer.0.as_mut_ptr(), data.len()) };
            buffer.assert_is(&data);
            if let Some(head) = receiver.on_drained().unwrap() {
                credit::publish(&connection.head(), head);
            }
        };
        let (mut sender, mut receiver) =
            (proto::simple::Sender::new(SLOTS, start), proto::simple::Receiver::new(SLOTS, start));
        run(start, &mut sender, &mut receiver, send, receive);
    }
}

#[test]
fn a_head_that_was_never_reached_or_moves_back_is_corrupt() {
    for start in STARTS {
        let mut sender = proto::window::Sender::new(SLOTS, start);
        assert_eq!(sender.on_credit(start.wrapping_add(1)), Err(Kind::Corrupt), "CR-3");
        for _ in 0..SLOTS {
            sender.slot().unwrap();
            sender.on_sent();
        }
        assert_eq!(sender.slot(), None, "CR-1");
        sender.on_credit(start.wrapping_add(2)).unwrap();
        assert_eq!(sender.in_flight(), 2);
        for head in [start.wrapping_add(1), start.wrapping_add(5), start.wrapping_add(1 << 63), start.wrapping_sub(1)] {
            assert_eq!(sender.on_credit(head), Err(Kind::Corrupt), "CR-3");
        }
        assert_eq!(sender.slot().unwrap().step, start.wrapping_add(4), "a corrupt head grants nothing");
    }
}

#[test]
fn a_tail_that_runs_away_or_moves_back_is_corrupt() {
    for start in STARTS {
        for lie in [5, 1 << 32, 1 << 63, u64::MAX] {
            let mut receiver = proto::simple::Receiver::new(SLOTS, start);
            assert_eq!(receiver.on_tail(start.wrapping_add(lie)), Err(Kind::Corrupt), "SI-3");
            assert_eq!((receiver.slot(), receiver.on_tail(start)), (None, Err(Kind::Aborted)), "AB-2");
        }
        let mut receiver = proto::simple::Receiver::new(SLOTS, start);
        receiver.on_tail(start.wrapping_add(3)).unwrap();
        assert_eq!(receiver.on_tail(start.wrapping_add(2)), Err(Kind::Corrupt), "SI-3");
    }
}

#[test]
fn a_record_of_another_operation_or_length_stops_the_receiver() {
    let expected = Record { header: 1, bytes: 8 };
    for record in [Record { header: 2, ..expected }, Record { bytes: u64::MAX, ..expected }] {
        let mut receiver = proto::simple::Receiver::new(SLOTS, 0);
        receiver.on_tail(1).unwrap();
        assert_eq!(receiver.on_record(record, expected), Err(Kind::Mismatch), "SI-4");
        assert_eq!((receiver.slot(), receiver.flush()), (None, None), "AB-2");
    }
}

#[test]
fn a_header_of_another_operation_stops_the_receiver() {
    let mut receiver = proto::ll::Receiver::new(SLOTS, 0);
    assert_eq!(receiver.on_header(1, 2), Err(Kind::Mismatch));
    assert_eq!(receiver.on_header(2, 2), Err(Kind::Aborted), "AB-2");
    assert_eq!(receiver.flush(), None, "AB-2");
}

#[test]
fn after_an_abort_no_slot_is_granted_and_credit_changes_nothing() {
    let (mut ll, mut ll128, mut simple) =
        (proto::ll::Sender::new(2, 0), proto::ll128::Sender::new(2, 0), proto::simple::Sender::new(2, 0));
    ll.begin().unwrap();
    ll.abort();
    ll128.abort();
    simple.abort();
    assert_eq!((ll.on_filled(), ll.begin()), (Err(Kind::Aborted), Err(Kind::Aborted)), "AB-1, AB-2");
    assert_eq!((ll128.begin(), ll128.on_credit(0)), (Err(Kind::Aborted), Err(Kind::Aborted)), "AB-2");
    assert_eq!((simple.begin(), simple.on_filled()), (Err(Kind::Aborted), Err(Kind::Aborted)), "AB-2");
}

#[test]
fn calls_out_of_order_are_refused_and_change_nothing() {
    let mut sender = proto::ll::Sender::new(1, 0);
    assert_eq!(sender.on_filled(), Err(Kind::InvalidUsage));
    sender.begin().unwrap().unwrap();
    assert_eq!(sender.begin(), Err(Kind::InvalidUsage));
    assert_eq!(sender.on_filled(), Ok(Rest::Leave));
    assert_eq!(sender.begin(), Ok(None), "CR-1");
}

#[test]
fn credit_is_batched_by_half_the_slots_and_flushed_on_demand() {
    for (slots, batch) in [(1, 1), (2, 1), (3, 1), (4, 2), (8, 4)] {
        let mut receiver = proto::window::Receiver::new(slots, 7);
        for step in 1..=24 {
            let head = receiver.on_consumed();
            assert_eq!(head, (step % batch == 0).then_some(7 + step), "CR-2: {slots} slots");
        }
        receiver.on_consumed();
        let flushed = receiver.flush();
        assert_eq!((flushed.is_some(), receiver.flush()), (batch > 1, None), "CR-2");
    }
}

#[test]
fn lines_of_a_lap_of_flags_ago_never_look_new() {
    // LL-6: one long message, then short ones until the flag of the long one comes again
    let period = u32::MAX as u64;
    let slots = 5; // divides 2^32 - 1, so that the very same slot and flag meet again
    let long = 3;
    assert_eq!((wire::ll::flag(long), long % slots), (wire::ll::flag(long + period), (long + period) % slots), "LL-2");
    let cleaned = (long..long + 2 * wire::ll::CLEAN_PERIOD)
        .filter(|step| step % slots == long % slots)
        .any(|step| wire::ll::clean_due(step, slots as u32));
    assert!(cleaned, "every slot is cleaned in time");

    let mut memory = vec![0_u64; 64];
    // SAFETY: the vector outlives the words and is not touched otherwise.
    let slot = unsafe { Mapped::new(NonNull::from(&mut memory[..]).cast(), 64) };
    let (data, mut buffer) = ([7_u8; 64], [0_u8; 64]);
    // SAFETY: 64 bytes at `data`; the slot is ours.
    unsafe { wire::ll::pack(&slot, 1, data.as_ptr(), 64, wire::ll::flag(long)) };
    wire::ll::clean(&slot, 0, wire::ll::flag(long + slots));
    // SAFETY: the header of the message that meets the old flag; its payload is still on its way.
    unsafe { wire::ll::pack(&slot, 1, data.as_ptr(), 0, wire::ll::flag(long + period)) };
    // SAFETY: 64 bytes at `buffer`.
    let next = unsafe { wire::ll::unpack(&slot, buffer.as_mut_ptr(), 64, wire::ll::flag(long + period), 0) };
    assert_eq!((next, buffer), (1, [0; 64]), "LL-6: only the header is new");
}

#[test]
fn the_flag_of_ll_is_never_that_of_fresh_memory() {
    for step in STARTS.into_iter().chain([u32::MAX as u64 - 1, u32::MAX as u64, u64::MAX]) {
        assert_ne!(wire::ll::flag(step), 0, "LL-2");
    }
    assert_eq!(wire::ll128::flag(u64::MAX - 1), u64::MAX, "L8-2");
}
