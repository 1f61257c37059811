//! The progress bar: on standard error, and only where a person looks at it.

use std::io::{IsTerminal, Write, stderr, stdout};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows how far a sweep is, without getting between the lines of its table.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar of so many steps; invisible if standard error is no terminal or `Audience::Nobody` looks.
    pub fn new(steps: u64, audience: Audience) -> Self {
        let target = match audience {
            Audience::Person if stderr().is_terminal() => ProgressDrawTarget::stderr(),
            _ => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} [{elapsed} of about {duration}]") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// What is being done now.
    pub fn says(&self, text: String) {
        self.bar.set_message(text);
    }

    /// One step is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Print a line to standard output, above the bar. A reader that went away ends the process quietly.
    pub fn line(&self, text: &str) {
        let written = self.bar.suspend(|| {
            let mut out = stdout().lock();
            writeln!(out, "{text}").and_then(|()| out.flush())
        });
        if written.is_err() {
            std::process::exit(0);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// For whom a bar is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// A person, if standard error is a terminal.
    Person,
    /// Nobody: ranks other than 0.
    Nobody,
}
