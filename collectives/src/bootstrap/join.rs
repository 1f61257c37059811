//! One rank's way into the job.

use core::task::Poll;
use std::net::{SocketAddr, TcpListener};

use vervain_transport::auth::{Peer, Purpose, Secret, random};
use vervain_transport::fabric::Identity;
use vervain_transport::{Error, Kind, Rank, Result, Time};

use super::InitError;
use super::channel::Channel;
use super::doorman::Doorman;
use super::edges::Edges;
use super::guest::{Guest, Rivalry};
use super::host::Host;
use super::id::{Listener, UniqueId};
use super::message::{Member, OFFER, STATEMENT, Statement, Verdict};
use super::root::Root;
use crate::control::poll::{self, Watch};
use crate::control::{FRAME, Mesh};

/// Neighbours that may come before our table: many more than anybody has.
const EARLY: usize = 256;

/// A rank on its way into the job.
///
/// Step it until it is ready. Between [`Join::on_table`] giving the table and the end the caller prepares what needs the peers'
/// offers, and says with [`Join::ready`] how that went; without that the job never starts.
#[derive(Debug)]
pub struct Join {
    identity: Identity,
    ranks: u32,
    deadline: Time,
    coordinator: Coordinator,
    /// Where we accept edges of the control mesh, from the offer to the table.
    doorman: Option<Doorman>,
    /// Who came before our table.
    early: Vec<(Peer, Channel)>,
    /// Until it is made.
    offer: Option<Result<Vec<u8>>>,
    members: Option<Vec<Member>>,
    edges: Option<Edges>,
    prepared: bool,
    /// We said that we are ready, or why not.
    told: bool,
    /// Step again at once: there is something to send, or rank 0, which is us, has something to think about.
    again: bool,
}

/// A rank that is in.
#[derive(Debug)]
pub struct Joined {
    /// Who we are.
    pub rank: Rank,
    /// How many ranks there are.
    pub ranks: u32,
    /// What all of them know.
    pub secret: Secret,
    /// Our start.
    pub incarnation: u64,
    /// All ranks, in order, us too.
    pub members: Vec<Member>,
    /// The connected control mesh.
    pub mesh: Mesh,
}

/// Where the answers come from.
#[derive(Debug)]
enum Coordinator {
    Here(Box<Root>),
    There(Box<Guest>),
}

impl Join {
    /// Start to join the job `id` as `rank` of `ranks`. `offer` goes to all ranks, or, if it could not be made, the failure does. Time
    /// is counted from `now`; the meeting ends by `deadline`.
    ///
    /// # Errors
    /// `InvalidArgument` for an impossible rank or number of ranks; what the operating system says if rank 0 cannot listen.
    pub fn start(
        id: &UniqueId,
        rank: Rank,
        ranks: u32,
        offer: Result<Vec<u8>, Error>,
        now: Time,
        deadline: Time,
    ) -> Result<Self, Box<InitError>> {
        if ranks == 0 || rank.get() >= ranks {
            return Err(Box::new(InitError::new(
                Kind::InvalidArgument.into(),
                vec![format!("there is no rank {rank} of {ranks}")],
            )));
        }
        let offer = match offer {
            Ok(blob) if blob.len() > OFFER => Err(Error::new(Kind::SizeOverflow)),
            offer => offer,
        };
        let begin = || -> Result<Self> {
            let identity = Identity { rank, incarnation: u64::from_le_bytes(random()?), secret: id.secret().clone() };
            let coordinator = Coordinator::new(id, &identity, ranks, now, deadline)?;
            Ok(Self {
                identity,
                ranks,
                deadline,
                coordinator,
                doorman: None,
                early: Vec::new(),
                offer: Some(offer),
                members: None,
                edges: None,
                prepared: false,
                told: false,
                again: true,
            })
        };
        begin().map_err(|error| {
            Box::new(InitError::new(error, vec![format!("rank {rank} could not listen or dial for {id:?}")]))
        })
    }

    /// Which rank joins.
    pub fn rank(&self) -> Rank {
        self.identity.rank
    }

