//! Two or three threads on the smallest memory that wraps. Natively each scenario runs once; under `--cfg vervain_loom` in all
//! interleavings, and ci/mutations.sh shows for each label of `sync::LABELS` that the scenario named after it notices its loss.

mod completion;
mod counter;
mod fifo;

use vervain_transport::{
    proto,
    ring::{mpsc, record, spsc},
    sync::{
        self, Arc, AtomicU32, Ordering::Relaxed, Owned, UnsafeCell, heavy_fence, light_fence, model, spin_loop, thread,
    },
    wire::{self, simple::Record},
};

/// Repeat until there is an answer.
fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(answer) = attempt() {
            return answer;
        }
        spin_loop();
    }
}

#[test]
fn labels_are_listed_for_the_mutation_check() {
    for label in sync::LABELS {
        println!("label {label}");
    }
}

// spsc

fn spsc_push(mut sender: spsc::SharedSender<u64, 1>, count: u64) {
    for value in 0..count {
        until(|| sender.push(value).ok());
    }
}

fn spsc_pop(mut receiver: spsc::SharedReceiver<u64, 1>, count: u64) {
    for value in 0..count {
        assert_eq!(until(|| receiver.pop()), value, "SP-3");
    }
}

#[test]
fn loom_spsc_values_arrive_whole_and_in_order_across_the_wrap() {
    model(|| {
        let (sender, receiver) = spsc::channel::<u64, 1>();
        let pushing = thread::spawn(move || spsc_push(sender, 3));
        spsc_pop(receiver, 3);
        pushing.join().unwrap();
    });
}

#[test]
fn loom_spsc_values_left_behind_are_dropped_once() {
    model(|| {
        let (mut sender, mut receiver) = spsc::channel::<Arc<u64>, 2>();
        let value = Arc::new(7);
        let copies = [value.clone(), value.clone()];
        let pushing = thread::spawn(move || copies.map(|copy| sender.push(copy).is_ok()));
        drop(receiver.pop());
        drop(receiver);
        assert_eq!(pushing.join().unwrap(), [true, true]);
        assert_eq!(Arc::strong_count(&value), 1, "SP-4");
    });
}

// mpsc

fn mpsc_push(sender: &mpsc::SharedSender<u64, 2>, values: impl Iterator<Item = u64>) {
    for value in values {
        until(|| sender.push(value).ok());
    }
}

#[test]
fn loom_mpsc_two_senders_lose_and_double_nothing() {
    model(|| {
        let (sender, mut receiver) = mpsc::channel::<u64, 2>();
        let other = sender.clone();
        let pushing = thread::spawn(move || mpsc_push(&other, 1..2));
        let pushing_too = thread::spawn(move || mpsc_push(&sender, 2..3));
        let sum: u64 = (0..2).map(|_| until(|| receiver.pop())).sum();
        assert_eq!((sum, receiver.pop()), (3, None), "MP-2, MP-4");
        pushing.join().unwrap();
        pushing_too.join().unwrap();
    });
}

#[test]
fn loom_mpsc_slots_are_reused_after_they_are_free() {
    model(|| {
        let (sender, mut receiver) = mpsc::channel::<u64, 2>();
        let pushing = thread::spawn(move || mpsc_push(&sender, 0..3));
        for value in 0..3 {
            assert_eq!(until(|| receiver.pop()), value, "MP-1");
        }
        pushing.join().unwrap();
    });
}

#[test]
fn loom_mpsc_two_senders_on_a_full_queue_share_one_free_slot() {
    model(|| {
        let (sender, mut receiver) = mpsc::channel::<u64, 2>();
        mpsc_push(&sender, 0..2);
        let other = sender.clone();
        let pushing = thread::spawn(move || other.push(2).is_ok());
        let first = receiver.pop();
        let pushed = sender.push(3).is_ok();
        assert_eq!((first, pushed), (Some(0), !pushing.join().unwrap()), "MP-5");
    });
}

// record

#[test]
fn loom_record_arrives_whole_across_the_wrap() {
    model(|| {
        let words = Owned::new(record::words(1));
        let mut producer = record::Producer::attach(words.clone(), 1).unwrap();
        let pushing = thread::spawn(move || {
            for value in 0..3 {
                until(|| producer.push(&[value; 8]).ok());
            }
        });
        let mut consumer = record::Consumer::attach(words, 1).unwrap();
        for value in 0..3 {
            assert_eq!(until(|| consumer.pop().unwrap()), [value; 8], "SP-3, SP-6");
        }
        pushing.join().unwrap();
    });
}

