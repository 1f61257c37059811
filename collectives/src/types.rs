//! The vocabulary of a call: what is done, to which elements, with which operation.

use core::fmt;
use core::str::FromStr;

use half::{bf16, f16};
use vervain_transport::{Error, Kind};

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal $(| $alias:literal)*),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),* }

        impl $name {
            /// All values, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The name on the command line, in files and in reports.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                match text {
                    $($text $(| $alias)* => Ok($name::$variant),)*
                    _ => Err(Kind::InvalidArgument.into()),
                }
            }
        }
    };
}

named! {
    /// An operation over all ranks, or between two.
    Collective {
        /// Everybody gets the reduction of everybody's input.
        AllReduce = "all_reduce" | "allreduce",
        /// Everybody gets everybody's block, in rank order.
        AllGather = "all_gather" | "allgather",
        /// Rank r gets the reduction of everybody's block r.
        ReduceScatter = "reduce_scatter" | "reducescatter",
        /// Everybody gets the root's input.
        Broadcast = "broadcast",
        /// The root gets the reduction of everybody's input.
        Reduce = "reduce",
        /// Rank r's block q goes to rank q's block r.
        AllToAll = "all_to_all" | "alltoall",
        /// One side of a message between two ranks.
        Send = "send",
        /// The other side.
        Recv = "recv",
        /// Nobody leaves before everybody came.
        Barrier = "barrier",
    }
}

named! {
    /// The type of an element. Names are those of nccl-tests.
    DataType {
        /// 8 bits, unsigned; wraps.
        U8 = "uint8" | "u8",
        /// 32 bits, signed; wraps.
        I32 = "int32" | "i32" | "int",
        /// 64 bits, signed; wraps.
        I64 = "int64" | "i64",
        /// IEEE half precision.
        F16 = "half" | "f16" | "float16",
        /// bfloat16.
        Bf16 = "bfloat16" | "bf16",
        /// IEEE single precision.
        F32 = "float" | "f32" | "float32",
        /// IEEE double precision.
        F64 = "double" | "f64" | "float64",
    }
}

impl DataType {
    /// Size of an element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            DataType::U8 => 1,
            DataType::F16 | DataType::Bf16 => 2,
            DataType::I32 | DataType::F32 => 4,
            DataType::I64 | DataType::F64 => 8,
        }
    }

    /// Whether the type has a fraction.
    pub const fn is_float(self) -> bool {
        matches!(self, DataType::F16 | DataType::Bf16 | DataType::F32 | DataType::F64)
    }
}

named! {
    /// How elements are combined. `reduce` documents the exact rules.
    ReduceOp {
        /// Sum.
        Sum = "sum",
        /// Product.
        Prod = "prod",
        /// Smallest; a NaN wins, and -0 is below +0.
        Min = "min",
        /// Largest; a NaN wins, and +0 is above -0.
        Max = "max",
        /// Sum over the number of ranks.
        Avg = "avg",
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is an element. Plain data: any bit pattern is a value.
pub trait Element: sealed::Sealed + Copy + Default + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// Its [`DataType`].
    const TYPE: DataType;
}

macro_rules! element {
    ($($rust:ty = $variant:ident),*) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const TYPE: DataType = DataType::$variant;
        }
        const _: () = assert!(size_of::<$rust>() == DataType::$variant.bytes());
    )*};
}
element!(u8 = U8, i32 = I32, i64 = I64, f16 = F16, bf16 = Bf16, f32 = F32, f64 = F64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back() {
        for &value in Collective::ALL {
            assert_eq!(value.name().parse::<Collective>().unwrap(), value);
        }
        for &value in DataType::ALL {
            assert_eq!(value.name().parse::<DataType>().unwrap(), value);
        }
        for &value in ReduceOp::ALL {
            assert_eq!(value.name().parse::<ReduceOp>().unwrap(), value);
        }
        assert_eq!("quad".parse::<DataType>().unwrap_err().kind(), Kind::InvalidArgument);
    }
}
