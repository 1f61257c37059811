//! What happened and was not reported yet.

use std::collections::VecDeque;

use crate::{
    Error, Result,
    fabric::{Event, LinkId, Outcome},
};

/// Which limit an operation counts against until it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Receive,
    Work,
    /// Not an operation.
    Notice,
}

/// Events in order, with the limit that each is to be given back to.
#[derive(Debug, Default)]
pub(super) struct Completions(VecDeque<(Event, Class)>);

impl Completions {
    /// Room for this many more, so that nothing is allocated when they come.
    pub fn reserve(&mut self, more: usize) {
        self.0.reserve(more);
    }

    #[inline]
    pub fn end(&mut self, link: LinkId, token: u64, class: Class, result: Result<Outcome>) {
        self.0.push_back((Event::Done { link, token, result }, class));
    }

    pub fn note(&mut self, event: Event) {
        self.0.push_back((event, Class::Notice));
    }

    /// The peer replaced memory that operations of this link may have used: what was not reported may not have landed.
    pub fn doubt(&mut self, link: LinkId, error: Error) {
        for (event, class) in &mut self.0 {
            if let Event::Done { link: on, result: result @ Ok(_), .. } = event
                && (*on, *class) == (link, Class::Work)
            {
                *result = Err(error);
            }
        }
    }

    #[inline]
    pub fn next(&mut self) -> Option<(Event, Class)> {
        self.0.pop_front()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
