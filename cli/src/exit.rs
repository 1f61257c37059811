//! How a command ends: the exit status, and the sentence that goes with it.

use std::process::ExitCode;

use vervain_collectives::bootstrap::InitError;
use vervain_collectives::control::Report;
use vervain_collectives::{Error, Kind};

/// The exit status, as documented in the help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All well.
    Fine = 0,
    /// Wrong data, a plan that does not verify, or something needed is missing.
    Wrong = 1,
    /// The options make no sense.
    Usage = 2,
    /// A communicator failed.
    Failed = 3,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        ExitCode::from(status as u8)
    }
}

/// Why a command could not do what it was asked for.
#[derive(Debug)]
pub struct Failure {
    status: Status,
    /// The first is the sentence; the others tell the long story.
    lines: Vec<String>,
    /// The peer that is to blame, if one is.
    culprit: Option<u32>,
}

impl Failure {
    /// The options make no sense, for the reason that the sentence gives.
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self { status: Status::Usage, lines: vec![sentence.into()], culprit: None }
    }

    /// Something outside the communicator failed, for the reason that the sentence gives.
    pub fn failed(sentence: impl Into<String>) -> Self {
        Self { status: Status::Failed, lines: vec![sentence.into()], culprit: None }
    }

    /// The data was wrong, a plan does not verify, or something needed is missing.
    pub fn wrong(sentence: impl Into<String>) -> Self {
        Self { status: Status::Wrong, lines: vec![sentence.into()], culprit: None }
    }

    /// A communicator failed with this error; the report tells more.
    pub fn communicator(error: Error, report: Option<&Report>) -> Self {
        let mut lines = vec![error.to_string()];
        lines.extend(report.iter().flat_map(|report| report.lines.iter().cloned()));
        // what was asked for does not exist: no fault of the communicator's
        let status = if error.kind() == Kind::Unsupported { Status::Usage } else { Status::Failed };
        Self { status, lines, culprit: error.rank().map(|rank| rank.get()) }
    }

    /// The same failure, with one more line behind.
    #[must_use]
    pub fn and(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// The peer that is to blame, if one is.
    pub fn culprit(&self) -> Option<u32> {
        self.culprit
    }

    /// What the process exits with.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Print the story to standard error.
    pub fn print(&self) {
        eprint!("{self}");
    }
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (index, line) in self.lines.iter().enumerate() {
            writeln!(f, "{}{line}", if index == 0 { "error: " } else { "       " })?;
        }
        Ok(())
    }
}

impl From<Box<InitError>> for Failure {
    fn from(error: Box<InitError>) -> Self {
        Self::communicator(error.error, Some(&error.report))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::communicator(error, None)
    }
}

/// Print a failure, if it is one, and give the status.
pub fn conclude(result: Result<Status, Failure>) -> Status {
    result.unwrap_or_else(|failure| {
        failure.print();
        failure.status()
    })
}

#[cfg(test)]
mod tests {
    use vervain_collectives::Rank;

    use super::*;

    #[test]
    fn the_story_is_indented_below_its_sentence() {
        let report = Report { lines: vec!["rank 1 waited for rank 2".into()] };
        let error = Error::new(Kind::PeerDied).with_rank(Rank::new(2)).with_operation(4711);
        let failure = Failure::communicator(error, Some(&report)).and("start again");
        let text = failure.to_string();
        assert!(text.starts_with("error: rank 2: operation 4711: "), "{text}");
        assert!(text.ends_with("\n       rank 1 waited for rank 2\n       start again\n"), "{text}");
        assert_eq!((failure.culprit(), failure.status()), (Some(2), Status::Failed));
    }
}
