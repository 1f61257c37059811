//! Shared memory, huge pages, and how much may be locked.

use std::fs;
use std::path::Path;

use vervain_transport::host::probe;

use super::finding::Finding;
use crate::machine;
use crate::perf::human;

/// What mapped segments are made of.
pub fn shared() -> Finding {
    let folder = match probe::space(Path::new("/dev/shm")) {
        Ok(space) => format!("/dev/shm {}, {} free", human(space.total), human(space.free)),
        Err(_) => "no /dev/shm".to_owned(),
    };
    let free = machine::available_memory().map_or_else(|| "unknown".to_owned(), human);
    match probe::memory_file() {
        Ok(_) => Finding::ok(
            "shm",
            format!("memfd, {free} of memory free; {folder} (used only if VERVAIN_SHM_DIR names it)"),
        ),
        Err(error) if folder.starts_with("/dev") => Finding::warn(
            "shm",
            format!("memfd_create fails ({error}); {folder}"),
            "set VERVAIN_SHM_DIR=/dev/shm, or allow the call in the container's filter",
        ),
        Err(error) => Finding::absent(
            "shm",
            format!("memfd_create fails ({error}); {folder}"),
            "mount -t tmpfs tmpfs /dev/shm, and set VERVAIN_SHM_DIR=/dev/shm",
        ),
    }
}

/// Whether large buffers can have large pages.
pub fn huge_pages() -> Finding {
    let chosen = |file: &str| {
        let text = fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{file}")).unwrap_or_default();
        selected(&text).unwrap_or("unknown").to_owned()
    };
    let (private, shared) = (chosen("enabled"), chosen("shmem_enabled"));
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| machine::meminfo(&info, name).unwrap_or(0);
    let reserved = format!("{} reserved of {}", field("HugePages_Total"), human(field("Hugepagesize")));
    let detail = format!("transparent {private}, for shared memory {shared}; {reserved}");
    if ["always", "advise", "within_size", "force"].contains(&shared.as_str()) || field("HugePages_Total") > 0 {
        return Finding::ok("hugepages", detail);
    }
    Finding::warn(
        "hugepages",
        detail,
        "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled (large messages gain)",
    )
}

/// The word in brackets.
fn selected(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

/// How much memory may be locked, which is what registering with a NIC does.
pub fn locked() -> Finding {
    const ENOUGH: u64 = 1 << 30;
    let text = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    match locked_limit(&text) {
        Some(limit) if limit == u64::MAX => Finding::ok("memlock", "unlimited"),
        Some(limit) if limit >= ENOUGH => Finding::ok("memlock", human(limit)),
        Some(limit) => Finding::warn(
            "memlock",
            human(limit),
            "registering more with a NIC needs `ulimit -l unlimited`; shm and tcp need none",
        ),
        None => Finding::warn("memlock", "unknown", "see `ulimit -l`"),
    }
}

/// The soft limit in bytes; the greatest number for none.
fn locked_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_found_by_name() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max cpu time              unlimited            unlimited            seconds\n\
                    Max locked memory         65536                65536                bytes\n";
        assert_eq!(locked_limit(text), Some(65_536));
        assert_eq!(locked_limit("Max locked memory         unlimited  unlimited bytes"), Some(u64::MAX));
        assert_eq!(locked_limit(""), None);
    }

    #[test]
    fn the_selected_word_stands_in_brackets() {
        assert_eq!(selected("always [madvise] never"), Some("madvise"));
        assert_eq!(selected("always"), None);
    }
}