    /// Join, blocking; `prepare` is called with the table and says whether we can go on.
    pub fn wait(mut self, mut prepare: impl FnMut(&[Member]) -> Result<(), Error>) -> Result<Joined, Box<InitError>> {
        let mut asked = false;
        loop {
            let now = Time::now();
            if let Poll::Ready(result) = self.step(now) {
                return result;
            }
            if let Some(members) = self.on_table().filter(|_| !asked) {
                let outcome = prepare(members);
                asked = true;
                self.ready(outcome, now);
                continue;
            }
            poll::wait(&self.watches(), now, self.wake(now));
        }
    }

    /// Go on.
    pub fn step(&mut self, now: Time) -> Poll<Result<Joined, Box<InitError>>> {
        self.again = false;
        self.claim_vacancy(now);
        self.make_offer(now);
        self.welcome(now);
        match self.coordinator.step(now) {
            Some(Verdict::Table(members)) => self.begin_edges(members),
            Some(Verdict::Go) => return Poll::Ready(self.finish()),
            Some(Verdict::Failed(error, lines)) => return Poll::Ready(Err(Box::new(InitError::new(error, lines)))),
            None => {}
        }
        self.advance_edges(now);
        Poll::Pending
    }

    /// All ranks and their offers, once everybody has come.
    pub fn on_table(&self) -> Option<&[Member]> {
        self.members.as_deref()
    }

    /// Whether we can go on, knowing the table. The first failure of any rank is everybody's.
    pub fn ready(&mut self, outcome: Result<(), Error>, now: Time) {
        self.again = true;
        match outcome {
            Ok(()) => self.prepared = true,
            Err(error) => self.fail(error, now),
        }
    }

