//! Whether ranks may read each other's memory: tried on a child, because the kernel's rules have too many sources to be read.
//!
//! The child reads us, not we the child: that is what a rule of the Yama kind forbids, unless the process that is read has
//! allowed it, as ranks do.

use std::process::{Command, Stdio};

use vervain_transport::host::probe;

use super::finding::Finding;
use crate::exit::Status;
use crate::machine;

/// What the child must find.
const PATTERN: [u8; 16] = *b"vervain was here";

/// Let a child read a few bytes of ours.
pub fn probe() -> Finding {
    const NAME: &str = "pull";
    probe::allow_readers();
    let pattern = Box::new(PATTERN);
    let scope = machine::first_line("/proc/sys/kernel/yama/ptrace_scope");
    let rule = scope.map_or_else(|| "no Yama".to_owned(), |scope| format!("ptrace_scope {scope}"));
    let remedy =
        "large messages are staged; `sysctl kernel.yama.ptrace_scope=1`, or `--cap-add SYS_PTRACE` for a container";
    match child_reads(&pattern) {
        Ok(true) => Finding::ok(NAME, format!("process_vm_readv between processes, {rule}")),
        Ok(false) => Finding::warn(NAME, format!("the kernel refuses process_vm_readv, {rule}"), remedy),
        Err(error) => Finding::warn(NAME, format!("process_vm_readv could not be tried ({error}), {rule}"), remedy),
    }
}

fn child_reads(pattern: &[u8; 16]) -> std::io::Result<bool> {
    let program = std::env::current_exe()?;
    let (pid, address) = (std::process::id().to_string(), (pattern.as_ptr() as usize).to_string());
    let status = Command::new(program)
        .args(["doctor", "--probe", &pid, &address])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(status.success())
}

/// The child's part: succeed if the pattern is read.
pub fn child(pid: u64, address: u64) -> Status {
    let mut read = [0; PATTERN.len()];
    let pid = u32::try_from(pid).unwrap_or(u32::MAX);
    match probe::read_process(pid, address, &mut read) {
        Ok(bytes) if bytes == PATTERN.len() && read == PATTERN => Status::Fine,
        _ => Status::Wrong,
    }
}
