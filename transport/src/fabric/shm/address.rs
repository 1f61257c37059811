//! What a peer needs to know to dial: the host it must be on and the name of an abstract socket.

use std::os::unix::fs::MetadataExt;

use crate::{Error, Kind, Rank, Result, auth};

/// Size of an address, in bytes.
const BYTES: usize = 72;
const MAGIC: [u8; 8] = *b"VVSHM\0\0\x01";

/// The parsed address of a shared-memory fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// Differs between two starts of a machine, and between machines.
    boot: [u8; 16],
    /// Inode of the network namespace: abstract sockets are seen only within one.
    network: u64,
    /// Inode of the process namespace, so that a report can say why a pull is impossible.
    processes: u64,
    /// Process number in its own namespace; for reports.
    pub pid: u32,
    /// Who listens.
    pub rank: Rank,
    /// Its start.
    pub incarnation: u64,
    /// Random name of the socket; the kernel forgets it with the process.
    pub name: Name,
}

/// Name of an abstract socket.
pub(super) type Name = [u8; 16];

impl Address {
    /// Our own, with a fresh name.
    pub fn here(rank: Rank, incarnation: u64) -> Result<Self> {
        Ok(Self {
            boot: boot_id()?,
            network: std::fs::metadata("/proc/self/ns/net").map_or(0, |file| file.ino()),
            processes: std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino()),
            pid: std::process::id(),
            rank,
            incarnation,
            name: auth::random()?,
        })
    }

    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(MAGIC);
        bytes.extend(self.boot);
        bytes.extend(self.network.to_le_bytes());
        bytes.extend(self.processes.to_le_bytes());
        bytes.extend(self.pid.to_le_bytes());
        bytes.extend(self.rank.get().to_le_bytes());
        bytes.extend(self.incarnation.to_le_bytes());
        bytes.extend(self.name);
        debug_assert_eq!(bytes.len(), BYTES);
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        if bytes[..8] != MAGIC {
            return None;
        }
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Some(Self {
            boot: bytes[8..24].try_into().expect("sixteen bytes"),
            network: u64_at(24),
            processes: u64_at(32),
            pid: u32_at(40),
            rank: Rank::new(u32_at(44)),
            incarnation: u64_at(48),
            name: bytes[56..72].try_into().expect("sixteen bytes"),
        })
    }

    /// Both are on one start of one machine and see each other's sockets.
    pub fn shares_host_with(&self, other: &Self) -> bool {
        self.boot == other.boot && self.network == other.network
    }
}

/// Whether the fabrics with these addresses can reach each other through shared memory.
///
/// False for anything that is not an address of this backend.
pub fn same_host(one: &[u8], other: &[u8]) -> bool {
    match (Address::parse(one), Address::parse(other)) {
        (Some(one), Some(other)) => one.shares_host_with(&other),
        _ => false,
    }
}

fn boot_id() -> Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: Vec<u8> =
        text.bytes().filter_map(|byte| (byte as char).to_digit(16)).map(|digit| digit as u8).collect();
    let mut id = [0; 16];
    if digits.len() != 32 {
        return Err(Error::new(Kind::Os));
    }
    for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_returns_what_emit_wrote() {
        let address = Address::here(Rank::new(3), 77).unwrap();
        assert_eq!(Address::parse(&address.emit()), Some(address));
    }

    #[test]
    fn other_lengths_and_magic_are_no_address() {
        let bytes = Address::here(Rank::new(0), 1).unwrap().emit();
        assert_eq!(Address::parse(&bytes[..BYTES - 1]), None);
        assert_eq!(Address::parse(&[]), None);
        let mut other = bytes.clone();
        other[0] ^= 1;
        assert_eq!(Address::parse(&other), None);
        assert!(!same_host(&bytes, &other));
    }

    #[test]
    fn host_is_shared_by_boot_and_network_namespace() {
        let one = Address::here(Rank::new(0), 1).unwrap();
        assert!(same_host(&one.emit(), &Address::here(Rank::new(1), 2).unwrap().emit()));
        let mut boot = one;
        boot.boot[15] ^= 1;
        assert!(!one.shares_host_with(&boot));
        assert!(!one.shares_host_with(&Address { network: one.network ^ 1, ..one }));
    }
}
