//! What endpoints tell each other over channels that are not ours: who they are, and which memory a peer may use.
//!
//! ```text
//! both begin   0 magic 8 | 8 major u16 | 10 minor u16 | 12 features u32 | 16 incarnation u64 | 24 endpoint u32
//! address     28 backends u32, then for each: name 8 | length u32 | bytes
//! advert      28 access u32 | 32 bytes u64 | 40 key 32                                  (little-endian)
//! ```
//! `parse` accepts exactly what `emit` produces, names another major version, and allocates nothing.

use crate::Kind;

/// First bytes of an endpoint's address.
const ADDRESS_MAGIC: [u8; 8] = *b"VVENDPNT";
/// First bytes of an advertisement.
const ADVERT_MAGIC: [u8; 8] = *b"VVADVERT";
/// Another major version is refused by name.
pub const MAJOR: u16 = 1;
/// A higher minor version only adds.
pub const MINOR: u16 = 0;
/// Size of an advertisement, in bytes.
pub const ADVERT: usize = 72;
/// Largest address, in bytes.
pub const MOST: usize = 2048;
/// Most backends of an address.
pub const BACKENDS: usize = 8;
/// Largest address of a backend, in bytes.
pub const BACKEND: usize = 256;
/// Size of a backend's name, padded with zeros.
pub const NAME: usize = 8;

const HEAD: usize = 32;

/// Who an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// Its number, as its owner chose.
    pub endpoint: u32,
    /// Its start: a restarted endpoint is another one.
    pub incarnation: u64,
}

/// Memory that one peer may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advert {
    /// Whose memory it is.
    pub owner: Who,
    /// Bit 0: may be read; bit 1: may be written.
    pub access: u32,
    /// Its size.
    pub bytes: u64,
    /// What the fabric gave for it.
    pub key: [u8; 32],
}

impl Advert {
    /// As bytes.
    pub fn emit(&self) -> [u8; ADVERT] {
        let mut bytes = [0; ADVERT];
        head(&mut bytes, ADVERT_MAGIC, self.owner, self.access);
        bytes[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[40..].copy_from_slice(&self.key);
        bytes
    }

    /// The advertisement with these bytes.
    ///
    /// # Errors
    /// `VersionMismatch` for another major version, `Corrupt` for anything else that is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, Kind> {
        let bytes: &[u8; ADVERT] = bytes.try_into().map_err(|_| Kind::Corrupt)?;
        let (owner, access) = parse_head(bytes, ADVERT_MAGIC)?;
        if access == 0 || access > 3 {
            return Err(Kind::Corrupt);
        }
        let key = bytes[40..].try_into().map_err(|_| Kind::Corrupt)?;
        Ok(Self { owner, access, bytes: u64_at(bytes, 32), key })
    }
}

/// An endpoint's address, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address<'a> {
    /// Whose it is.
    pub who: Who,
    backends: &'a [u8],
}

impl<'a> Address<'a> {
    /// The address with these bytes.
    ///
    /// # Errors
    /// `VersionMismatch` for another major version, `Corrupt` for anything else that is none.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Kind> {
        if bytes.len() > MOST {
            return Err(Kind::Corrupt);
        }
        let (who, count) = parse_head(bytes, ADDRESS_MAGIC)?;
        let address = Self { who, backends: &bytes[HEAD..] };
        let mut rest = address.backends;
        for _ in 0..count {
            rest = backend(rest).ok_or(Kind::Corrupt)?.2;
        }
        if rest.is_empty() && count as usize <= BACKENDS { Ok(address) } else { Err(Kind::Corrupt) }
    }

    /// Name and address of each backend.
    pub fn backends(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.backends;
        core::iter::from_fn(move || {
            let (name, address, behind) = backend(rest)?;
            rest = behind;
            Some((name, address))
        })
    }

    /// As bytes; the names are cut to [`NAME`] bytes.
    ///
    /// # Errors
    /// `InvalidArgument` if there are too many backends or an address is too long.
    #[cfg(feature = "alloc")]
    pub fn emit<'b>(
        who: Who,
        backends: impl ExactSizeIterator<Item = (&'b [u8], &'b [u8])>,
    ) -> Result<alloc::vec::Vec<u8>, Kind> {
        if backends.len() > BACKENDS {
            return Err(Kind::InvalidArgument);
        }
        let mut bytes = alloc::vec![0; HEAD];
        head(&mut bytes, ADDRESS_MAGIC, who, backends.len() as u32);
        for (name, address) in backends {
            if address.len() > BACKEND {
                return Err(Kind::InvalidArgument);
            }
            let mut padded = [0; NAME];
            let length = name.len().min(NAME);
            padded[..length].copy_from_slice(&name[..length]);
            bytes.extend_from_slice(&padded);
            bytes.extend_from_slice(&(address.len() as u32).to_le_bytes());
            bytes.extend_from_slice(address);
        }
        Ok(bytes)
    }
}

