//! The tables as people and scripts read them: perftest's columns.

use super::bandwidth::Bandwidth;
use super::job::Table;
use super::latency::Latency;
use super::limits::Limits;

/// The line above the figures.
pub fn heading(table: Table, limits: Option<&Limits>) -> String {
    let mut line = match table {
        Table::Latency => String::from(
            " #bytes     #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]",
        ),
        Table::Bandwidth => {
            String::from(" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]")
        }
    };
    if limits.is_some() {
        line += match table {
            Table::Latency => "   typical/line",
            Table::Bandwidth => "   average/memcpy",
        };
    }
    line
}

/// A line of latencies.
pub fn latency(line: &Latency, limits: Option<&Limits>) -> String {
    let mut text = format!(
        " {:<10} {:<12} {:>13.3} {:>14.3} {:>16.3} {:>14.3} {:>16.3} {:>22.3} {:>24.3}",
        line.size,
        line.iterations,
        line.one_way(line.times.min() as f64),
        line.one_way(line.times.max() as f64),
        line.percentile(50.0),
        line.one_way(line.times.mean()),
        line.one_way(line.times.stdev()),
        line.percentile(99.0),
        line.percentile(99.9),
    );
    if let Some(limits) = limits {
        text += &ratio(limits.line.map(|time| line.percentile(50.0) / time));
    }
    text
}

/// A line of bandwidths.
pub fn bandwidth(line: &Bandwidth, limits: Option<&Limits>) -> String {
    let mut text = format!(
        " {:<10} {:<12} {:>17.2} {:>21.2} {:>15.6}",
        line.size, line.iterations, line.peak, line.average, line.rate
    );
    if let Some(limits) = limits {
        text += &ratio(limits.copy(line.size).map(|rate| line.average / rate));
    }
    text
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| format!(" {:>14}", "n/a"), |value| format!(" {value:>14.2}"))
}

/// The line below everything.
pub fn footer(checks: bool, wrong: u64) -> String {
    match (checks, wrong) {
        (false, _) => "# Wrong bytes : not checked".into(),
        (true, 0) => "# Wrong bytes : 0 OK".into(),
        (true, wrong) => format!("# Wrong bytes : {wrong} FAILED"),
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;

    #[test]
    fn lines_have_a_word_for_each_column() {
        let mut times = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
        times.record(500).unwrap();
        let slow = Latency { size: 4 << 30, iterations: 1, times, ways: 2 };
        let fast = Bandwidth { size: 4 << 30, iterations: 5, peak: 12345.6, average: 1.0, rate: 0.1 };
        let limits = Limits { line: Some(0.125), copies: vec![(256 << 20, 2.0)] };
        assert_eq!(latency(&slow, None).split_whitespace().count(), 9);
        assert_eq!(latency(&slow, Some(&limits)).split_whitespace().last(), Some("2.00"));
        assert_eq!(latency(&slow, Some(&Limits::default())).split_whitespace().last(), Some("n/a"));
        assert_eq!(bandwidth(&fast, None).split_whitespace().count(), 5);
        assert_eq!(bandwidth(&fast, Some(&limits)).split_whitespace().last(), Some("0.50"));
    }
}
