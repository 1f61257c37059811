//! Cores, vector instructions, and the barrier that spares the fast path a fence.

use vervain_transport::host::{affinity, probe};

use super::finding::Finding;
use crate::machine;

/// How many cores we may use.
pub fn cores() -> Finding {
    let online = std::fs::read_to_string("/proc/cpuinfo")
        .map_or(0, |text| text.lines().filter(|line| line.starts_with("processor")).count());
    match affinity::allowed_cores() {
        Ok(allowed) if allowed.len() == 1 => Finding::warn(
            "cores",
            format!("1 allowed of {online}, {}", machine::processor()),
            "ranks take turns on it and wait asleep; start outside of `taskset`, or give the container more",
        ),
        Ok(allowed) => Finding::ok("cores", format!("{} allowed of {online}, {}", allowed.len(), machine::processor())),
        Err(error) => Finding::warn("cores", format!("affinity cannot be read: {error}"), "ranks are not pinned"),
    }
}

/// The widest vectors that reductions use.
pub fn vectors() -> Finding {
    let (widest, all) = detect();
    if all.is_empty() {
        return Finding::ok("simd", "none known: reductions use portable code");
    }
    Finding::ok("simd", format!("{widest} ({})", all.join(" ")))
}

#[cfg(target_arch = "x86_64")]
fn detect() -> (&'static str, Vec<&'static str>) {
    let mut all = vec!["sse2"];
    let checks = [
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("f16c", std::is_x86_feature_detected!("f16c")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
        ("avx512bw", std::is_x86_feature_detected!("avx512bw")),
        ("avx512bf16", std::is_x86_feature_detected!("avx512bf16")),
    ];
    all.extend(checks.into_iter().filter(|(_, there)| *there).map(|(name, _)| name));
    let widest = [("avx512bw", "AVX-512"), ("avx2", "AVX2")].into_iter().find(|(name, _)| all.contains(name));
    (widest.map_or("SSE2", |(_, name)| name), all)
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> (&'static str, Vec<&'static str>) {
    if cfg!(target_arch = "aarch64") { ("NEON", vec!["neon"]) } else { ("none", vec![]) }
}

/// Whether the kernel can fence all threads of all processes at once.
pub fn membarrier() -> Finding {
    const GLOBAL_EXPEDITED: u32 = 1 << 1;
    const REGISTER_GLOBAL_EXPEDITED: u32 = 1 << 2;
    let needed = GLOBAL_EXPEDITED | REGISTER_GLOBAL_EXPEDITED;
    let remedy = "full fences are used instead; Linux 4.16 or later without a filter on the call has it";
    match probe::membarrier_commands() {
        Ok(commands) if commands & needed == needed => {
            Finding::ok("membarrier", format!("global expedited (commands {commands:#x})"))
        }
        Ok(commands) => Finding::warn("membarrier", format!("not global expedited (commands {commands:#x})"), remedy),
        Err(error) => Finding::warn("membarrier", error.to_string(), remedy),
    }
}
