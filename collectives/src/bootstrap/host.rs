//! Where a process runs, in a form that ranks can compare.

/// Equal for processes of one running kernel; `pids` is equal if they also see each other's process numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// The kernel's boot id; random, so equal to nobody's, where it cannot be read.
    pub boot: [u8; 16],
    /// The process number namespace; 0 where it cannot be read.
    pub pids: u64,
}

impl Host {
    /// The host of this process.
    pub fn here() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().and_then(|text| parse(&text));
        Self { boot: boot.or_else(|| vervain_transport::auth::random().ok()).unwrap_or_default(), pids: namespace() }
    }

    /// Whether a process number of `other` means the same process here.
    pub fn sees_processes_of(&self, other: &Host) -> bool {
        self.pids != 0 && self == other
    }
}

fn parse(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |data| data.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_is_equal_to_itself() {
        assert_eq!(Host::here(), Host::here());
        assert!(parse("0a1b2c3d-0000-0000-0000-00000000000f\n").is_some_and(|id| id[0] == 0x0a && id[15] == 0x0f));
    }
}
