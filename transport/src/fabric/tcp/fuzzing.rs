//! Bodies of the fuzz targets: bytes from a peer that has proven who it is, and may do anything.

use std::{collections::VecDeque, io};

use libc::iovec;

use super::{
    link::{Context, Link, Peer},
    region::{Regions, Table},
    stream::Stream,
};
use crate::{
    Rank,
    fabric::{Access, LinkId, Op, Span},
};

/// A stream with given bytes that swallows what is sent. Each call gives as many bytes as the next byte of the plan says.
#[derive(Debug)]
struct Script {
    bytes: VecDeque<u8>,
    most: usize,
}

impl Stream for Script {
    unsafe fn receive(&mut self, into: &[iovec]) -> io::Result<usize> {
        let mut got = 0;
        for range in into {
            for at in 0..range.iov_len {
                let next = if got < self.most { self.bytes.pop_front() } else { None };
                let Some(byte) = next else {
                    return if got > 0 { Ok(got) } else { Err(io::ErrorKind::WouldBlock.into()) };
                };
                // SAFETY: the caller promises that the range is valid for writes.
                unsafe { range.iov_base.cast::<u8>().add(at).write(byte) };
                got += 1;
            }
        }
        Ok(got)
    }

    unsafe fn send(&mut self, from: &[iovec]) -> io::Result<usize> {
        Ok(from.iter().map(|range| range.iov_len).sum())
    }
}

/// Advertised memory and the bytes on both sides of it, which nobody may touch.
const ADVERTISED: usize = 256;
const GUARD: usize = 4096;

/// Feed `input` to a link as what its sockets bring.
///
/// The first two bytes choose the number of sockets and where the stream is cut; grant and nonce of the advertised region are
/// put into the frames where they ask for grant 0, so that the fuzzer need not guess 32 random bits.
///
/// # Panics
/// If anything outside the advertised region and the posted memory is written.
pub fn frames(input: &[u8]) {
    let [shape, most, rest @ ..] = input else { return };
    let lanes = usize::from(shape % 3) + 1;
    let most = usize::from(*most) + 1;
    let mut arena = vec![0xa5_u8; 2 * GUARD + ADVERTISED];
    let Some(middle) = core::ptr::NonNull::new(arena[GUARD..].as_mut_ptr()) else { return };
    let mut regions = Regions::default();
    // SAFETY: `arena` outlives `regions`, and is looked at only after the last poll.
    let region = unsafe { regions.register(middle, ADVERTISED) }.expect("a small range");
    let own = regions.allocate(4096).expect("a page");
    let streams = (0..lanes).map(|_| Script { bytes: VecDeque::new(), most }).collect();
    let peer = Peer { rank: Rank::new(1), incarnation: 1, nonce: 1, origin: 0 };
    let mut link = Link::new(LinkId(0), peer, streams);
    let key = link.advertise(region, ADVERTISED as u64, Access::ReadWrite, Rank::new(0)).expect("random bytes");
    let mut events = VecDeque::new();
    let local = Span { region: own, offset: 0, bytes: 64 };
    let ops = [Op::Receive { token: 1, local }, Op::Receive { token: 2, local }, Op::Flush { token: 3 }];
    let mut context = Context { regions: &mut regions, events: &mut events };
    link.post(&ops, &Table::default(), &mut context).expect("valid operations");
    for (index, part) in rest.chunks(rest.len().div_ceil(lanes).max(1)).enumerate() {
        link.stream(index).bytes = with_nonces(part, &key.0[8..12]);
    }
    for _ in 0..64 {
        if let Err(error) = link.poll(&mut context) {
            link.fail(error, &mut context);
            break;
        }
    }
    drop(regions);
    let untouched = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0xa5);
    assert!(untouched(&arena[..GUARD]) && untouched(&arena[GUARD + ADVERTISED..]), "written outside the region");
}

/// `part` with the nonce in every write, read or atomic that stands at a multiple of a header and names grant 0.
fn with_nonces(part: &[u8], nonce: &[u8]) -> VecDeque<u8> {
    let mut bytes = part.to_vec();
    for raw in bytes.chunks_exact_mut(8).collect::<Vec<_>>().chunks_exact_mut(5) {
        if raw[1][..4] == [0; 4] {
            raw[1][4..].copy_from_slice(nonce);
        }
    }
    bytes.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::frame::{Header, Kind};

    proptest! {
        #[test]
        fn arbitrary_bytes_never_write_outside(input in proptest::collection::vec(any::<u8>(), 0..4000)) {
            frames(&input);
        }

        #[test]
        fn arbitrary_frames_never_write_outside(
            shape in any::<[u8; 2]>(),
            frames in proptest::collection::vec((any::<[u8; 40]>(), 1..14_u8, 0..8_u8, 0..400_u16, 0..400_u16, 0..4_u64), 0..20),
        ) {
            let mut input = shape.to_vec();
            for (mut raw, kind, flags, offset, bytes, number) in frames {
                raw[0] = kind;
                raw[1] = flags;
                raw[2..4].fill(0);
                raw[8..12].fill(0);
                raw[16..24].copy_from_slice(&u64::from(offset).to_le_bytes());
                raw[24..32].copy_from_slice(&u64::from(bytes).to_le_bytes());
                raw[32..40].copy_from_slice(&number.to_le_bytes());
                input.extend(raw);
                if let Ok(header) = Header::parse(&raw) {
                    // whole headers, so that the next frame stands where the nonces are put in
                    let payload = header.payload().next_multiple_of(40);
                    input.extend(core::iter::repeat_n(kind, payload as usize));
                }
            }
            super::frames(&input);
        }
    }

    #[test]
    fn a_good_write_lands() {
        let header = Header { flags: Header::LAST, bytes: 0, ..Header::new(Kind::Write) };
        frames(&[&[0, 255][..], &header.emit()].concat());
    }
}
