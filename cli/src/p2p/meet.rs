//! How the two sides find each other: one socket, an authenticated handshake, and one message each way.
//!
//! The initiator says what is to be done and where its endpoint is; the target judges it, and answers with a refusal or with
//! its own endpoint's address. From there on the two talk through their endpoints.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self as unix, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use vervain_transport::auth::{Acceptor, CHALLENGE, Dialer, HELLO, PROOF, Purpose, Secret, random};
use vervain_transport::fabric::Identity;
use vervain_transport::{Kind, Rank};

use super::job::Job;
use super::settings::Trust;
use crate::exit::Failure;

/// What the initiator says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Proposal {
    /// The version of its program.
    pub version: String,
    /// What is to be done.
    pub job: Job,
    /// Who it is.
    pub person: Person,
    /// Where its endpoint is.
    pub address: Vec<u8>,
}

/// What the target answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It takes part.
    Yes {
        /// Who it is.
        person: Person,
        /// Where its endpoint is.
        address: Vec<u8>,
    },
    /// It does not, for the reason that the sentence gives.
    No(String),
}

/// One side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Its core, if it is pinned to one.
    pub core: Option<usize>,
    /// Its host's processor.
    pub processor: String,
}

/// The two numbers of the handshake.
const INITIATOR: Rank = Rank::new(0);
const TARGET: Rank = Rank::new(1);
/// Longest message, in bytes.
const LONGEST: usize = 256 << 10;
/// How long somebody who connects may take for each step.
const STEP: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(2);
/// What everybody knows.
const NO_SECRET: [u8; 32] = *b"vervain: p2p, nothing was agreed";

/// The secret that both sides know.
pub fn secret(trust: Trust) -> Result<Secret, Failure> {
    match (trust, std::env::var("VERVAIN_SECRET")) {
        (Trust::Anybody, _) => {
            eprintln!("warning: INSECURE: whoever reaches our ports can connect and read or write what is measured");
            Ok(Secret::from_bytes(NO_SECRET))
        }
        (Trust::Secret, Ok(text)) => Secret::from_hex(&text).ok_or_else(|| {
            Failure::usage("VERVAIN_SECRET is not 64 hexadecimal digits; make one with `openssl rand -hex 32`")
        }),
        (Trust::Secret, Err(_)) => Err(Failure::usage("no secret: set VERVAIN_SECRET on both sides to the same")
            .and("64 hexadecimal digits (`openssl rand -hex 32` makes them), or go on with --insecure")),
    }
}

/// Two processes of one host meet by the name of their launcher's address, which no other job has.
pub fn local_name(bootstrap: &str) -> String {
    format!("vervain-p2p-{bootstrap}")
}

/// A socket to the other side, which has proven that it knows the secret.
#[derive(Debug)]
pub struct Channel {
    stream: Stream,
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Channel {
    /// Be the initiator of a target of this host.
    pub fn to_local(name: &str, secret: &Secret, patience: Duration) -> Result<Self, Failure> {
        let address = abstract_name(name)?;
        let stream = until(patience, || UnixStream::connect_addr(&address).map(Stream::Unix))
            .map_err(|error| Failure::failed(format!("the target did not start: {error}")))?;
        Self::dial(stream, secret, patience)
    }

    /// Be the initiator of a target on another host.
    pub fn to(address: &str, secret: &Secret, patience: Duration) -> Result<Self, Failure> {
        let resolve = |error| Failure::usage(format!("--connect {address} is no host and port: {error}"));
        let found: Vec<SocketAddr> = address.to_socket_addrs().map_err(resolve)?.collect();
        let stream = until(patience, || connect(&found, patience).map(Stream::Tcp))
            .map_err(|error| Failure::failed(format!("{address} cannot be reached: {error}")))?;
        Self::dial(stream, secret, patience)
    }

    /// Be the target of an initiator of this host.
    pub fn from_local(name: &str, secret: &Secret, patience: Duration) -> Result<Self, Failure> {
        let cannot = |error| Failure::failed(format!("no socket to meet at: {error}"));
        let listener = UnixListener::bind_addr(&abstract_name(name)?).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        loop {
            let (stream, _) = until(patience, || listener.accept())
                .map_err(|error| Failure::failed(format!("the initiator did not come: {error}")))?;
            stream.set_nonblocking(false).map_err(cannot)?;
            match Self::accept(Stream::Unix(stream), secret, patience) {
                Ok(channel) => return Ok(channel),
                Err(error) => eprintln!("warning: a stranger was refused: {error}"),
            }
        }
    }

    /// Be the target of an initiator on another host. Waits until one comes.
    pub fn from(address: SocketAddr, secret: &Secret, patience: Duration) -> Result<Self, Failure> {
        let cannot = |error| Failure::failed(format!("--listen {address} does not work: {error}"));
        let listener = TcpListener::bind(address).map_err(cannot)?;
        super::say(&format!("# listening on {}", listener.local_addr().map_err(cannot)?));
        loop {
            let (stream, from) = listener.accept().map_err(cannot)?;
            match Self::accept(Stream::Tcp(stream), secret, patience) {
                Ok(channel) => return Ok(channel),
                Err(error) => eprintln!("warning: a stranger at {from} was refused: {error}"),
            }
        }
    }

    fn dial(stream: Stream, secret: &Secret, patience: Duration) -> Result<Self, Failure> {
        let mut channel = Self { stream };
        let greeted = channel.set_patience(STEP).and_then(|()| channel.greet(secret));
        greeted.and_then(|()| channel.set_patience(patience)).map_err(|error| {
            Failure::failed(format!("the target does not know our secret, or is no vervain p2p: {error}"))
        })?;
        Ok(channel)
    }

    fn greet(&mut self, secret: &Secret) -> vervain_transport::Result<()> {
        let dialer = Dialer::new(&identity(INITIATOR, secret)?, Purpose::Bootstrap, TARGET)?;
        self.stream.write_all(dialer.hello())?;
        let (_, proof) = dialer.on_challenge(&self.bytes::<CHALLENGE>()?)?;
        Ok(self.stream.write_all(&proof)?)
    }

    fn accept(stream: Stream, secret: &Secret, patience: Duration) -> vervain_transport::Result<Self> {
        let mut channel = Self { stream };
        channel.set_patience(STEP)?;
        let mut acceptor = Acceptor::new(&identity(TARGET, secret)?, Purpose::Bootstrap);
        let challenge = acceptor.on_hello(&channel.bytes::<HELLO>()?)?;
        channel.stream.write_all(&challenge)?;
        acceptor.on_proof(&channel.bytes::<PROOF>()?)?;
        channel.set_patience(patience)?;
        Ok(channel)
    }

    fn set_patience(&self, patience: Duration) -> vervain_transport::Result<()> {
        match &self.stream {
            Stream::Unix(stream) => stream.set_read_timeout(Some(patience))?,
            Stream::Tcp(stream) => stream.set_read_timeout(Some(patience))?,
        }
        Ok(())
    }

    /// Our address that the other side reaches.
    pub fn our_address(&self) -> IpAddr {
        match &self.stream {
            Stream::Unix(_) => Ipv4Addr::LOCALHOST.into(),
            Stream::Tcp(stream) => stream.local_addr().map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip()),
        }
    }

