//! The handshake that opens every control and data connection: both ends prove that they know the job's secret.
//!
//! ```text
//! dialer                                            acceptor
//!   Hello     {version, purpose, from, to, nonce d}  ->
//!        <-  Challenge {version, incarnation, nonce a, HMAC(secret, "accept", hello, nonce a ..)}
//!   Proof     {HMAC(secret, "dial", hello, challenge)} ->
//! ```
//! A recorded hello is useless: the proof covers the acceptor's fresh nonce. A stranger learns nothing but the version. The
//! payload that follows is not authenticated. Pure: bytes in, bytes out; the caller owns the socket and the deadline.

use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{Error, Kind, Rank, Result, fabric::Identity};

/// First bytes of every handshake.
pub const MAGIC: [u8; 8] = *b"VERVAIN\0";
/// Another major version is refused by name.
pub const MAJOR: u16 = 1;
/// A higher minor version only adds.
pub const MINOR: u16 = 0;
/// Size of the dialer's first message, in bytes.
pub const HELLO: usize = 72;
/// Size of the acceptor's answer, in bytes.
pub const CHALLENGE: usize = 88;
/// Size of the dialer's second message, in bytes.
pub const PROOF: usize = 32;

/// 256 bits shared by all ranks of a job. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A fresh random secret.
    pub fn generate() -> Result<Self> {
        Ok(Self(random()?))
    }

    /// The secret with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret of 64 hexadecimal digits, with or without space around them.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.trim().as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// As 64 hexadecimal digits. Who sees them knows the secret.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The bytes, to pass to another rank over a channel that others cannot read.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a connection is for; both ends must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Meeting of all ranks at rank 0.
    Bootstrap = 1,
    /// An edge of the control mesh.
    Control = 2,
    /// A data link.
    Link = 3,
}

/// Who is at the other end, proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its rank.
    pub rank: Rank,
    /// Its start.
    pub incarnation: u64,
    /// Features that both sides have.
    pub features: u32,
}

/// Fresh random bytes.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| Error::new(Kind::Os))?;
    Ok(bytes)
}

/// The dialling end.
#[derive(Debug)]
pub struct Dialer {
    secret: Secret,
    to: Rank,
    hello: [u8; HELLO],
}

impl Dialer {
    /// A dialer that will talk to `to` only.
    pub fn new(identity: &Identity, purpose: Purpose, to: Rank) -> Result<Self> {
        let mut hello = [0; HELLO];
        hello[..8].copy_from_slice(&MAGIC);
        hello[8..10].copy_from_slice(&MAJOR.to_le_bytes());
        hello[10..12].copy_from_slice(&MINOR.to_le_bytes());
        hello[16..20].copy_from_slice(&(purpose as u32).to_le_bytes());
        hello[20..24].copy_from_slice(&identity.rank.get().to_le_bytes());
        hello[24..28].copy_from_slice(&to.get().to_le_bytes());
        hello[32..40].copy_from_slice(&identity.incarnation.to_le_bytes());
        hello[40..72].copy_from_slice(&random::<32>()?);
        Ok(Self { secret: identity.secret.clone(), to, hello })
    }

    /// The first message to send.
    pub fn hello(&self) -> &[u8; HELLO] {
        &self.hello
    }

    /// The acceptor's answer arrived: who it is, and the second message to send.
    ///
    /// # Errors
    /// `Corrupt`, `VersionMismatch`, or `Unauthenticated` if the acceptor does not know the secret.
    pub fn on_challenge(&self, challenge: &[u8; CHALLENGE]) -> Result<(Peer, [u8; PROOF])> {
        let fail = |kind| Error::new(kind).with_rank(self.to);
        version_of(challenge).map_err(fail)?;
        accept_tag(&self.secret, &self.hello, challenge)
            .verify_slice(&challenge[56..88])
            .map_err(|_| fail(Kind::Unauthenticated))?;
        let peer = Peer { rank: self.to, incarnation: u64_at(challenge, 16), features: u32_at(challenge, 12) };
        let proof = dial_tag(&self.secret, &self.hello, challenge).finalize().into_bytes();
        Ok((peer, proof.into()))
    }
}

/// The accepting end.
#[derive(Debug)]
pub struct Acceptor {
    identity: Identity,
    purpose: Purpose,
    exchange: Option<([u8; HELLO], [u8; CHALLENGE])>,
}

impl Acceptor {
    /// An acceptor for one incoming connection.
    pub fn new(identity: &Identity, purpose: Purpose) -> Self {
        Self { identity: identity.clone(), purpose, exchange: None }
    }

    /// The dialer's first message arrived: what to answer.
    ///
    /// # Errors
    /// `Corrupt`, `VersionMismatch`, or `InvalidUsage` if it wants another rank or purpose. Drop the connection then.
    pub fn on_hello(&mut self, hello: &[u8; HELLO]) -> Result<[u8; CHALLENGE]> {
        version_of(hello)?;
        if u32_at(hello, 16) != self.purpose as u32 || u32_at(hello, 24) != self.identity.rank.get() {
            return Err(Kind::InvalidUsage.into());
        }
        let mut challenge = [0; CHALLENGE];
        challenge[..8].copy_from_slice(&MAGIC);
        challenge[8..10].copy_from_slice(&MAJOR.to_le_bytes());
        challenge[10..12].copy_from_slice(&MINOR.to_le_bytes());
        challenge[16..24].copy_from_slice(&self.identity.incarnation.to_le_bytes());
        challenge[24..56].copy_from_slice(&random::<32>()?);
        let tag = accept_tag(&self.identity.secret, hello, &challenge).finalize().into_bytes();
        challenge[56..88].copy_from_slice(&tag);
        self.exchange = Some((*hello, challenge));
        Ok(challenge)
    }

