//! The JSON file: the shape of nccl-tests', with what only we measure under names of its own.

use std::path::Path;

use serde_json::{Value, json};
use vervain_collectives::Communicator;

use super::arithmetic::Distribution;
use super::clock;
use super::people::Person;
use super::settings::{Settings, Timing};
use super::sizes::Step;
use super::sweep::Findings;
use super::table::{Figures, Row};
use crate::exit::Failure;

/// A run as JSON.
pub fn document(
    communicator: &Communicator,
    settings: &Settings,
    people: &[Person],
    findings: &Findings,
    started: &str,
) -> Value {
    let results = json!({
        "config": config(communicator, settings),
        "devices": people.iter().map(Person::to_json).collect::<Vec<_>>(),
        "results": findings.rows.iter().map(result).collect::<Vec<_>>(),
        "out_of_bounds": { "count": findings.wrong, "okay": findings.wrong == 0 },
        "average_bus_bandwidth": { "bandwidth": findings.mean_busbw(), "okay": "unchecked" },
    });
    framed(started, results)
}

/// The results of a run that ends now, with what every run says of itself.
pub fn framed(started: &str, results: Value) -> Value {
    let mut run = json!({
        "version": 1,
        "vervain_version": env!("CARGO_PKG_VERSION"),
        "start_time": started,
        "args": std::env::args().collect::<Vec<_>>(),
        "end_time": clock::now(),
    });
    if let (Value::Object(run), Value::Object(results)) = (&mut run, results) {
        run.extend(results);
    }
    run
}

/// Write a document, in place of what was there.
pub fn write(path: &Path, document: &Value) -> Result<(), Failure> {
    std::fs::write(path, format!("{document:#}\n"))
        .map_err(|error| Failure::failed(format!("{} cannot be written: {error}", path.display())))
}

fn config(communicator: &Communicator, settings: &Settings) -> Value {
    let mut config = json!({
        "collective": settings.benchmark.name(),
        "ranks": communicator.ranks(),
        "fabric": communicator.backend().map(|backend| backend.to_string()),
        "registered": settings.registered,
        "nthreads": 1,
        "ngpus": 1,
        "minimum_bytes": settings.min,
        "maximum_bytes": settings.max,
        "warmup_iters": settings.warmup,
        "iterations": settings.iterations,
        "aggregated_iterations": settings.aggregate,
        "validation": settings.checks,
        "timing": match settings.timing {
            Timing::BackToBack => "back to back",
            Timing::EachBackToBack => "back to back, each",
            Timing::EachAfterBarrier => "barrier before each, slowest rank, median",
        },
        "graph": 0,
        "blocking_collectives": true,
        "parallel_init": true,
    });
    match settings.step {
        Step::Bytes(bytes) => config["step_bytes"] = bytes.into(),
        Step::Factor(factor) => config["step_factor"] = factor.into(),
    }
    config
}

fn result(row: &Row) -> Value {
    json!({
        "size": row.size,
        "count": row.count,
        "type": row.datatype,
        "redop": row.op,
        "root": row.root.to_string(),
        "out_of_place": row.out_of_place.as_ref().map(figures),
        "in_place": row.in_place.as_ref().map(figures),
        "timestamp": row.timestamp,
    })
}

fn figures(figures: &Figures) -> Value {
    let mut value = json!({
        "time": figures.time,
        "alg_bw": figures.algbw,
        "bus_bw": figures.busbw,
        "nwrong": figures.wrong,
    });
    if let Some(each) = &figures.each {
        value["per_iteration"] = spread(each);
    }
    value
}

fn spread(each: &Distribution) -> Value {
    json!({
        "min_us": each.min(),
        "median_us": each.median(),
        "mean_us": each.mean(),
        "p99_us": each.percentile(99.0),
        "max_us": each.max(),
        "variation_percent": each.variation_percent(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_known_names() {
        let each = Some(Distribution::new(vec![1.0, 2.0, 9.0]));
        let measured = Figures { time: 2.0, algbw: 4.0, busbw: None, wrong: Some(1), each };
        let row = Row {
            size: 8,
            count: 2,
            datatype: "float",
            op: "sum",
            root: -1,
            out_of_place: Some(measured),
            in_place: None,
            timestamp: None,
        };
        let value = result(&row);
        assert_eq!(value["out_of_place"]["time"], 2.0);
        assert_eq!(value["out_of_place"]["bus_bw"], Value::Null);
        assert_eq!(value["out_of_place"]["nwrong"], 1);
        assert_eq!(value["out_of_place"]["per_iteration"]["median_us"], 2.0);
        assert_eq!(value["out_of_place"]["per_iteration"]["p99_us"], 9.0);
        assert_eq!((&value["in_place"], &value["root"]), (&Value::Null, &Value::from("-1")));
    }
}
