//! Bodies of the decoders' fuzz targets: any bytes in a slot against a decoder written byte by byte.

use core::ptr::NonNull;
use std::{vec, vec::Vec};

use super::{advert, frame, ll, ll128};
use crate::sync::Mapped;

/// What follows the payload in a receive buffer, and must stay.
const GUARD: u8 = 0xa5;
const GUARDS: usize = 16;

/// Little-endian words with arbitrary content, and the slot that they are.
struct Slot(Vec<u64>);

impl Slot {
    fn new(bytes: &[u8], words: usize) -> Self {
        let mut slot = vec![0; words];
        for (word, chunk) in slot.iter_mut().zip(bytes.chunks(8)) {
            let mut full = [0; 8];
            full[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(full);
        }
        Self(slot)
    }

    fn words(&mut self) -> Mapped {
        // SAFETY: the vector outlives the use of the words, and is not touched meanwhile.
        unsafe { Mapped::new(NonNull::from(&mut self.0[..]).cast(), self.0.len()) }
    }
}

/// Bytes {payload size, where to go on, flag, slot ..} for LL.
pub fn ll_unpack(input: &[u8]) {
    let [bytes, from, flag, slot @ ..] = input else { return };
    let (bytes, flag) = (*bytes as usize, *flag as u32);
    let lines = ll::lines(bytes);
    let from = *from as usize % (lines + 1);
    let mut slot = Slot::new(slot, 2 * lines);
    let mut buffer = vec![GUARD; bytes + GUARDS];
    // SAFETY: the buffer is longer than `bytes`.
    let next = unsafe { ll::unpack(&slot.words(), buffer.as_mut_ptr(), bytes, flag, from) };

    let mut expected = vec![GUARD; bytes + GUARDS];
    let is_new = |line: &usize| slot.0[2 * line..2 * line + 2].iter().all(|word| (word >> 32) as u32 == flag);
    let ready = (from..lines).take_while(is_new).collect::<Vec<_>>();
    for &line in ready.iter().filter(|line| **line > 0) {
        let start = 8 * (line - 1);
        for (at, byte) in expected[start..bytes.min(start + 8)].iter_mut().enumerate() {
            *byte = (slot.0[2 * line + at / 4] >> (at % 4 * 8)) as u8;
        }
    }
    assert_eq!((next, buffer), (from + ready.len(), expected));
    let header = is_new(&0).then(|| slot.0[0] & 0xffff_ffff | slot.0[1] << 32);
    assert_eq!(ll::header(&slot.words(), flag), header);
}

/// Bytes {payload size / 2, where to go on, flag, slot ..} for LL128.
pub fn ll128_unpack(input: &[u8]) {
    let [bytes, from, flag, slot @ ..] = input else { return };
    let (bytes, flag) = (*bytes as usize * 2 + *from as usize % 2, *flag as u64);
    let lines = ll128::lines(bytes);
    let from = *from as usize % (lines + 1);
    let mut slot = Slot::new(slot, 16 * lines);
    let mut buffer = vec![GUARD; bytes + GUARDS];
    // SAFETY: the buffer is longer than `bytes`.
    let next = unsafe { ll128::unpack(&slot.words(), buffer.as_mut_ptr(), bytes, flag, from) };

    let mut expected = vec![GUARD; bytes + GUARDS];
    let ready = (from..lines).take_while(|line| slot.0[16 * line + 15] == flag).collect::<Vec<_>>();
    for (at, byte) in expected.iter_mut().enumerate().take(bytes) {
        // the header counts as the first 8 bytes of line 0
        let (line, within) = ((at + 8) / 120, (at + 8) % 120);
        if ready.contains(&line) {
            *byte = slot.0[16 * line + within / 8].to_le_bytes()[within % 8];
        }
    }
    assert_eq!((next, buffer), (from + ready.len(), expected));
    let header = (slot.0[15] == flag).then(|| slot.0[0]);
    assert_eq!(ll128::header(&slot.words(), flag), header);
}

/// Any bytes as a frame's header: what is accepted survives being emitted and parsed again.
pub fn frame_header(input: &[u8]) {
    let Some(raw) = input.first_chunk() else { return };
    if let Ok(header) = frame::Header::parse(raw) {
        assert_eq!(frame::Header::parse(&header.emit()), Ok(header));
    }
}

/// Any bytes as what endpoints tell each other: what is accepted is exactly what is emitted for it, and nothing else is.
pub fn endpoint_bytes(input: &[u8]) {
    if let Ok(advert) = advert::Advert::parse(input) {
        let mut emitted = advert.emit();
        // a higher minor version and its features are not ours to repeat
        emitted[10..16].copy_from_slice(&input[10..16]);
        assert_eq!(emitted[..], *input);
    }
    if let Ok(address) = advert::Address::parse(input) {
        let backends: Vec<_> = address.backends().collect();
        assert!(backends.len() <= advert::BACKENDS && input.len() <= advert::MOST);
        let mut emitted = advert::Address::emit(address.who, backends.into_iter()).expect("what was parsed fits");
        emitted[10..16].copy_from_slice(&input[10..16]);
        assert_eq!(emitted, input);
    }
}