// protocols

const SLOTS: u32 = 2;
const HEADER: u64 = 0x0123_4567_89ab_cdef;

/// One connection's memory.
#[derive(Clone)]
struct Memory {
    slots: [Owned; SLOTS as usize],
    records: Owned,
    tail: Owned,
    head: Owned,
}

impl Memory {
    fn new(slot_words: usize) -> Self {
        let slots = [0, 1].map(|_| Owned::new(slot_words));
        Self { slots, records: Owned::new(4), tail: Owned::new(1), head: Owned::new(1) }
    }
}

/// Something that is stored plainly before a message, such as a direct write before a signal.
struct Side(UnsafeCell<u64>);

// SAFETY: that the message orders the accesses is what the scenarios check.
unsafe impl Sync for Side {}
// SAFETY: as above.
unsafe impl Send for Side {}

impl Side {
    fn new() -> Arc<Self> {
        Arc::new(Self(UnsafeCell::new(0)))
    }

    fn set(&self) {
        // SAFETY: the reader reads after it has seen the message; loom checks that.
        self.0.with_mut(|side| unsafe { *side = 1 });
    }

    fn get(&self) -> u64 {
        // SAFETY: the writer wrote before it sent the message; loom checks that.
        self.0.with(|side| unsafe { *side })
    }
}

fn payload<const N: usize>(step: u64) -> [u8; N] {
    core::array::from_fn(|at| (step as u8 * 16).wrapping_add(at as u8))
}

fn ll_send(memory: &Memory, count: u64) {
    let mut sender = proto::ll::Sender::new(SLOTS, 0);
    for _ in 0..count {
        let slot = until(|| {
            sender.on_credit(wire::credit::observe(&memory.head)).unwrap();
            sender.begin().unwrap()
        });
        let (data, flag) = (payload::<12>(slot.step), wire::ll::flag(slot.step));
        // SAFETY: `data` has 12 bytes; the machine gave the slot.
        unsafe { wire::ll::pack(&memory.slots[slot.index as usize], HEADER, data.as_ptr(), 12, flag) };
        assert_eq!(sender.on_filled().unwrap(), proto::ll::Rest::Leave);
    }
}

fn ll_receive(memory: &Memory, count: u64) {
    let mut receiver = proto::ll::Receiver::new(SLOTS, 0);
    for _ in 0..count {
        let slot = receiver.slot();
        let (words, flag) = (&memory.slots[slot.index as usize], wire::ll::flag(slot.step));
        receiver.on_header(until(|| wire::ll::header(words, flag)), HEADER).unwrap();
        let (mut data, mut line) = ([0; 12], 1);
        until(|| {
            // SAFETY: `data` has 12 bytes.
            line = unsafe { wire::ll::unpack(words, data.as_mut_ptr(), 12, flag, line) };
            (line == wire::ll::lines(12)).then_some(())
        });
        assert_eq!(data, payload(slot.step), "LL-1, LL-4");
        if let Some(head) = receiver.on_drained().unwrap() {
            wire::credit::publish(&memory.head, head);
        }
    }
}

#[test]
fn loom_ll_lines_arrive_whole_across_the_wrap() {
    model(|| {
        let memory = Memory::new(6);
        let peer = memory.clone();
        let sending = thread::spawn(move || ll_send(&peer, 3));
        ll_receive(&memory, 3);
        sending.join().unwrap();
    });
}

#[test]
fn loom_ll_header_shows_what_was_stored_before_the_message() {
    model(|| {
        let (slot, side) = (Owned::new(2), Side::new());
        let (peer, peer_side) = (slot.clone(), side.clone());
        let sending = thread::spawn(move || {
            peer_side.set();
            // SAFETY: no payload; the slot is fresh.
            unsafe { wire::ll::pack(&peer, HEADER, core::ptr::null(), 0, 1) };
        });
        assert_eq!(until(|| wire::ll::header(&slot, 1)), HEADER);
        assert_eq!(side.get(), 1, "LL-7");
        sending.join().unwrap();
    });
}

fn ll128_send(memory: &Memory, bytes: usize, count: u64) {
    let mut sender = proto::ll128::Sender::new(SLOTS, 0);
    for _ in 0..count {
        let slot = until(|| {
            sender.on_credit(wire::credit::observe(&memory.head)).unwrap();
            sender.begin().unwrap()
        });
        let (data, flag) = (payload::<120>(slot.step), wire::ll128::flag(slot.step));
        // SAFETY: `data` has at least `bytes` bytes; the machine gave the slot.
        unsafe { wire::ll128::pack(&memory.slots[slot.index as usize], HEADER, data.as_ptr(), bytes, flag) };
        sender.on_filled().unwrap();
    }
}

