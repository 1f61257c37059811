//! Facts about this machine that the kernel publishes as text.

use std::fs;

/// The name of this host.
pub fn host_name() -> String {
    first_line("/proc/sys/kernel/hostname").unwrap_or_else(|| "localhost".into())
}

/// The processor's name for itself.
pub fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| std::env::consts::ARCH.into(), |(_, name)| name.trim().to_owned())
}

/// Bytes that a new program can use without swapping: what the kernel estimates, or what our control group leaves.
pub fn available_memory() -> Option<u64> {
    let system = meminfo(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable");
    match (system, group_memory()) {
        (Some(system), Some(group)) => Some(system.min(group)),
        (system, group) => system.or(group),
    }
}

/// One field of /proc/meminfo, in bytes.
pub fn meminfo(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let (number, unit) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let scale = if unit == "kB" { 1024 } else { 1 };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

fn group_memory() -> Option<u64> {
    let limit = first_line("/sys/fs/cgroup/memory.max")?.parse::<u64>().ok()?;
    let used = first_line("/sys/fs/cgroup/memory.current")?.parse::<u64>().ok()?;
    Some(limit.saturating_sub(used))
}

/// The first line of a small file, without its end.
pub fn first_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_meminfo_are_bytes() {
        let text = "MemTotal:       24000 kB\nMemAvailable:    1024 kB\nHugePages_Total:       7\n";
        assert_eq!(meminfo(text, "MemAvailable"), Some(1 << 20));
        assert_eq!(meminfo(text, "HugePages_Total"), Some(7));
        assert_eq!(meminfo(text, "Mem"), None);
        assert_eq!(meminfo("MemAvailable: lots kB", "MemAvailable"), None);
    }
}
