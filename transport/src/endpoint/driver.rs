//! A thread that drives an endpoint, and clients of it on other threads.
//!
//! Each [`Client`] has two rings of its own: requests go down, answers come up, and neither side ever locks or allocates. What is not a
//! transfer (peers, regions, messages) is done by [`Driver::call`], which runs a function on the driving thread between two polls.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread::JoinHandle,
};

use super::{Endpoint, Local, Notify, PeerId, Posted, Refused, RemoteSpan, Terms};
use crate::{Error, Kind, Result, Time, fabric::Doorbell, ring::spsc};

/// Requests of one client that were not answered.
const WINDOW: usize = 256;

type Sender<T> = spsc::SharedSender<T, WINDOW>;
type Receiver<T> = spsc::SharedReceiver<T, WINDOW>;
type Asked = (Request, Terms);

/// Longest pause before a request that found no room is tried again.
const RETRY: core::time::Duration = core::time::Duration::from_millis(1);

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    /// As [`Endpoint::write`].
    Write {
        /// What to write.
        local: Local,
        /// Where to.
        remote: RemoteSpan,
        /// Whether the target is told.
        notify: Notify,
    },
    /// As [`Endpoint::read`].
    Read {
        /// Where to.
        local: Local,
        /// What to read.
        remote: RemoteSpan,
    },
    /// As [`Endpoint::fetch_add`].
    FetchAdd {
        /// The word.
        remote: RemoteSpan,
        /// What to add.
        add: u64,
    },
    /// As [`Endpoint::compare_swap`].
    CompareSwap {
        /// The word.
        remote: RemoteSpan,
        /// What it must hold.
        expected: u64,
        /// What it is to hold then.
        desired: u64,
    },
    /// As [`Endpoint::flush`].
    Flush {
        /// With whom.
        peer: PeerId,
    },
}

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was started, and ended so.
    Ended(super::End),
    /// It was not started.
    Refused(Error),
}

/// The answer to a request. Every request is answered once, as long as the driver runs; those that were not started before it stopped are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The context of the request's [`Terms`].
    pub context: u64,
    /// What it came to.
    pub verdict: Verdict,
    /// What the word held before an atomic; 0 otherwise.
    pub before: u64,
}

/// One thread's access to a driven endpoint. `Send`, for one thread at a time.
#[derive(Debug)]
pub struct Client {
    requests: Sender<Asked>,
    answers: Receiver<Answer>,
    bells: Arc<[Doorbell]>,
    open: usize,
}

impl Client {
    /// Ask for a transfer.
    ///
    /// # Errors
    /// Gives the request back if 256 of them have no answer yet, or the driver does not keep up.
    pub fn submit(&mut self, request: Request, terms: impl Into<Terms>) -> Result<(), Request> {
        if self.open == WINDOW {
            return Err(request);
        }
        // whoever asked takes the answer
        let terms = Terms { detached: false, ..terms.into() };
        self.requests.push((request, terms)).map_err(|full| full.0.0)?;
        self.open += 1;
        self.bells.iter().for_each(Doorbell::ring);
        Ok(())
    }

    /// The next answer, if one has come.
    pub fn next_answer(&mut self) -> Option<Answer> {
        let answer = self.answers.pop()?;
        self.open -= 1;
        Some(answer)
    }

    /// Requests without an answer.
    pub fn open(&self) -> usize {
        self.open
    }
}

/// The driving thread's end of a client.
#[derive(Debug)]
struct Desk {
    requests: Receiver<Asked>,
    answers: Sender<Answer>,
    /// Found no room.
    waiting: Option<Asked>,
}

type Call = Box<dyn FnOnce(&mut Endpoint) + Send>;

/// A thread that polls an endpoint, and sleeps while there is nothing to do.
#[derive(Debug)]
pub struct Driver {
    thread: Option<JoinHandle<Option<Endpoint>>>,
    calls: Option<mpsc::Sender<Call>>,
    bells: Arc<[Doorbell]>,
}

impl Driver {
    /// Let a thread, on this processor if one is named, drive the endpoint for so many clients.
    ///
    /// # Errors
    /// Gives the endpoint back: what the system says of a processor that we may not use, or if there is no thread to be had.
    pub fn start(
        endpoint: Endpoint,
        clients: usize,
        processor: Option<usize>,
    ) -> Result<(Self, Vec<Client>), Box<Refused<Endpoint>>> {
        let bells: Arc<[Doorbell]> = endpoint.bells().into();
        let (mut desks, mut made) = (Vec::new(), Vec::new());
        for _ in 0..clients {
            let (desk, client) = pair(&bells);
            desks.push(desk);
            made.push(client);
        }
        let (calls, called) = mpsc::channel();
        let (hand_over, taken_over) = mpsc::channel();
        let run = move || Some(run(taken_over.recv().ok()?, desks, &called));
        let thread = match spawn(processor, run) {
            Ok(thread) => thread,
            Err(error) => return Err(Box::new(Refused { value: endpoint, error })),
        };
        // the thread waits for it
        let _ = hand_over.send(endpoint);
        Ok((Self { thread: Some(thread), calls: Some(calls), bells }, made))
    }