    /// What to wait for until the next step.
    pub fn watches(&self) -> Vec<Watch<'_>> {
        let mut watches = Vec::new();
        match &self.coordinator {
            Coordinator::Here(root) => root.watch(&mut watches),
            Coordinator::There(guest) => guest.watch(&mut watches),
        }
        if let Some(edges) = &self.edges {
            edges.watch(&mut watches);
        }
        if let Some(doorman) = &self.doorman {
            doorman.watch(&mut watches);
        }
        watches
    }

    /// When to step again at the latest, if nothing arrives before.
    pub fn wake(&self, now: Time) -> Time {
        let can_offer = self.offer.is_some() && self.coordinator.local_address().is_some();
        if self.again || can_offer {
            return now;
        }
        let coordinator = match &self.coordinator {
            Coordinator::Here(root) => root.wake(),
            Coordinator::There(guest) => guest.wake(),
        };
        coordinator.min(self.edges.as_ref().map_or(Time::NEVER, Edges::wake))
    }

    /// We are rank 0 and the address was in use, but nobody answers there (a connection that ended had its port, for instance): try again.
    fn claim_vacancy(&mut self, now: Time) {
        let Coordinator::There(guest) = &mut self.coordinator else { return };
        let Some(address) = guest.take_vacancy() else { return };
        if let Ok(listener) = TcpListener::bind(address)
            && let Ok(doorman) = Doorman::new(listener, &self.identity, Purpose::Bootstrap, STATEMENT)
        {
            let root = Root::new(self.ranks, self.identity.incarnation, address, Some(doorman), self.deadline, now);
            self.coordinator = Coordinator::Here(Box::new(root));
        }
    }

    /// Say our offer, as soon as we know at which of our addresses peers can reach us.
    fn make_offer(&mut self, now: Time) {
        if let Some(error) = self.offer.as_ref().and_then(|offer| offer.as_ref().err()).copied() {
            self.offer = None;
            return self.fail(error, now);
        }
        let Some(address) = self.coordinator.local_address().filter(|_| self.offer.is_some()) else { return };
        let Some(Ok(blob)) = self.offer.take() else { return };
        match self.listen(address) {
            Err(error) => self.fail(error, now),
            Ok(control) => {
                let (rank, incarnation) = (self.identity.rank, self.identity.incarnation);
                let member =
                    Member { rank, incarnation, host: Host::here(), pid: std::process::id(), control, offer: blob };
                self.tell(Statement::offer(self.ranks, self.deadline.since(now), member), now);
            }
        }
    }

    /// Listen for edges of the control mesh, if a neighbour of ours dials.
    fn listen(&mut self, address: SocketAddr) -> Result<SocketAddr> {
        if self.identity.rank.get() + 1 == self.ranks {
            return Ok(address);
        }
        let mut wanted = address;
        wanted.set_port(0);
        let doorman = Doorman::new(TcpListener::bind(wanted)?, &self.identity, Purpose::Control, FRAME)?;
        let address = doorman.address()?;
        self.doorman = Some(doorman);
        Ok(address)
    }

    /// Neighbours may have their table before us; and strangers must not fill the queue of the listener meanwhile.
    fn welcome(&mut self, now: Time) {
        let arrivals = self.doorman.as_mut().map(|doorman| doorman.step(now)).unwrap_or_default();
        let room = EARLY.saturating_sub(self.early.len());
        self.early.extend(arrivals.into_iter().take(room));
    }

    fn begin_edges(&mut self, members: Vec<Member>) {
        let early = core::mem::take(&mut self.early);
        self.edges = Some(Edges::start(&self.identity, &members, self.doorman.take(), early));
        self.members = Some(members);
    }

    fn advance_edges(&mut self, now: Time) {
        let connected = match self.edges.as_mut().map(|edges| edges.step(now)) {
            None => return,
            Some(Ok(connected)) => connected,
            Some(Err(error)) => return self.fail(error, now),
        };
        if connected && self.prepared && !self.told {
            self.told = true;
            self.tell(Statement::Ready, now);
        }
    }

    fn fail(&mut self, error: Error, now: Time) {
        if !core::mem::replace(&mut self.told, true) {
            let named = error.with_rank(error.rank().unwrap_or(self.identity.rank));
            self.tell(Statement::Failed(named), now);
        }
    }

    fn tell(&mut self, statement: Statement, now: Time) {
        self.again = true;
        self.coordinator.tell(statement, now);
    }

    fn finish(&mut self) -> Result<Joined, Box<InitError>> {
        let (Some(members), Some(edges)) = (self.members.take(), self.edges.take()) else {
            return Err(Box::new(Error::from(Kind::Corrupt).into()));
        };
        let (rank, secret, incarnation) = (self.identity.rank, self.identity.secret.clone(), self.identity.incarnation);
        let mesh = Mesh::new(rank, &members, edges.finish()).map_err(|error| Box::new(error.into()))?;
        Ok(Joined { rank, ranks: self.ranks, secret, incarnation, members, mesh })
    }
}

impl Coordinator {
    fn new(id: &UniqueId, identity: &Identity, ranks: u32, now: Time, deadline: Time) -> Result<Self> {
        let there = |rival| Ok(Self::There(Box::new(Guest::new(identity, ranks, id.address(), deadline, rival))));
        let here = |doorman| {
            Ok(Self::Here(Box::new(Root::new(ranks, identity.incarnation, id.address(), doorman, deadline, now))))
        };
        if ranks == 1 {
            return here(None);
        }
        if identity.rank.get() > 0 {
            return there(Rivalry::None);
        }
        let listener = match id.take_listener() {
            Listener::Taken => return there(Rivalry::Taken),
            Listener::Held(listener) | Listener::Inherited(listener) => listener,
            Listener::Unbound => match TcpListener::bind(id.address()) {
                Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => return there(Rivalry::AddressInUse),
                bound => bound?,
            },
        };
        here(Some(Doorman::new(listener, identity, Purpose::Bootstrap, STATEMENT)?))
    }

    fn tell(&mut self, statement: Statement, now: Time) {
        match self {
            Coordinator::Here(root) => root.tell(statement, now),
            Coordinator::There(guest) => guest.tell(&statement, now),
        }
    }

    fn step(&mut self, now: Time) -> Option<Verdict> {
        match self {
            Coordinator::Here(root) => root.step(now),
            Coordinator::There(guest) => guest.step(now),
        }
    }

    fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Coordinator::Here(root) => Some(root.local_address()),
            Coordinator::There(guest) => guest.local_address(),
        }
    }
}
