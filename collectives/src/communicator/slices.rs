//! What a call may be given: plain slices, or buffers that all ranks registered together.

use crate::{Buffer, Element};

mod sealed {
    pub trait Sealed {}
}

/// Elements to read.
pub trait Elements<T: Element>: sealed::Sealed {
    /// As a slice.
    fn elements(&self) -> &[T];

    /// Whether all ranks registered them together.
    fn is_registered(&self) -> bool {
        false
    }
}

/// Elements to write.
pub trait ElementsMut<T: Element>: Elements<T> {
    /// As a slice.
    fn elements_mut(&mut self) -> &mut [T];
}

macro_rules! plain {
    ($(($($generics:tt)*) $type:ty),*) => {$(
        impl<$($generics)*> sealed::Sealed for $type {}
        impl<$($generics)*> Elements<T> for $type {
            fn elements(&self) -> &[T] {
                self
            }
        }
        impl<$($generics)*> ElementsMut<T> for $type {
            fn elements_mut(&mut self) -> &mut [T] {
                self
            }
        }
    )*};
}
plain!((T: Element) [T], (T: Element) Vec<T>, (T: Element, const N: usize) [T; N]);

impl<T: Element> sealed::Sealed for Buffer<T> {}

impl<T: Element> Elements<T> for Buffer<T> {
    fn elements(&self) -> &[T] {
        self
    }

    fn is_registered(&self) -> bool {
        true
    }
}

impl<T: Element> ElementsMut<T> for Buffer<T> {
    fn elements_mut(&mut self) -> &mut [T] {
        self
    }
}
