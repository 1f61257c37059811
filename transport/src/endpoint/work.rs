//! What a transfer has still to hand to the fabric.

use alloc::{vec, vec::Vec};

use super::table::NONE;
use crate::fabric::{Op, RegionId, RemoteId, Span, Target};

/// The rest of a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Everything is handed over.
    Nothing,
    /// One operation that was not accepted yet.
    One(Op),
    /// Pages, in order.
    Pages(PagesLeft),
}

/// Pages that were not accepted yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PagesLeft {
    pub region: RegionId,
    pub remote: RemoteId,
    pub bytes: u64,
    pub local: Side,
    pub target: Side,
    pub left: u32,
    pub immediate: Option<u32>,
}

/// Where pages lie on one side: page number times stride, after an offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub offset: u64,
    pub stride: u64,
    pub numbers: Numbers,
}

/// The numbers of pages.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbers {
    /// Counted up from here.
    From(u32),
    /// Kept in a list.
    List(Cursor),
}

/// A place in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    block: u32,
    at: u8,
}

const BLOCK: usize = 62;

/// Lists of page numbers in blocks of fixed size, all of them made in advance.
#[derive(Debug)]
pub(super) struct Lists {
    blocks: Vec<Block>,
    free: u32,
    available: usize,
}

#[derive(Clone, Debug)]
struct Block {
    numbers: [u32; BLOCK],
    next: u32,
}

impl Lists {
    pub fn new(numbers: usize) -> Self {
        let count = numbers.div_ceil(BLOCK);
        let mut blocks = vec![Block { numbers: [0; BLOCK], next: NONE }; count];
        for (block, next) in blocks.iter_mut().zip(1u32..).take(count.saturating_sub(1)) {
            block.next = next;
        }
        Self { free: if count == 0 { NONE } else { 0 }, available: count, blocks }
    }

    /// Whether lists of these lengths fit.
    pub fn has_room(&self, lengths: [usize; 2]) -> bool {
        lengths.iter().map(|length| length.div_ceil(BLOCK)).sum::<usize>() <= self.available
    }

    /// Whether lists of these lengths could ever fit.
    pub fn could_hold(&self, lengths: [usize; 2]) -> bool {
        lengths.iter().map(|length| length.div_ceil(BLOCK)).sum::<usize>() <= self.blocks.len()
    }

    /// Keep a list for which there is room.
    pub fn keep(&mut self, numbers: &[u32]) -> Cursor {
        let (mut first, mut last) = (NONE, NONE);
        for part in numbers.chunks(BLOCK) {
            let index = self.free;
            let block = &mut self.blocks[index as usize];
            self.free = block.next;
            self.available -= 1;
            block.numbers[..part.len()].copy_from_slice(part);
            block.next = NONE;
            match last {
                NONE => first = index,
                last => self.blocks[last as usize].next = index,
            }
            last = index;
        }
        Cursor { block: first, at: 0 }
    }

    fn get(&self, cursor: Cursor) -> u32 {
        // the last step leads behind the end, where nobody looks
        self.blocks.get(cursor.block as usize).map_or(0, |block| block.numbers[usize::from(cursor.at)])
    }

    fn look_ahead(&self, cursor: &mut Cursor) {
        cursor.at += 1;
        if usize::from(cursor.at) == BLOCK {
            *cursor = Cursor { block: self.blocks[cursor.block as usize].next, at: 0 };
        }
    }

    /// Step on; blocks behind are free again.
    fn step(&mut self, cursor: &mut Cursor) {
        let behind = cursor.block;
        self.look_ahead(cursor);
        if cursor.block != behind {
            self.give_back(behind);
        }
    }

    fn give_back(&mut self, block: u32) {
        self.blocks[block as usize].next = self.free;
        self.free = block;
        self.available += 1;
    }

    /// Drop the rest of a list.
    pub fn drop(&mut self, numbers: Numbers) {
        let Numbers::List(mut cursor) = numbers else { return };
        while cursor.block != NONE {
            let next = self.blocks[cursor.block as usize].next;
            self.give_back(cursor.block);
            cursor.block = next;
        }
    }
}

impl Side {
    fn at(&self, lists: &Lists) -> u64 {
        let number = match self.numbers {
            Numbers::From(next) => u64::from(next),
            Numbers::List(cursor) => u64::from(lists.get(cursor)),
        };
        self.offset + number * self.stride
    }

    /// Step on without giving anything back.
    fn look_ahead(&mut self, lists: &Lists) {
        match &mut self.numbers {
            Numbers::From(next) => *next += 1,
            Numbers::List(cursor) => lists.look_ahead(cursor),
        }
    }

    fn step(&mut self, lists: &mut Lists) {
        match &mut self.numbers {
            Numbers::From(next) => *next += 1,
            Numbers::List(cursor) => lists.step(cursor),
        }
    }
}

impl PagesLeft {
    /// The next pages' operations, as many as there is room for; how many.
    pub fn fill(&self, lists: &Lists, token: u64, ops: &mut [Op]) -> usize {
        let (mut local, mut target) = (self.local, self.target);
        let count = ops.len().min(self.left as usize);
        for (op, behind) in ops[..count].iter_mut().zip(1..) {
            let from = Span { region: self.region, offset: local.at(lists), bytes: self.bytes };
            let to = Target { remote: self.remote, offset: target.at(lists) };
            let immediate = self.immediate.filter(|_| behind == self.left);
            *op = Op::Write { token, local: from, target: to, immediate };
            local.look_ahead(lists);
            target.look_ahead(lists);
        }
        count
    }

    /// The next page was accepted.
    pub fn step(&mut self, lists: &mut Lists) {
        self.left -= 1;
        self.local.step(lists);
        self.target.step(lists);
        if self.left == 0 {
            self.drop(lists);
        }
    }

    /// Give the lists back.
    pub fn drop(&mut self, lists: &mut Lists) {
        for side in [&mut self.local, &mut self.target] {
            lists.drop(side.numbers);
            side.numbers = Numbers::From(0);
        }
    }
}
