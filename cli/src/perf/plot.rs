//! `--plot`: time and bus bandwidth over size, both logarithmic, with the alpha-beta fit.
//!
//! The fit says what the curve means: a message of S bytes takes alpha + S / beta. Relative errors are squared, so that small
//! messages count as much as large ones.

use std::path::Path;

use plotters::prelude::*;

use super::benchmark::Benchmark;
use super::sizes::human;
use super::table::{Figures, Row};
use crate::exit::Failure;

/// Latency and bandwidth behind a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Microseconds of a message without bytes.
    pub alpha: f64,
    /// 10^9 bytes a second.
    pub beta: f64,
}

/// The fit of (bytes, microseconds); `None` with fewer than two different sizes.
pub fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    // minimise the sum of (a/t + b s/t - 1)^2 over a, b: two normal equations
    let (mut aa, mut ab, mut bb, mut a, mut b) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &(size, time) in points.iter().filter(|(_, time)| *time > 0.0) {
        let (x, y) = (1.0 / time, size / time);
        aa += x * x;
        ab += x * y;
        bb += y * y;
        a += x;
        b += y;
    }
    let determinant = aa * bb - ab * ab;
    if determinant <= aa * bb * 1e-12 {
        return None;
    }
    let per_byte = (aa * b - ab * a) / determinant;
    if per_byte <= 0.0 {
        return None;
    }
    Some(Fit { alpha: ((a * bb - ab * b) / determinant).max(0.0), beta: 1e-3 / per_byte })
}

/// Name and (size, figures) of each curve.
type Curve<'a> = (&'static str, Vec<(f64, &'a Figures)>);

fn curves(rows: &[Row]) -> Vec<Curve<'_>> {
    let of = |choose: fn(&Row) -> Option<&Figures>| {
        let points = rows.iter().filter(|row| row.size > 0);
        points.filter_map(|row| Some((row.size as f64, choose(row)?))).collect::<Vec<_>>()
    };
    let apart = of(|row| row.out_of_place.as_ref());
    let in_place = of(|row| row.in_place.as_ref());
    [("out of place", apart), ("in place", in_place)].into_iter().filter(|(_, points)| !points.is_empty()).collect()
}

/// Draw the rows into an SVG file.
pub fn draw(path: &Path, benchmark: Benchmark, ranks: u32, rows: &[Row]) -> Result<(), Failure> {
    let curves = curves(rows);
    if curves.is_empty() {
        return Err(Failure::failed("--plot: there is nothing to draw; no row has a size above 0"));
    }
    let mut text = String::new();
    draw_both(&mut text, benchmark, ranks, &curves).map_err(|error| Failure::failed(format!("--plot: {error}")))?;
    std::fs::write(path, text)
        .map_err(|error| Failure::failed(format!("{} cannot be written: {error}", path.display())))
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw_both(text: &mut String, benchmark: Benchmark, ranks: u32, curves: &[Curve<'_>]) -> Drawn {
    let root = SVGBackend::with_string(text, (900, 900)).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("{benchmark}, {ranks} ranks");
    let (upper, lower) = root.titled(&title, ("sans-serif", 24))?.split_vertically(435);
    chart(&upper, "time (us)", curves, |figures| Some(figures.time), Fitted::Yes)?;
    chart(&lower, "busbw (GB/s)", curves, |figures| figures.busbw, Fitted::No)?;
    root.present()?;
    Ok(())
}

/// Whether a chart shows the fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fitted {
    Yes,
    No,
}

fn chart<'a>(
    area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    name: &str,
    curves: &[Curve<'_>],
    value: fn(&Figures) -> Option<f64>,
    fitted: Fitted,
) -> Drawn {
    let points: Vec<Vec<(f64, f64)>> = curves.iter().map(|(_, points)| positive(points, value)).collect();
    let Some(((least, most), (low, high))) = bounds(&points) else { return Ok(()) };
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((least..most).log_scale().base(2.0), (low..high).log_scale())?;
    chart.configure_mesh().x_desc("size").y_desc(name).x_label_formatter(&|size| human(*size as u64)).draw()?;
    for (index, ((label, _), points)) in curves.iter().zip(points).enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let fit = if fitted == Fitted::Yes { fit(&points) } else { None };
        let label = match fit {
            Some(fit) => format!("{label}: alpha {:.2} us, beta {:.2} GB/s", fit.alpha, fit.beta),
            None => (*label).to_owned(),
        };
        chart
            .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)).point_size(3))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        if let Some(fit) = fit {
            let line = points.iter().map(|&(size, _)| (size, (fit.alpha + size / fit.beta / 1e3).clamp(low, high)));
            chart.draw_series(LineSeries::new(line, colour.mix(0.4).stroke_width(1)))?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    Ok(())
}

/// What a logarithmic axis can show.
fn positive(points: &[(f64, &Figures)], value: fn(&Figures) -> Option<f64>) -> Vec<(f64, f64)> {
    points.iter().filter_map(|(size, figures)| Some((*size, value(figures).filter(|value| *value > 0.0)?))).collect()
}

/// The ranges of both axes, a little wider than the points.
fn bounds(curves: &[Vec<(f64, f64)>]) -> Option<((f64, f64), (f64, f64))> {
    let range = |values: Vec<f64>| {
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        Some((least / 1.3, most * 1.3))
    };
    let sizes = range(curves.iter().flatten().map(|point| point.0).collect())?;
    Some((sizes, range(curves.iter().flatten().map(|point| point.1).collect())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_lines_are_found_again() {
        let points: Vec<_> =
            (3..28).map(|power| f64::from(1u32 << power)).map(|size| (size, 2.5 + size / 8e3)).collect();
        let fit = fit(&points).unwrap();
        assert!((fit.alpha - 2.5).abs() < 1e-6 && (fit.beta - 8.0).abs() < 1e-6, "{fit:?}");
    }

    #[test]
    fn what_is_no_line_has_no_fit() {
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[(8.0, 1.0)]), None);
        assert_eq!(fit(&[(8.0, 1.0), (8.0, 1.0)]), None);
        assert_eq!(fit(&[(8.0, 9.0), (1024.0, 1.0)]), None);
    }

    #[test]
    fn drawings_hold_both_charts_and_the_fit() {
        let figures =
            |size: f64| Figures { time: 1.0 + size / 1e4, algbw: 1.0, busbw: Some(1.0), wrong: None, each: None };
        let row = |size: u64| Row {
            size,
            count: size,
            datatype: "uint8",
            op: "sum",
            root: -1,
            out_of_place: Some(figures(size as f64)),
            in_place: None,
            timestamp: None,
        };
        let rows: Vec<Row> = [0, 8, 1 << 10, 1 << 20].map(row).into();
        let mut text = String::new();
        draw_both(&mut text, Benchmark::AllReduce, 4, &curves(&rows)).unwrap();
        for part in ["<svg", "</svg>", "time (us)", "busbw (GB/s)", "alpha 1.00 us", "all_reduce, 4 ranks"] {
            assert!(text.contains(part), "{part}");
        }
        assert!(curves(&rows[..1]).is_empty());
    }
}
