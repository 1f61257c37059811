//! Plans as JSON files.
//!
//! ```json
//! {
//!   "vervain_plan": 1,
//!   "name": "two-shot",
//!   "collective": "all_reduce",
//!   "chunks": "ranks",
//!   "scratch": "0",
//!   "lanes": [[
//!     {"do": "enter"},
//!     {"do": "reduce", "from": [{"each": "i0", "below": "ranks", "operand": {"rank": "i0", "buffer": "input", "chunk": "rank"}}],
//!                      "to":   [{"each": "i1", "below": "ranks", "operand": {"rank": "i1", "buffer": "output", "chunk": "rank"}}]},
//!     {"do": "leave"}
//!   ]]
//! }
//! ```
//!
//! Statements: `{"do": NAME, "from": [...], "to": [...], "complete": true}`, where NAME is the classic one of this shape; `{"do":
//! "signal" | "wait", "peer": E}`; `{"do": "enter" | "leave"}`; `{"for": "i0", "below": E, "body": [...]}`; `{"when": C, "then": [...],
//! "else": [...]}`. Operands: `{"buffer": B, "chunk": E}`, with `"rank": E` a direct one; `{"peer": E}`; `{"each": "i0", "below": E,
//! "operand": ...}`. E is an expression over `rank ranks root i0 i1 ...` with `+ - * / % min() max()`; C compares two of them with
//! `== != < >=`. Numbers may stand for expressions. What is not known is refused.

mod read;
mod text;
mod write;

use super::Plan;
use super::defect::{Defect, Reason, Site};

impl Plan {
    /// The plan as a file.
    pub fn to_json(&self) -> String {
        write::plan(self)
    }

    /// The plan in a file. The file may come from a stranger: it is bounded, and what is wrong is said with its path in the document.
    /// A plan that can be read is not yet right; [`Plan::verify`] tells.
    pub fn from_json(text: &str) -> Result<Self, Defect> {
        read::plan(text).map_err(|wrong| {
            let path = if wrong.path.is_empty() { "document".to_owned() } else { wrong.path };
            let reason = Reason::File { path, problem: wrong.problem };
            Defect::new(Site::of("file"), reason)
        })
    }
}

/// What is wrong in a document, and where.
#[derive(Debug)]
struct Wrong {
    path: String,
    problem: String,
}

/// Of the file format.
const VERSION: u64 = 1;