    fn bytes<const N: usize>(&mut self) -> vervain_transport::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Say something.
    pub fn write(&mut self, message: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_vec(message).map_err(|error| gone(&error))?;
        let length = (text.len() as u32).to_le_bytes();
        self.stream.write_all(&length).and_then(|()| self.stream.write_all(&text)).map_err(|error| gone(&error))
    }

    /// Hear something.
    pub fn read<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let length = u32::from_le_bytes(self.bytes().map_err(|error| gone(&error))?) as usize;
        if length > LONGEST {
            return Err(gone(&vervain_transport::Error::new(Kind::Corrupt)));
        }
        let mut text = vec![0; length];
        self.stream.read_exact(&mut text).map_err(|error| gone(&error))?;
        serde_json::from_slice(&text).map_err(|error| gone(&error))
    }
}

fn gone(error: &dyn core::fmt::Display) -> Failure {
    Failure::failed(format!("the other side left before the start, or is another version: {error}"))
}

fn identity(rank: Rank, secret: &Secret) -> vervain_transport::Result<Identity> {
    Ok(Identity { rank, incarnation: u64::from_le_bytes(random()?), secret: secret.clone() })
}

fn abstract_name(name: &str) -> Result<unix::SocketAddr, Failure> {
    unix::SocketAddr::from_abstract_name(name)
        .map_err(|error| Failure::failed(format!("{name} is no name of a socket: {error}")))
}

/// Connect to the first of these that answers; a host that does not answer at all takes no longer than our patience.
fn connect(addresses: &[SocketAddr], patience: Duration) -> std::io::Result<TcpStream> {
    let mut result = Err(ErrorKind::AddrNotAvailable.into());
    for address in addresses {
        result = TcpStream::connect_timeout(address, patience / addresses.len() as u32);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Try again until it works, or for so long.
fn until<T>(patience: Duration, mut attempt: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Err(error) if begin.elapsed() < patience && is_early(error.kind()) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
}

/// Whether it may work later.
fn is_early(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotFound)
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(into),
            Stream::Tcp(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(from),
            Stream::Tcp(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(ours: Secret, theirs: Secret) -> (Result<Channel, Failure>, vervain_transport::Result<Channel>) {
        let (here, there) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let target = scope.spawn(move || Channel::accept(Stream::Unix(there), &theirs, STEP));
            let initiator = Channel::dial(Stream::Unix(here), &ours, STEP);
            (initiator, target.join().unwrap())
        })
    }

    #[test]
    fn those_who_know_the_secret_can_talk() {
        let secret = || Secret::from_bytes([3; 32]);
        let (here, there) = both(secret(), secret());
        let (mut here, mut there) = (here.unwrap(), there.unwrap());
        here.write(&Answer::No("too small".into())).unwrap();
        assert!(matches!(there.read::<Answer>().unwrap(), Answer::No(why) if why == "too small"));
        drop(here);
        assert!(there.read::<Answer>().is_err());
    }

    #[test]
    fn strangers_are_refused_by_both() {
        let (here, there) = both(Secret::from_bytes([3; 32]), Secret::from_bytes([4; 32]));
        assert!(here.unwrap_err().to_string().contains("secret"));
        assert!(there.is_err());
    }

    #[test]
    fn lengths_are_not_believed() {
        let secret = || Secret::from_bytes([3; 32]);
        let (here, there) = both(secret(), secret());
        here.unwrap().stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert!(there.unwrap().read::<Answer>().is_err());
    }
}