    /// The dialer's second message arrived: who it is.
    ///
    /// # Errors
    /// `Unauthenticated` if it does not know the secret; `InvalidUsage` before [`Acceptor::on_hello`].
    pub fn on_proof(&mut self, proof: &[u8; PROOF]) -> Result<Peer> {
        let (hello, challenge) = self.exchange.take().ok_or(Kind::InvalidUsage)?;
        dial_tag(&self.identity.secret, &hello, &challenge).verify_slice(proof).map_err(|_| Kind::Unauthenticated)?;
        Ok(Peer { rank: Rank::new(u32_at(&hello, 20)), incarnation: u64_at(&hello, 32), features: u32_at(&hello, 12) })
    }
}

fn version_of(message: &[u8]) -> Result<(), Kind> {
    if message[..8] != MAGIC {
        return Err(Kind::Corrupt);
    }
    if message[8..10] != MAJOR.to_le_bytes() {
        return Err(Kind::VersionMismatch);
    }
    Ok(())
}

fn accept_tag(secret: &Secret, hello: &[u8; HELLO], challenge: &[u8; CHALLENGE]) -> Hmac<Sha256> {
    tag(secret, b"accept", hello, &challenge[..56])
}

fn dial_tag(secret: &Secret, hello: &[u8; HELLO], challenge: &[u8; CHALLENGE]) -> Hmac<Sha256> {
    tag(secret, b"dial", hello, challenge)
}

fn tag(secret: &Secret, role: &[u8], hello: &[u8], challenge: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes a key of any length");
    mac.update(role);
    mac.update(hello);
    mac.update(challenge);
    mac
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(rank: u32, secret: u8) -> Identity {
        Identity { rank: Rank::new(rank), incarnation: u64::from(rank) + 100, secret: Secret([secret; 32]) }
    }

    #[test]
    fn secret_is_read_from_what_it_is_written_as_and_from_nothing_else() {
        let secret = Secret(core::array::from_fn(|at| at as u8 * 8));
        let text = secret.to_hex();
        assert_eq!(Secret::from_hex(&text), Some(secret.clone()));
        assert_eq!(Secret::from_hex(&format!(" {}\n", text.to_uppercase())), Some(secret));
        for wrong in ["", &text[1..], &format!("{text}0"), &"+1".repeat(32), &"é".repeat(32)] {
            assert_eq!(Secret::from_hex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn both_ends_learn_who_the_other_is() {
        let dialer = Dialer::new(&identity(1, 7), Purpose::Link, Rank::new(0)).unwrap();
        let mut acceptor = Acceptor::new(&identity(0, 7), Purpose::Link);
        let challenge = acceptor.on_hello(dialer.hello()).unwrap();
        let (peer, proof) = dialer.on_challenge(&challenge).unwrap();
        assert_eq!((peer.rank.get(), peer.incarnation), (0, 100));
        let peer = acceptor.on_proof(&proof).unwrap();
        assert_eq!((peer.rank.get(), peer.incarnation), (1, 101));
    }

    #[test]
    fn wrong_secret_is_refused_on_either_side() {
        let dialer = Dialer::new(&identity(1, 7), Purpose::Link, Rank::new(0)).unwrap();
        let mut acceptor = Acceptor::new(&identity(0, 8), Purpose::Link);
        let challenge = acceptor.on_hello(dialer.hello()).unwrap();
        assert_eq!(dialer.on_challenge(&challenge).unwrap_err().kind(), Kind::Unauthenticated);
        assert_eq!(acceptor.on_proof(&[0; PROOF]).unwrap_err().kind(), Kind::Unauthenticated);
    }

    #[test]
    fn replayed_hello_and_proof_are_refused() {
        let dialer = Dialer::new(&identity(1, 7), Purpose::Link, Rank::new(0)).unwrap();
        let mut acceptor = Acceptor::new(&identity(0, 7), Purpose::Link);
        let challenge = acceptor.on_hello(dialer.hello()).unwrap();
        let (_, proof) = dialer.on_challenge(&challenge).unwrap();
        let mut later = Acceptor::new(&identity(0, 7), Purpose::Link);
        later.on_hello(dialer.hello()).unwrap();
        assert_eq!(later.on_proof(&proof).unwrap_err().kind(), Kind::Unauthenticated);
    }

    #[test]
    fn other_purpose_rank_version_and_garbage_are_refused() {
        let dialer = Dialer::new(&identity(1, 7), Purpose::Link, Rank::new(0)).unwrap();
        let refuse = |rank, purpose, change: &dyn Fn(&mut [u8; HELLO])| {
            let mut hello = *dialer.hello();
            change(&mut hello);
            Acceptor::new(&identity(rank, 7), purpose).on_hello(&hello).unwrap_err().kind()
        };
        assert_eq!(refuse(0, Purpose::Control, &|_| {}), Kind::InvalidUsage);
        assert_eq!(refuse(2, Purpose::Link, &|_| {}), Kind::InvalidUsage);
        assert_eq!(refuse(0, Purpose::Link, &|hello| hello[8] = 9), Kind::VersionMismatch);
        assert_eq!(refuse(0, Purpose::Link, &|hello| hello[0] = b'G'), Kind::Corrupt);
    }

    #[test]
    fn no_changed_byte_survives() {
        let dialer = Dialer::new(&identity(1, 7), Purpose::Link, Rank::new(0)).unwrap();
        for at in 0..CHALLENGE {
            let mut acceptor = Acceptor::new(&identity(0, 7), Purpose::Link);
            let mut challenge = acceptor.on_hello(dialer.hello()).unwrap();
            challenge[at] ^= 1;
            assert!(dialer.on_challenge(&challenge).is_err(), "byte {at}");
        }
    }
}
