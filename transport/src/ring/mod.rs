//! Lock-free queues and counters, usable alone: no allocation unless asked for, no thread, no clock, no std.
//!
//! | | from | to | holds | lies in | full |
//! |---|---|---|---|---|---|
//! | [`spsc`] | one | one | values of any type | one process: heap, stack, static | gives the value back |
//! | [`mpsc`] | many | one | values of any type | one process: heap, stack, static | gives the value back |
//! | [`completion`] | many | one | how operations ended | one process: heap, stack, static | cannot be: room is taken before |
//! | [`record`] | one | one | 64 bytes | any words, also shared memory of a peer that is not trusted | gives the record back |
//! | [`fifo`] | many | one | two words of 63 bits | any words, also memory of a device | gives the trigger back |
//! | [`counter`] | one | many | how far the writer is | any words, also shared memory | - |
//!
//! # Guarantees
//!
//! None blocks, sleeps or allocates after it was made. A full ring is an outcome, not a failure; how to wait is the caller's choice,
//! with whatever it has: a spin, a yield, a poll of something else, a deadline. Each value comes out once, in the order in which
//! room for it was claimed; what its sender stored before it anywhere is visible to who has it. Values that nobody took are
//! dropped with their ring. Capacities are powers of two, and all of a ring's room is usable. Counters may wrap: indexes are compared
//! by difference.
//!
//! A thread that stops within a push to [`mpsc`] or [`fifo`], or within a completion, holds back what was claimed after it, and
//! nothing else. [`spsc`], [`record`], [`counter`] and completing are wait-free: no call repeats anything. The rest repeats a step
//! only when another thread has taken its own meanwhile.
//!
//! Rules have numbers, in docs/protocols.md; every order between threads has a label and a scenario that fails without it
//! (docs/ordering.md, docs/testing.md).
//!
//! # Who may share what
//!
//! An end can be sent to another thread if its values can. `&` means that threads may use one end at once, by reference.
//!
//! | | one for each thread, by clone | `&` | there is one |
//! |---|---|---|---|
//! | [`spsc`] | | | [`spsc::Sender`], [`spsc::Receiver`] |
//! | [`mpsc`] | [`mpsc::Sender`] | [`mpsc::Sender`] | [`mpsc::Receiver`] |
//! | [`completion`] | [`completion::Reserver`] | | [`completion::Poller`]; a [`completion::Ticket`] for each operation |
//! | [`record`] | | | [`record::Producer`], [`record::Consumer`] |
//! | [`fifo`] | [`fifo::Producer`] | [`fifo::Producer`] | [`fifo::Consumer`] |
//! | [`counter`] | [`counter::Reader`] | | [`counter::Writer`] |
//!
//! Of [`spsc`], [`mpsc`] and [`completion`] nobody can make a second receiving end. On words that several can reach ([`record`],
//! [`fifo`], [`counter`]) that is up to the caller: a second end makes wrong values, and nothing worse.
//!
//! # Where a ring lies
//!
//! `channel` puts a ring on the heap (feature `alloc`); `Ring::split` borrows it from wherever it is; `Ring::take_ends` gives
//! out the ends of a static, once. The others are generic over [`crate::sync::Words`]: [`crate::sync::Mapped`] for memory at an
//! address, [`crate::sync::Inline`] for statics and stacks, [`crate::sync::Owned`] for the heap and for loom. With
//! `default-features = false` all of this builds without std and without a heap; `tests/no-std-ring` is such a crate.
//!
//! # One example each
//!
//! Between two threads, on the stack:
//!
//! ```
//! use vervain_transport::ring::{Full, spsc};
//!
//! let mut ring = spsc::Ring::<String, 4>::new();
//! let (mut sender, mut receiver) = ring.split();
//! std::thread::scope(|scope| {
//!     scope.spawn(move || {
//!         for mut word in ["full", "rings", "give", "values", "back"].map(String::from) {
//!             while let Err(Full(back)) = sender.push(word) {
//!                 word = back;
//!                 std::thread::yield_now();
//!             }
//!         }
//!     });
//!     let mut words = Vec::new();
//!     while words.len() < 5 {
//!         words.extend(receiver.pop());
//!     }
//!     assert_eq!(words.join(" "), "full rings give values back");
//! });
//! ```
//!
//! From many threads to one, in a static:
//!
//! ```
//! use vervain_transport::ring::mpsc;
//!
//! static REPORTS: mpsc::Ring<(u32, &str), 64> = mpsc::Ring::new();
//! let (sender, mut receiver) = REPORTS.take_ends().expect("asked once");
//! let reporting = [0, 1].map(|who| {
//!     let sender = sender.clone();
//!     std::thread::spawn(move || sender.push((who, "started")))
//! });
//! reporting.map(|thread| thread.join().unwrap().unwrap());
//! let mut reports: Vec<_> = std::iter::from_fn(|| receiver.pop()).collect();
//! reports.sort();
//! assert_eq!(reports, [(0, "started"), (1, "started")]);
//! ```
//!
//! Operations that end anywhere, at most 32 at a time:
//!
//! ```
//! use vervain_transport::ring::completion;
//!
//! let (mut reserver, mut poller) = completion::channel::<Result<u32, &str>, 32>();
//! let ticket = reserver.reserve().expect("fewer than 32 are outstanding");
//! let disk = std::thread::spawn(move || ticket.complete(Ok(4096)));
//! disk.join().unwrap();
//! for outcome in poller.poll(8) {
//!     assert_eq!(outcome, Ok(4096));
//! }
//! ```
//!
//! Records between two processes, here two views of one memory:
//!
//! ```
//! use vervain_transport::{Kind, ring::record::{self, Consumer, Producer}, sync::Inline};
//!
//! static MEMORY: Inline<{ record::words(16) }> = Inline::new();
//! let (mut producer, mut consumer) = (Producer::attach(&MEMORY, 16)?, Consumer::attach(&MEMORY, 16)?);
//! producer.push(&[7; 8]).expect("there is room");
//! // an error here means that the other process stored nonsense
//! assert_eq!(consumer.pop()?, Some([7; 8]));
//! # Ok::<(), Kind>(())
//! ```
//!
//! Requests of a device's threads, with a quarter of the triggers' handling told back at a time:
//!
//! ```
//! use vervain_transport::{Kind, ring::fifo::{self, Consumer, Producer, Trigger}, sync::Inline};
//!
//! static WORDS: Inline<{ fifo::words(512) }> = Inline::new();
//! static CLAIMS: Inline<{ fifo::PRODUCER_WORDS }> = Inline::new();
//! let (producer, mut consumer) = (Producer::attach(&WORDS, &CLAIMS, 512)?, Consumer::attach(&WORDS, 512)?);
//! let position = producer.push(Trigger::new(0x1000, 4096).expect("63 bits each")).expect("there is room");
//! while let Some(trigger) = consumer.pop() {
//!     assert_eq!((trigger.first(), trigger.second()), (0x1000, 4096));
//! }
//! assert!(producer.is_handled(position));
//! # Ok::<(), Kind>(())
//! ```
//!
//! How far somebody is, and a wait with an end:
//!
//! ```
//! use vervain_transport::{Error, Kind, ring::counter::{self, Reader, Writer}, sync::{Inline, spin_loop}};
//!
//! static ARRIVED: Inline<{ counter::WORDS }> = Inline::new();
//! let (mut writer, mut reader) = (Writer::attach(&ARRIVED)?, Reader::attach(&ARRIVED)?);
//! let writing = std::thread::spawn(move || (0..80).for_each(|_| _ = writer.advance(1)));
//! let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
//! let reached = reader.wait_until(80, || {
//!     spin_loop();
//!     if std::time::Instant::now() < deadline { Ok(()) } else { Err(Error::new(Kind::TimedOut)) }
//! });
//! assert_eq!(reached, Ok(80));
//! # writing.join().unwrap();
//! # Ok::<(), Kind>(())
//! ```
//!
//! What may not leave its thread does not:
//!
//! ```compile_fail,E0277
//! let (mut sender, _receiver) = vervain_transport::ring::spsc::channel::<std::rc::Rc<u8>, 2>();
//! std::thread::spawn(move || sender.push(std::rc::Rc::new(1)));
//! ```

