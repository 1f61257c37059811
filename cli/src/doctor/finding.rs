//! One line of the doctor's report.

use core::fmt;

use serde_json::{Value, json};

/// How it stands with one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Ok,
    /// It works, but less well than it could.
    Warn,
    /// It is not there.
    Absent,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Absent => "absent",
        }
    }
}

/// What was found about one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// What was seen.
    pub detail: String,
    /// What would change it: a command where there is one.
    pub remedy: Option<String>,
}

impl Finding {
    /// All is as it should be.
    pub fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Ok, detail: detail.into(), remedy: None }
    }

    /// It works, but the remedy would make it better.
    pub fn warn(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, state: State::Warn, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    /// It is not there; the remedy would bring it.
    pub fn absent(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, state: State::Absent, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    /// The entry in the JSON list.
    pub fn to_json(&self) -> Value {
        json!({ "name": self.name, "state": self.state.name(), "detail": self.detail, "remedy": self.remedy })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {:<7} {}", self.name, self.state.name(), self.detail)?;
        match &self.remedy {
            Some(remedy) => write!(f, ": {remedy}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_name_state_detail_remedy() {
        assert_eq!(Finding::ok("shm", "memfd").to_string(), "shm        ok      memfd");
        assert_eq!(
            Finding::absent("verbs", "not found", "apt-get install x").to_string(),
            "verbs      absent  not found: apt-get install x"
        );
        assert_eq!(Finding::warn("memlock", "64 KiB", "more").to_json()["state"], "warn");
    }
}
