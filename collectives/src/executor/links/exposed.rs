//! What peers can write of all that connects us.

use super::Links;
use crate::executor::exposed::{Content, Exposed};

impl Links {
    /// Inboxes, boards and registrations.
    pub fn exposed(&self) -> Vec<Exposed> {
        let mut all: Vec<Exposed> =
            self.connections.iter().flatten().flat_map(|connection| connection.exposed()).collect();
        all.extend(self.boards.iter().flat_map(|boards| boards.exposed()));
        all.extend(self.registrations.iter().map(|known| Content::Bytes.of(known.memory)));
        all
    }
}