fn ll128_receive(memory: &Memory, bytes: usize, count: u64) {
    let mut receiver = proto::ll128::Receiver::new(SLOTS, 0);
    for _ in 0..count {
        let slot = receiver.slot();
        let (words, flag) = (&memory.slots[slot.index as usize], wire::ll128::flag(slot.step));
        receiver.on_header(until(|| wire::ll128::header(words, flag)), HEADER).unwrap();
        let (mut data, mut line) = ([0; 120], 0);
        until(|| {
            // SAFETY: `data` has at least `bytes` bytes.
            line = unsafe { wire::ll128::unpack(words, data.as_mut_ptr(), bytes, flag, line) };
            (line == wire::ll128::lines(bytes)).then_some(())
        });
        assert_eq!(data[..bytes], payload::<120>(slot.step)[..bytes], "L8-3, CR-5");
        if let Some(head) = receiver.on_drained().unwrap() {
            wire::credit::publish(&memory.head, head);
        }
    }
}

#[test]
fn loom_ll128_two_lines_arrive_whole() {
    model(|| {
        let memory = Memory::new(32);
        let peer = memory.clone();
        let sending = thread::spawn(move || ll128_send(&peer, 120, 1));
        ll128_receive(&memory, 120, 1);
        sending.join().unwrap();
    });
}

#[test]
fn loom_credit_keeps_the_sender_out_of_slots_that_are_being_read() {
    model(|| {
        let memory = Memory::new(16);
        let peer = memory.clone();
        let sending = thread::spawn(move || ll128_send(&peer, 8, 3));
        ll128_receive(&memory, 8, 3);
        sending.join().unwrap();
    });
}

fn simple_send(memory: &Memory, count: u64) {
    let mut sender = proto::simple::Sender::new(SLOTS, 0);
    for _ in 0..count {
        let slot = until(|| {
            sender.on_credit(wire::credit::observe(&memory.head)).unwrap();
            sender.begin().unwrap()
        });
        let data = payload::<8>(slot.step);
        // SAFETY: the slot has 8 bytes and is ours by credit.
        unsafe {
            sync::Words::copy_in(&memory.slots[slot.index as usize], 0, data.as_ptr(), 8);
            wire::simple::write_record(&memory.records, slot.index, Record { header: HEADER, bytes: 8 });
        }
        wire::simple::publish(&memory.tail, sender.on_filled().unwrap());
        sender.on_published().unwrap();
    }
}

fn simple_receive(memory: &Memory, count: u64) {
    let mut receiver = proto::simple::Receiver::new(SLOTS, 0);
    for _ in 0..count {
        let slot = until(|| {
            receiver.on_tail(wire::simple::observe(&memory.tail)).unwrap();
            receiver.slot()
        });
        let mut data = [0; 8];
        // SAFETY: the message is published, and `data` has 8 bytes.
        let record = unsafe {
            sync::Words::copy_out(&memory.slots[slot.index as usize], 0, data.as_mut_ptr(), 8);
            wire::simple::read_record(&memory.records, slot.index)
        };
        receiver.on_record(record, Record { header: HEADER, bytes: 8 }).unwrap();
        assert_eq!(data, payload(slot.step), "SI-1");
        if let Some(head) = receiver.on_drained().unwrap() {
            wire::credit::publish(&memory.head, head);
        }
    }
}

#[test]
fn loom_simple_slot_and_record_are_there_when_the_tail_covers_them() {
    model(|| {
        let memory = Memory::new(1);
        let peer = memory.clone();
        let sending = thread::spawn(move || simple_send(&peer, 3));
        simple_receive(&memory, 3);
        sending.join().unwrap();
    });
}

// sleep

#[test]
fn loom_sleep_is_never_begun_on_work_that_nobody_announces() {
    model(|| {
        let (work, sleeping) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (work_too, sleeping_too) = (work.clone(), sleeping.clone());
        let waker = thread::spawn(move || {
            // Relaxed: the fences order these.
            work_too.store(1, Relaxed);
            light_fence();
            sleeping_too.load(Relaxed) == 1
        });
        // Relaxed: as above.
        sleeping.store(1, Relaxed);
        heavy_fence();
        let sees_work = work.load(Relaxed) == 1;
        let is_woken = waker.join().unwrap();
        assert!(sees_work || is_woken);
    });
}
