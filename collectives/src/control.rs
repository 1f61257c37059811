//! The control mesh: agreement, mismatch and death notices.

/// The long story of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One sentence a line: who failed, both values of a mismatch, who waited for what.
    pub lines: Vec<String>,
}
