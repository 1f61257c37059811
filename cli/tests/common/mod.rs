//! How these tests run the real program.
#![allow(dead_code)]

use std::process::{Command, Output, Stdio};

/// Variables by which launchers speak to a process; none of them must reach the program from outside.
const LAUNCHERS: [&str; 18] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "VERVAIN_RANK",
    "VERVAIN_RANKS",
    "VERVAIN_BOOTSTRAP",
    "VERVAIN_SECRET",
];

/// The program, with these arguments, outside of any launcher.
pub fn vervain(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vervain"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    for name in LAUNCHERS {
        command.env_remove(name);
    }
    command
}

/// What the program did.
#[derive(Debug)]
pub struct Done {
    /// The exit status; -1 for a signal.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Done {
    /// The words of each line of the table.
    pub fn rows(&self) -> Vec<Vec<&str>> {
        let lines = self.out.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines.map(|line| line.split_whitespace().collect()).collect()
    }
}

/// Run the program with these arguments to its end.
pub fn run(line: &str) -> Done {
    vervain(line).output().unwrap().into()
}

/// A file for one test, gone when that ends.
#[derive(Debug)]
pub struct Scratch(pub std::path::PathBuf);

impl Scratch {
    /// A name in the tests' own folder; nothing is there.
    pub fn new(name: &str) -> Self {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    /// As an argument.
    pub fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// What the program wrote.
    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