/// Name without its padding, address, and what follows.
fn backend(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (name, rest) = bytes.split_at_checked(NAME)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let (address, rest) = rest.split_at_checked(length)?;
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME);
    let is_padded = name[end..].iter().all(|&byte| byte == 0);
    (length <= BACKEND && is_padded).then_some((&name[..end], address, rest))
}

fn head(bytes: &mut [u8], magic: [u8; 8], who: Who, last: u32) {
    bytes[..8].copy_from_slice(&magic);
    bytes[8..10].copy_from_slice(&MAJOR.to_le_bytes());
    bytes[10..12].copy_from_slice(&MINOR.to_le_bytes());
    bytes[16..24].copy_from_slice(&who.incarnation.to_le_bytes());
    bytes[24..28].copy_from_slice(&who.endpoint.to_le_bytes());
    bytes[28..32].copy_from_slice(&last.to_le_bytes());
}

fn parse_head(bytes: &[u8], magic: [u8; 8]) -> Result<(Who, u32), Kind> {
    let bytes: &[u8; HEAD] = bytes.first_chunk().ok_or(Kind::Corrupt)?;
    if bytes[..8] != magic {
        return Err(Kind::Corrupt);
    }
    if u16::from_le_bytes([bytes[8], bytes[9]]) != MAJOR {
        return Err(Kind::VersionMismatch);
    }
    // a higher minor version and its features only add: what we do not know of we do not use
    let who = Who { incarnation: u64_at(bytes, 16), endpoint: u32_at(bytes, 24) };
    Ok((who, u32_at(bytes, 28)))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Who = Who { endpoint: 7, incarnation: 99 };

    #[test]
    fn adverts_round_trip_and_cut_or_changed_ones_are_refused() {
        let advert = Advert { owner: WHO, access: 2, bytes: 1 << 40, key: [9; 32] };
        let bytes = advert.emit();
        assert_eq!(Advert::parse(&bytes), Ok(advert));
        for length in 0..ADVERT {
            assert_eq!(Advert::parse(&bytes[..length]), Err(Kind::Corrupt));
        }
        for access in [0, 4, u32::MAX] {
            assert_eq!(Advert::parse(&Advert { access, ..advert }.emit()), Err(Kind::Corrupt));
        }
        for at in 0..8 {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert_eq!(Advert::parse(&changed), Err(Kind::Corrupt));
        }
    }

    #[test]
    fn another_major_version_is_named_and_a_higher_minor_one_is_not() {
        let mut bytes = Advert { owner: WHO, access: 1, bytes: 8, key: [0; 32] }.emit();
        bytes[10] = 200;
        assert!(Advert::parse(&bytes).is_ok());
        bytes[8] = 2;
        assert_eq!(Advert::parse(&bytes), Err(Kind::VersionMismatch));
    }

    #[test]
    fn addresses_round_trip_and_cut_ones_are_refused() {
        let backends = [(&b"shm"[..], &b"somewhere"[..]), (b"tcp", b"")];
        let bytes = Address::emit(WHO, backends.iter().copied()).unwrap();
        let address = Address::parse(&bytes).unwrap();
        assert_eq!(address.who, WHO);
        assert!(address.backends().eq(backends));
        for length in 0..bytes.len() {
            assert_eq!(Address::parse(&bytes[..length]), Err(Kind::Corrupt));
        }
        assert_eq!(Address::parse(&[&bytes[..], &[0]].concat()), Err(Kind::Corrupt));
        let none = Address::emit(WHO, core::iter::empty()).unwrap();
        assert_eq!(Address::parse(&none).unwrap().backends().count(), 0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let long = [0; BACKEND + 1];
        assert_eq!(Address::emit(WHO, [(&b"x"[..], &long[..])].into_iter()), Err(Kind::InvalidArgument));
        let many = [(&b"x"[..], &b""[..]); BACKENDS + 1];
        assert_eq!(Address::emit(WHO, many.into_iter()), Err(Kind::InvalidArgument));
    }
}
