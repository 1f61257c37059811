//! What the examples share: processes, a byte channel to each, endpoints with one secret, and waiting.
//!
//! A process of an example is the same program again, with its role as the argument. The channel stands for whatever an
//! embedding system has to tell addresses and advertisements by. A process ends with its example, also when that fails: it
//! is killed when its handle is dropped, and by itself when the channel closes or a deadline passes.

#![allow(dead_code)] // each example uses a part of it

use std::error::Error;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::Duration;

use vervain_transport::Time;
use vervain_transport::auth::Secret;
use vervain_transport::endpoint::{Builder, Endpoint, PeerEvent, PeerId, Posted};

pub type Result<T = (), E = Box<dyn Error>> = core::result::Result<T, E>;

/// No example waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn soon() -> Time {
    Time::now().after(PATIENCE)
}

/// Byte strings in both directions.
#[derive(Debug)]
pub struct Channel(UnixStream);

impl Channel {
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(&(bytes.len() as u32).to_le_bytes())?;
        self.0.write_all(bytes)
    }

    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// A process of ours.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pub channel: Channel,
}

impl Process {
    pub fn start(role: &str) -> Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        let child = Command::new(std::env::current_exe()?)
            .arg(role)
            .env("VERVAIN_SECRET", secret()?)
            .stdin(OwnedFd::from(theirs))
            .spawn()?;
        Ok(Self { child, channel: Channel(ours) })
    }

    /// Wait for its end, which must be a good one.
    pub fn finish(mut self) -> Result {
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("a process of the example ended with {status}").into()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The role and the channel of a process that was started by [`Process::start`]; `None` in the one that the user started.
pub fn role() -> Result<Option<(String, Channel)>> {
    let Some(role) = std::env::args().nth(1) else { return Ok(None) };
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(Some((role, Channel(stream))))
}

/// An endpoint to be built, with the secret of this run.
pub fn endpoint() -> Result<Builder> {
    let secret = Secret::from_hex(secret()?).ok_or("VERVAIN_SECRET is not 64 hexadecimal digits")?;
    Ok(Endpoint::builder().secret(secret))
}

/// Made by the first process, told to the others.
fn secret() -> Result<&'static str> {
    static SECRET: OnceLock<String> = OnceLock::new();
    let fresh = Secret::generate()?;
    let told = std::env::var("VERVAIN_SECRET");
    let hex = || fresh.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(SECRET.get_or_init(|| told.unwrap_or_else(|_| hex())))
}

/// The next peer that connects to us.
pub fn accept(endpoint: &mut Endpoint) -> Result<PeerId> {
    let up = endpoint.wait_until(soon(), |endpoint| match endpoint.next_peer_event()? {
        PeerEvent::Up(peer) => Some(Ok(peer)),
        PeerEvent::Down(_, error) => Some(Err(error)),
    });
    Ok(up??)
}

/// Serve the peer until it has left.
pub fn until_left(endpoint: &mut Endpoint) -> Result {
    let left = |endpoint: &mut Endpoint| matches!(endpoint.next_peer_event()?, PeerEvent::Down(..)).then_some(());
    Ok(endpoint.wait_until(soon(), left)?)
}

/// Wait for a message.
pub fn receive(endpoint: &mut Endpoint) -> Result<Vec<u8>> {
    Ok(endpoint.wait_until(soon(), |endpoint| endpoint.next_message().map(|message| message.bytes.to_vec()))?)
}

/// Start a transfer and wait for its end, which must be a good one.
pub fn finish(endpoint: &mut Endpoint, post: impl FnMut(&mut Endpoint) -> vervain_transport::Result<Posted>) -> Result {
    let transfer = endpoint.wait_start(soon(), post)?;
    Ok(endpoint.wait(transfer)?.end.ok()?)
}