    /// Run a function on the driving thread, between two polls, and wait for what it returns.
    ///
    /// # Errors
    /// `Aborted` if the function panicked or the driver has ended.
    pub fn call<R: Send + 'static>(&self, function: impl FnOnce(&mut Endpoint) -> R + Send + 'static) -> Result<R> {
        let (send, receive) = mpsc::channel();
        let call: Call = Box::new(move |endpoint| {
            if let Ok(value) = catch_unwind(AssertUnwindSafe(|| function(endpoint))) {
                // who asked may have gone
                let _ = send.send(value);
            }
        });
        let calls = self.calls.as_ref().ok_or(Kind::Aborted)?;
        calls.send(call).map_err(|_| Kind::Aborted)?;
        self.bells.iter().for_each(Doorbell::ring);
        receive.recv().map_err(|_| Kind::Aborted.into())
    }

    /// Stop driving and give the endpoint back. Transfers under way stay so.
    ///
    /// # Errors
    /// `Aborted` if the driving thread panicked.
    pub fn stop(mut self) -> Result<Endpoint> {
        self.end().ok_or(Kind::Aborted.into())
    }

    fn end(&mut self) -> Option<Endpoint> {
        self.calls = None;
        self.bells.iter().for_each(Doorbell::ring);
        self.thread.take()?.join().ok()?
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// A thread in its place.
fn spawn<T: Send + 'static>(
    processor: Option<usize>,
    run: impl FnOnce() -> Option<T> + Send + 'static,
) -> Result<JoinHandle<Option<T>>> {
    let (placed, place) = mpsc::channel();
    let run = move || {
        // whoever started us waits for it, and drops what `run` waits for if it is bad news
        let _ = placed.send(processor.map_or(Ok(()), crate::host::affinity::pin_to));
        run()
    };
    let thread = std::thread::Builder::new().name("vervain-driver".into()).spawn(run)?;
    place.recv().map_err(|_| Error::new(Kind::Bug))??;
    Ok(thread)
}

fn pair(bells: &Arc<[Doorbell]>) -> (Desk, Client) {
    let (requests, asked) = spsc::channel();
    let (answers, answered) = spsc::channel();
    let desk = Desk { requests: asked, answers, waiting: None };
    (desk, Client { requests, answers: answered, bells: bells.clone(), open: 0 })
}

fn run(mut endpoint: Endpoint, mut desks: Vec<Desk>, calls: &mpsc::Receiver<Call>) -> Endpoint {
    // ends when the driver lets go of the other end of `calls`
    let _ = endpoint.wait_until(Time::NEVER, |endpoint| {
        endpoint.serve(&mut desks);
        loop {
            match calls.try_recv() {
                Ok(call) => call(endpoint),
                Err(mpsc::TryRecvError::Empty) => return None,
                Err(mpsc::TryRecvError::Disconnected) => return Some(()),
            }
        }
    });
    endpoint
}

impl Endpoint {
    /// Start what clients ask for, and answer what has ended.
    fn serve(&mut self, desks: &mut [Desk]) {
        while let Some(done) = self.next_completion() {
            // a transfer that was started by a call has no client
            let Some(desk) = (done.owner as usize).checked_sub(1).and_then(|index| desks.get_mut(index)) else {
                continue;
            };
            desk.answer(done.context, Verdict::Ended(done.end), done.before);
        }
        self.again = Time::NEVER;
        for (desk, owner) in desks.iter_mut().zip(1..) {
            while let Some((request, terms)) = desk.waiting.take().or_else(|| desk.requests.pop()) {
                match self.start_request(request, terms) {
                    Ok(Posted::Started(transfer)) => self.transfers.set_owner(transfer, owner),
                    Ok(Posted::Busy) if terms.deadline > Time::now() => {
                        desk.waiting = Some((request, terms));
                        self.again = Time::now().after(RETRY);
                        break;
                    }
                    Ok(Posted::Busy) => desk.answer(terms.context, Verdict::Refused(Kind::TimedOut.into()), 0),
                    Err(error) => desk.answer(terms.context, Verdict::Refused(error), 0),
                }
                // there is something to do: whoever waits does not fall asleep
                self.heard += 1;
            }
        }
    }

    fn start_request(&mut self, request: Request, terms: Terms) -> Result<Posted> {
        match request {
            Request::Write { local, remote, notify } => self.write(local, remote, notify, terms),
            Request::Read { local, remote } => self.read(local, remote, terms),
            Request::FetchAdd { remote, add } => self.fetch_add(remote, add, terms),
            Request::CompareSwap { remote, expected, desired } => self.compare_swap(remote, expected, desired, terms),
            Request::Flush { peer } => self.flush(peer, terms),
        }
    }
}

impl Desk {
    fn answer(&mut self, context: u64, verdict: Verdict, before: u64) {
        // a client has at most as many open requests as the ring has places
        let is_full = self.answers.push(Answer { context, verdict, before }).is_err();
        debug_assert!(!is_full, "a client asks for no more than it has room for");
    }
}
