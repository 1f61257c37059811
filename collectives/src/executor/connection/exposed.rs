//! What the peer of a connection can write.

use super::{Connection, LINE, SLOTS, area, at};
use crate::executor::exposed::{Content, Exposed, counters, line_slots};

impl Connection {
    /// Our inbox.
    pub fn exposed(&self) -> Vec<Exposed> {
        let slots = self.inbox.slice(at::SLOTS, self.areas.total() as usize);
        let mut all = line_slots(slots, &self.areas);
        let words = |from, count: usize| counters(self.inbox.slice(from, 8 * count));
        for line in [0, 1] {
            all.extend(words(at::ENTER + LINE * line, 5));
        }
        for line in 0..3 {
            all.extend(words(at::HEAD + LINE * line, 1));
        }
        all.extend(words(at::SIGNAL, 1).chain(words(at::LEAVE, 1)));
        all.extend(counters(area(self.inbox, self.areas.tail()).slice(0, 8)));
        all.extend(counters(area(self.inbox, self.areas.records())));
        all.extend((0..SLOTS).map(|slot| Content::Bytes.of(area(self.inbox, self.areas.simple(slot)))));
        all
    }
}
