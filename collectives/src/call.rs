//! What a rank asked for, in the form in which ranks compare it.

use vervain_transport::Rank;

use crate::{Collective, DataType, ReduceOp};

/// Everything that all ranks of an operation must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// Number of the operation on its communicator, from 0.
    pub operation: u64,
    /// What is done.
    pub collective: Collective,
    /// Elements per block.
    pub count: u64,
    /// Their type.
    pub datatype: DataType,
    /// How they are combined, where they are.
    pub op: Option<ReduceOp>,
    /// The root, where there is one.
    pub root: Option<Rank>,
    /// Whether the buffers are registered ones.
    pub registered: bool,
    /// Hash of the plan and its tuning.
    pub tuning: u64,
}

/// Set in the numbers of messages.
const MESSAGE: u64 = 1 << 63;

/// Number of a message: bit 63, then sender, receiver and a count. Unique on a communicator, and the same on both sides.
pub(crate) fn message_number(from: Rank, to: Rank, number: u64) -> u64 {
    MESSAGE | u64::from(from.get() & 0x7fff) << 48 | u64::from(to.get() & 0xffff) << 32 | number & 0xffff_ffff
}

/// Words of a descriptor's wire form.
pub const WORDS: usize = 5;

impl Descriptor {
    /// Little-endian words: operation, count, tuning, root (all ones if none), then the small fields bytewise.
    pub fn to_words(&self) -> [u64; WORDS] {
        let small = [
            self.collective as u8,
            self.datatype as u8,
            self.op.map_or(u8::MAX, |op| op as u8),
            u8::from(self.registered),
            0,
            0,
            0,
            0,
        ];
        let root = self.root.map_or(u64::MAX, |root| u64::from(root.get()));
        [self.operation, self.count, self.tuning, root, u64::from_le_bytes(small)]
    }

    /// The descriptor with this wire form, if it is one.
    pub fn from_words(words: [u64; WORDS]) -> Option<Self> {
        let [operation, count, tuning, root, small] = words;
        let [collective, datatype, op, registered, 0, 0, 0, 0] = small.to_le_bytes() else { return None };
        Some(Self {
            operation,
            collective: *Collective::ALL.get(usize::from(collective))?,
            count,
            datatype: *DataType::ALL.get(usize::from(datatype))?,
            op: if op == u8::MAX { None } else { Some(*ReduceOp::ALL.get(usize::from(op))?) },
            root: if root == u64::MAX {
                None
            } else {
                Some(Rank::new(u32::try_from(root).ok().filter(|&root| root != u32::MAX)?))
            },
            registered: match registered {
                0 => false,
                1 => true,
                _ => return None,
            },
            tuning,
        })
    }

    /// Whether this is a message between two ranks: both sides call it `Send`, with the receiver as root.
    pub const fn is_message(&self) -> bool {
        self.operation & MESSAGE != 0
    }

    /// What reports call the operation.
    pub fn name(&self) -> String {
        let number = self.operation;
        if !self.is_message() {
            return format!("operation {number}");
        }
        let (from, to) = (number >> 48 & 0x7fff, number >> 32 & 0xffff);
        format!("message {} from rank {from} to rank {to}", number & 0xffff_ffff)
    }

    /// 64 bits that differ, but for luck, when any field does. Never 0.
    pub fn hash(&self) -> u64 {
        self.to_words().iter().fold(0x9e37_79b9_7f4a_7c15, |hash: u64, &word| {
            let mixed = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
            mixed ^ (mixed >> 32)
        }) | 1
    }
}

impl core::fmt::Display for Descriptor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} of {} {}", self.collective, self.count, self.datatype)?;
        if let Some(op) = self.op {
            write!(f, ", {op}")?;
        }
        if let Some(root) = self.root {
            write!(f, ", root {root}")?;
        }
        if self.registered {
            write!(f, ", registered")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Descriptor = Descriptor {
        operation: 7,
        collective: Collective::Reduce,
        count: 1 << 33,
        datatype: DataType::Bf16,
        op: Some(ReduceOp::Max),
        root: Some(Rank::new(3)),
        registered: true,
        tuning: 0x1234,
    };

    #[test]
    fn wire_form_round_trips() {
        assert_eq!(Descriptor::from_words(CALL.to_words()), Some(CALL));
        let bare = Descriptor { op: None, root: None, registered: false, ..CALL };
        assert_eq!(Descriptor::from_words(bare.to_words()), Some(bare));
    }

    #[test]
    fn foreign_words_are_refused() {
        for small in [0xff, 0xff << 8, 0x77 << 16, 2 << 24, 1 << 32] {
            let mut words = CALL.to_words();
            words[4] = small;
            assert_eq!(Descriptor::from_words(words), None, "{small:x}");
        }
    }

    #[test]
    fn every_field_changes_the_hash() {
        for other in [
            Descriptor { operation: 8, ..CALL },
            Descriptor { count: 5, ..CALL },
            Descriptor { datatype: DataType::F16, ..CALL },
            Descriptor { op: None, ..CALL },
            Descriptor { root: None, ..CALL },
            Descriptor { registered: false, ..CALL },
            Descriptor { tuning: 0, ..CALL },
            Descriptor { collective: Collective::AllReduce, ..CALL },
        ] {
            assert_ne!(other.hash(), CALL.hash());
        }
    }
}
