//! Where everything of a connection lies, against arithmetic that cannot overflow.
#![cfg(not(vervain_loom))]

use proptest::prelude::*;
use vervain_transport::{
    Kind,
    wire::{
        LINE,
        connection::{Areas, Extent, Layout},
        ll, ll128,
    },
};

/// Slots of LL, LL128 and Simple in bytes each, and the whole.
fn reference(layout: &Layout) -> ([u128; 3], u128) {
    let up = |bytes: u128| bytes.div_ceil(LINE as u128) * LINE as u128;
    let some = |payload: u64, bytes: u128| if payload == 0 { 0 } else { up(bytes) };
    let [ll, ll128, simple] = [layout.ll_bytes, layout.ll128_bytes, layout.simple_bytes].map(u128::from);
    let slots = [
        some(layout.ll_bytes, (1 + ll.div_ceil(8)) * 16),
        some(layout.ll128_bytes, (8 + ll128).div_ceil(120) * 128),
        some(layout.simple_bytes, simple),
    ];
    let count = layout.slots as u128;
    (slots, 256 + up(count * 16) + slots.iter().sum::<u128>() * count)
}

fn extents(areas: &Areas, slots: u32) -> Vec<Extent> {
    let mut all = vec![areas.tail(), areas.head(), areas.records()];
    for slot in [Areas::ll, Areas::ll128, Areas::simple] {
        all.extend((0..slots).map(|index| slot(areas, index)));
    }
    all
}

fn check(layout: Layout) {
    let ([ll_slot, ll128_slot, simple_slot], total) = reference(&layout);
    let areas = match layout.areas() {
        Ok(areas) => areas,
        Err(kind) => {
            let is_too_many = layout.slots == 0 || layout.slots > ll::SLOTS;
            let expected = if is_too_many { Kind::InvalidArgument } else { Kind::SizeOverflow };
            assert_eq!(kind, expected, "{layout:?}");
            assert!(is_too_many || total > i64::MAX as u128, "{layout:?} fits");
            return;
        }
    };
    assert_eq!(areas.total() as u128, total, "{layout:?}");
    let last = layout.slots - 1;
    let begin = 256 + (layout.slots as u128 * 16).div_ceil(128) * 128;
    let count = layout.slots as u128;
    let expected = [
        (areas.ll(last), begin + ll_slot * last as u128, ll_slot),
        (areas.ll128(last), begin + ll_slot * count + ll128_slot * last as u128, ll128_slot),
        (areas.simple(last), total - simple_slot, simple_slot),
    ];
    for (extent, offset, bytes) in expected {
        assert_eq!((extent.offset as u128, extent.bytes as u128), (offset, bytes), "{layout:?}");
    }
}

#[test]
fn everything_is_aligned_disjoint_and_fills_the_whole() {
    for (slots, ll_bytes, ll128_bytes, simple_bytes) in
        [(1, 1, 1, 1), (8, 32 << 10, 600 << 10, 512 << 10), (3, 0, 113, 0), (5, 0, 0, 127), (64, 8, 112, 128)]
    {
        let areas = Layout { slots, ll_bytes, ll128_bytes, simple_bytes }.areas().unwrap();
        let mut end = 0;
        for extent in extents(&areas, slots) {
            assert_eq!((extent.offset, extent.offset % LINE as u64, extent.bytes % LINE as u64), (end, 0, 0));
            end += extent.bytes;
        }
        assert_eq!(end, areas.total());
    }
}

#[test]
fn offsets_equal_the_reference_at_every_scale() {
    // B04: 8 to 1024 slots of 512 MiB and more, and every power of two beyond
    for slots in [0, 1, 3, 8, 64, 1024, ll::SLOTS, ll::SLOTS + 1, u32::MAX] {
        for power in 0..64 {
            for bytes in [(1_u64 << power) - 1, 1 << power, (1 << power) + 1] {
                check(Layout { slots, ll_bytes: bytes, ll128_bytes: 0, simple_bytes: 0 });
                check(Layout { slots, ll_bytes: 0, ll128_bytes: bytes, simple_bytes: 0 });
                check(Layout { slots, ll_bytes: bytes, ll128_bytes: bytes, simple_bytes: bytes });
            }
        }
        check(Layout { slots, ll_bytes: u64::MAX, ll128_bytes: u64::MAX, simple_bytes: u64::MAX });
    }
}

proptest! {
    #[test]
    fn offsets_equal_the_reference(slots in 0_u32..70_000, ll_bytes: u64, ll128_bytes: u64, simple_bytes: u64, shift in 0_u32..64) {
        check(Layout { slots, ll_bytes: ll_bytes >> shift, ll128_bytes: ll128_bytes >> shift, simple_bytes: simple_bytes >> shift });
    }
}

#[test]
fn a_slot_holds_exactly_the_lines_of_its_payload() {
    for bytes in (0..1000).chain([4095, 4096, 4097, 65535, 65536]) {
        let room = ll::slot_bytes(bytes as u64) as usize / ll::LL_LINE;
        assert!((ll::lines(bytes)..ll::lines(bytes) + LINE / ll::LL_LINE).contains(&room), "LL, {bytes}");
        assert_eq!(ll128::slot_bytes(bytes as u64) as usize, ll128::lines(bytes) * LINE, "LL128, {bytes}");
    }
}