pub mod completion;
pub mod counter;
pub mod fifo;
#[cfg(all(any(test, fuzzing), feature = "std", not(vervain_loom)))]
pub(crate) mod fuzzing;
pub mod mpsc;
pub mod record;
pub mod spsc;

use core::fmt;

/// The queue is full; here is the value again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is full; take something out or try again later")
    }
}

impl<T> core::error::Error for Full<T> {}

/// Alone on its two cache lines.
#[repr(align(128))]
struct Padded<T>(T);

/// What the table above says about sending and sharing.
#[cfg(not(vervain_loom))]
const _: () = {
    use crate::sync::Mapped;

    const fn sends<T: Send>() {}
    const fn shares<T: Send + Sync>() {}

    shares::<spsc::Ring<u64, 2>>();
    sends::<spsc::Sender<u64, 2, &spsc::Ring<u64, 2>>>();
    sends::<spsc::Receiver<u64, 2, &spsc::Ring<u64, 2>>>();
    shares::<mpsc::Ring<u64, 2>>();
    shares::<mpsc::Sender<u64, 2, &mpsc::Ring<u64, 2>>>();
    sends::<mpsc::Receiver<u64, 2, &mpsc::Ring<u64, 2>>>();
    shares::<completion::Queue<u64, 2>>();
    sends::<completion::Reserver<u64, 2, &completion::Queue<u64, 2>>>();
    sends::<completion::Ticket<u64, 2, &completion::Queue<u64, 2>>>();
    sends::<completion::Poller<u64, 2, &completion::Queue<u64, 2>>>();
    sends::<record::Producer<Mapped>>();
    sends::<record::Consumer<Mapped>>();
    shares::<fifo::Producer<Mapped, Mapped>>();
    sends::<fifo::Consumer<Mapped>>();
    sends::<counter::Writer<Mapped>>();
    sends::<counter::Reader<Mapped>>();
    // a cell can be sent and not shared: the ends of its ring can be sent all the same
    sends::<mpsc::Sender<core::cell::Cell<u8>, 2, &mpsc::Ring<core::cell::Cell<u8>, 2>>>();
};

const _: () = assert!(align_of::<Padded<u64>>() == crate::wire::LINE && size_of::<Padded<u64>>() == crate::wire::LINE);

/// Waits a little longer after each lost race for a counter, so that the winners' line is left alone.
#[derive(Default)]
struct Backoff {
    lost: u32,
}

impl Backoff {
    #[inline]
    fn spin(&mut self) {
        for _ in 0..1_u32 << self.lost.min(6) {
            crate::sync::spin_loop();
        }
        self.lost += 1;
    }
}
