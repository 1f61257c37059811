//! Message sizes: how they are written, in which order they are measured, and how they are rounded to elements.

use super::benchmark::Benchmark;

/// Parse a number of bytes: `8`, `64K`, `32M`, `1G`, with or without a `B` or `iB` behind.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = &text[digits.len()..];
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(not_a_size(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(not_a_size(text));
    }
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| format!("`{text}` is more bytes than 64 bits can count; 16E is the limit"))
}

fn not_a_size(text: &str) -> String {
    format!("`{text}` is not a size: write a whole number of bytes, with K, M, G or T for 2^10 .. 2^40, such as 64M")
}

/// How one size follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Add so many bytes.
    Bytes(u64),
    /// Multiply by this.
    Factor(u64),
}

/// The sizes of a sweep, from `min` to at most `max`. Ends, rather than wraps, at the top of 64 bits.
pub fn sweep(min: u64, max: u64, step: Step) -> impl Iterator<Item = u64> {
    let next = move |&size: &u64| match step {
        Step::Bytes(bytes) => size.checked_add(bytes),
        Step::Factor(factor) => size.checked_mul(factor),
    };
    // a step that does not grow (0 times anything is 0) would never end
    core::iter::successors(Some(min), move |size| next(size).filter(|following| following > size))
        .take_while(move |&size| size <= max)
}

/// Elements per block of a message of at most `bytes`: the whole message for most collectives; for blocked ones a rank's
/// share, cut to 16 bytes.
pub fn count(benchmark: Benchmark, ranks: u32, bytes: u64, element: u64) -> u64 {
    let elements = bytes / element;
    if benchmark == Benchmark::Barrier {
        0
    } else if benchmark.is_blocked() {
        let lines = (16 / element).max(1);
        elements / u64::from(ranks) / lines * lines
    } else {
        elements
    }
}

/// A number of bytes for people: `64 KiB`, `100 B`, `1.5 GiB`.
pub fn human(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    let scaled = bytes as f64 / (1u64 << (10 * unit)) as f64;
    if scaled.fract() == 0.0 { format!("{scaled} {}", units[unit]) } else { format!("{scaled:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in
            [("0", 0), ("8", 8), ("8b", 8), ("1K", 1024), ("64M", 64 << 20), ("3g", 3 << 30), ("1TiB", 1 << 40)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse(&u64::MAX.to_string()), Ok(u64::MAX));
    }

    #[test]
    fn garbage_is_refused_by_name() {
        for text in ["", "K", "-1", "+1", "1.5M", "8Q", "8 M", "0x10", "M8", "8MM", "٣", "8µ"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("`{text}`")) && error.contains("64M"), "{error}");
        }
    }

    #[test]
    fn sizes_beyond_64_bits_are_refused() {
        for text in ["18446744073709551616", "16777216T", "99999999999G", "340282366920938463463374607431768211456"] {
            assert!(parse(text).unwrap_err().contains("64 bits"), "{text}");
        }
        assert_eq!(parse("16777215T"), Ok(16_777_215 << 40));
    }

    #[test]
    fn sweeps_include_both_ends() {
        assert_eq!(sweep(8, 64, Step::Factor(2)).collect::<Vec<_>>(), [8, 16, 32, 64]);
        assert_eq!(sweep(8, 100, Step::Factor(4)).collect::<Vec<_>>(), [8, 32]);
        assert_eq!(sweep(1, 4, Step::Bytes(1)).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(sweep(7, 7, Step::Factor(2)).collect::<Vec<_>>(), [7]);
        assert_eq!(sweep(8, 7, Step::Factor(2)).count(), 0);
    }

    #[test]
    fn sweeps_end_at_the_top_and_at_zero() {
        assert_eq!(sweep(1 << 62, u64::MAX, Step::Factor(2)).collect::<Vec<_>>(), [1 << 62, 1 << 63]);
        assert_eq!(sweep(u64::MAX - 1, u64::MAX, Step::Bytes(3)).collect::<Vec<_>>(), [u64::MAX - 1]);
        assert_eq!(sweep(0, 8, Step::Factor(2)).collect::<Vec<_>>(), [0]);
        assert_eq!(sweep(0, 8, Step::Bytes(4)).collect::<Vec<_>>(), [0, 4, 8]);
    }

    #[test]
    fn blocked_collectives_share_and_round_to_16_bytes() {
        assert_eq!(count(Benchmark::AllReduce, 3, 31, 4), 7);
        assert_eq!(count(Benchmark::AllGather, 2, 8, 4), 0);
        assert_eq!(count(Benchmark::AllGather, 2, 32, 4), 4);
        assert_eq!(count(Benchmark::AllGather, 3, 128, 8), 4);
        assert_eq!(count(Benchmark::AllToAll, 3, 1024, 1), 336);
        assert_eq!(count(Benchmark::ReduceScatter, 2, 63, 2), 8);
        assert_eq!(count(Benchmark::Barrier, 2, 64, 4), 0);
    }

    #[test]
    fn people_read_binary_units() {
        for (bytes, text) in
            [(0, "0 B"), (100, "100 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (64 << 20, "64 MiB"), (u64::MAX, "16 EiB")]
        {
            assert_eq!(human(bytes), text);
        }
    }
}
