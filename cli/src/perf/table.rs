//! The table: the columns of nccl-tests, so that what parses those parses these.
//!
//! Time has 7 places and bandwidth 6, with as many decimals (two at most) as fit. Columns that nccl-tests does not have come
//! last.

use super::arithmetic::Distribution;
use super::settings::{Average, Settings, Timing};
use super::sizes::Step;

/// What was measured of one kind of buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Microseconds of one call.
    pub time: f64,
    /// Bytes over time, in 10^9 bytes a second.
    pub algbw: f64,
    /// The same times the collective's factor; `None` for one rank.
    pub busbw: Option<f64>,
    /// Wrong elements over all ranks; `None` if not checked.
    pub wrong: Option<u64>,
    /// Times of single iterations, where they were taken: the slowest rank's.
    pub each: Option<Distribution>,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Bytes of the message.
    pub size: u64,
    /// Elements of a block.
    pub count: u64,
    /// Their type, or `none`.
    pub datatype: &'static str,
    /// The operation, or `none`.
    pub op: &'static str,
    /// The root, or -1.
    pub root: i64,
    /// With separate buffers, if measured.
    pub out_of_place: Option<Figures>,
    /// In place, if measured.
    pub in_place: Option<Figures>,
    /// Time of day, if wanted.
    pub timestamp: Option<String>,
}

/// The line that says how the measurement runs, in the words that scripts look for.
pub fn preamble(settings: &Settings) -> String {
    let (step, unit) = match settings.step {
        Step::Bytes(bytes) => (bytes, "bytes"),
        Step::Factor(factor) => (factor, "factor"),
    };
    let mut line = format!(
        "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {step}({unit}) warmup iters: {} iters: {} agg iters: {} validation: {} graph: 0",
        settings.min, settings.max, settings.warmup, settings.iterations, settings.aggregate, settings.checks
    );
    match settings.timing {
        Timing::EachAfterBarrier => {
            line.push_str("\n# time: median over iterations of the slowest rank, a barrier before each")
        }
        _ => line.push_str(match settings.average {
            Average::Rank0 => "\n# time: mean over iterations back to back, of rank 0",
            Average::Mean => "\n# time: mean over iterations back to back, and over ranks",
            Average::Least => "\n# time: mean over iterations back to back, of the fastest rank",
            Average::Greatest => "\n# time: mean over iterations back to back, of the slowest rank",
        }),
    }
    line
}

/// The heads of the columns.
pub fn heading(settings: &Settings) -> String {
    let half = |name: &str| format!("  {name:^31}");
    let names = "     time   algbw   busbw  #wrong";
    let units = "     (us)  (GB/s)  (GB/s)        ";
    let (extra, extra_units) = if settings.timing.has_samples() {
        ("    i_min    i_max    i_p99  i_cv%", "     (us)     (us)     (us)    (%)")
    } else {
        ("", "")
    };
    let stamp = if settings.timestamps { "            timestamp" } else { "" };
    let left = format!("#{:55}", "");
    let lines = [
        "#".to_owned(),
        format!("{left}{}{}", half("out-of-place"), half("in-place")),
        format!("#       size         count      type   redop    root{names}{names}{extra}{stamp}"),
        format!("#        (B)    (elements)                          {units}{units}{extra_units}"),
    ];
    lines.map(|line| line.trim_end().to_owned()).join("\n")
}

/// One line of the table.
pub fn line(row: &Row, settings: &Settings) -> String {
    let mut line = format!("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", row.size, row.count, row.datatype, row.op, row.root);
    line += &figures(row.out_of_place.as_ref());
    line += &figures(row.in_place.as_ref());
    if settings.timing.has_samples() {
        let each = row.in_place.as_ref().or(row.out_of_place.as_ref()).and_then(|figures| figures.each.as_ref());
        line += &each.map_or_else(String::new, spread);
    }
    if let Some(timestamp) = &row.timestamp {
        line += &format!("{timestamp:>21}");
    }
    line
}

fn figures(figures: Option<&Figures>) -> String {
    let Some(figures) = figures else {
        return format!("  {:>7}  {:>6}  {:>6}  {:>6}", "N/A", "N/A", "N/A", "N/A");
    };
    let busbw = figures.busbw.map_or_else(|| "n/a".into(), |busbw| fixed(busbw, 6));
    let wrong = figures.wrong.map_or_else(|| "N/A".into(), |wrong| wrong.to_string());
    format!("  {:>7}  {:>6}  {busbw:>6}  {wrong:>6}", fixed(figures.time, 7), fixed(figures.algbw, 6))
}

fn spread(each: &Distribution) -> String {
    let time = |time| fixed(time, 7);
    format!(
        "  {:>7}  {:>7}  {:>7}  {:>5}",
        time(each.min()),
        time(each.max()),
        time(each.percentile(99.0)),
        fixed(each.variation_percent(), 5)
    )
}

/// A number in this many places: two decimals if they fit, else one, none, or an exponent.
pub fn fixed(number: f64, width: usize) -> String {
    (0..=2usize)
        .rev()
        .map(|decimals| format!("{number:.decimals$}"))
        .find(|text| text.len() <= width)
        .unwrap_or_else(|| format!("{number:.1e}"))
}

/// The last lines: whether the data was right, and the mean of all bus bandwidths.
pub fn footer(wrong: u64, mean_busbw: Option<f64>) -> String {
    let verdict = if wrong == 0 { "OK" } else { "FAILED" };
    let mean = mean_busbw.map_or_else(|| "n/a".into(), significant);
    format!("# Out of bounds values : {wrong} {verdict}\n# Avg bus bandwidth    : {mean}\n#")
}

/// Six significant digits at most, without zeros behind.
fn significant(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return format!("{number}");
    }
    let decimals = (5 - number.abs().log10().floor() as i64).clamp(0, 17) as usize;
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
