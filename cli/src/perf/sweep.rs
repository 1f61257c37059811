//! The sweep: every size, type, operation and root in turn, measured and checked, a line each.

use vervain_collectives::plan::Verified;
use vervain_collectives::{Communicator, DataType, Rank, ReduceOp, Result};

use super::arithmetic::{algorithm_bytes, bus_factor, gigabytes_per_second};
use super::benchmark::Benchmark;
use super::data::Case;
use super::memory::{Lent, Memory};
use super::settings::{Inject, Place, Roots, Settings};
use super::table::{self, Figures, Row};
use super::timing::Times;
use super::{clock, custom, exchange, invoke, sizes, timing};
use crate::exit::Failure;
use crate::progress::Progress;

/// What a run has found so far.
#[derive(Debug, Default)]
pub struct Findings {
    /// All rows.
    pub rows: Vec<Row>,
    /// Wrong elements over all rows and ranks.
    pub wrong: u64,
}

impl Findings {
    /// The mean of all bus bandwidths; `None` if there are none, as with one rank.
    pub fn mean_busbw(&self) -> Option<f64> {
        let figures = self.rows.iter().flat_map(|row| [&row.out_of_place, &row.in_place]);
        let all: Vec<f64> = figures.flatten().filter_map(|figures| figures.busbw).collect();
        if all.is_empty() { None } else { Some(all.iter().sum::<f64>() / all.len() as f64) }
    }
}

/// One rank's part in a run.
#[derive(Debug)]
pub struct Sweep<'a> {
    communicator: &'a Communicator,
    settings: &'a Settings,
    memory: Memory,
    plan: Option<Verified>,
    planted: bool,
}

/// What a row has besides its size.
#[derive(Clone, Copy, Debug)]
struct Kind {
    datatype: DataType,
    op: Option<ReduceOp>,
    root: u32,
}

impl<'a> Sweep<'a> {
    /// Make the buffers. All ranks call it together.
    pub fn new(communicator: &'a Communicator, settings: &'a Settings) -> Result<Self, Failure> {
        let plan = custom::load(settings, communicator.ranks())?;
        let memory = Memory::new(communicator, settings)?;
        Ok(Self { communicator, settings, memory, plan, planted: false })
    }

    /// How many rows one cycle has.
    pub fn rows(&self) -> u64 {
        (self.settings.sizes().len() * self.kinds().len()) as u64
    }

    /// Measure everything once. Rank 0 prints.
    pub fn cycle(&mut self, findings: &mut Findings, progress: &Progress) -> Result<(), Failure> {
        let sizes = self.settings.sizes();
        for kind in self.kinds() {
            for &size in &sizes {
                progress.says(format!("{} of {}", self.settings.benchmark, sizes::human(size)));
                let row = self.row(size, kind).map_err(|error| self.tell(error, size))?;
                findings.wrong += wrong(&row);
                if self.communicator.rank() == Rank::new(0) {
                    progress.line(&table::line(&row, self.settings));
                }
                findings.rows.push(row);
                progress.step();
            }
        }
        Ok(())
    }

    fn kinds(&self) -> Vec<Kind> {
        let roots: Vec<u32> = match self.settings.roots {
            _ if !self.settings.benchmark.has_root() => vec![0],
            Roots::All => (0..self.communicator.ranks()).collect(),
            Roots::One(root) => vec![root],
        };
        let mut kinds = Vec::new();
        for &datatype in &self.settings.datatypes {
            for &op in &self.settings.ops {
                kinds.extend(roots.iter().map(|&root| Kind { datatype, op, root }));
            }
        }
        kinds
    }

    fn row(&mut self, size: u64, kind: Kind) -> Result<Row> {
        let ranks = self.communicator.ranks();
        let element = kind.datatype.bytes() as u64;
        let benchmark = self.settings.benchmark;
        let count = sizes::count(benchmark, ranks, size, element);
        let case = Case {
            benchmark,
            datatype: kind.datatype,
            op: kind.op,
            root: kind.root,
            count: usize::try_from(count).map_err(|_| vervain_collectives::Kind::SizeOverflow)?,
            rank: self.communicator.rank().get(),
            ranks,
            registered: self.settings.registered,
        };
        let bytes = algorithm_bytes(benchmark, ranks, count, element).ok_or(vervain_collectives::Kind::SizeOverflow)?;
        let mut row = Row {
            size: bytes,
            count,
            datatype: kind.datatype.name(),
            op: kind.op.map_or("none", ReduceOp::name),
            root: if benchmark.has_root() { i64::from(kind.root) } else { -1 },
            out_of_place: None,
            in_place: None,
            timestamp: None,
        };
        for &place in &self.settings.places {
            if place == Place::InPlace && !custom::can_be_in_place(self.plan.as_ref()) {
                continue;
            }
            let figures = self.figures(&case, place, bytes)?;
            match place {
                Place::Apart => row.out_of_place = Some(figures),
                Place::InPlace => row.in_place = Some(figures),
            }
        }
        row.timestamp = self.settings.timestamps.then(clock::now);
        Ok(row)
    }

    fn figures(&mut self, case: &Case, place: Place, bytes: u64) -> Result<Figures> {
        let (input, output) = case.bytes().ok_or(vervain_collectives::Kind::SizeOverflow)?;
        let mut lent = self.memory.lend(place, input, output);
        case.prepare(&mut lent);
        let (communicator, plan) = (self.communicator, self.plan.as_ref());
        let Times { per_call, each } =
            timing::measure(communicator, self.settings, || operate(communicator, case, plan, lent.again()))?;
        let algbw = gigabytes_per_second(bytes, per_call);
        let busbw = bus_factor(case.benchmark, case.ranks).map(|factor| algbw * factor);
        let wrong = self.check(case, place)?;
        Ok(Figures { time: per_call, algbw, busbw, wrong, each })
    }

    /// Wrong elements over all ranks, of as many calls as the settings ask for; `None` if they ask for none.
    fn check(&mut self, case: &Case, place: Place) -> Result<Option<u64>> {
        if self.settings.checks == 0 {
            return Ok(None);
        }
        let plants = !self.planted && self.settings.inject == Inject::OneError && case.count > 0;
        let mut ours = 0;
        for _ in 0..self.settings.checks {
            let (input, output) = case.bytes().ok_or(vervain_collectives::Kind::SizeOverflow)?;
            let mut lent = self.memory.lend(place, input, output);
            case.prepare(&mut lent);
            operate(self.communicator, case, self.plan.as_ref(), lent.again())?;
            if plants && !self.planted && case.rank == culprit(case) {
                case.damage(&mut lent);
            }
            self.planted |= plants;
            ours += case.wrong(&mut lent);
        }
        exchange::sum(self.communicator, ours).map(Some)
    }

    /// The failure of a row, with what was being done.
    fn tell(&self, error: vervain_collectives::Error, size: u64) -> Failure {
        let report = self.communicator.report();
        Failure::communicator(error, report.as_deref()).and(format!(
            "this happened while {} of {} was measured among {} ranks",
            self.settings.benchmark,
            sizes::human(size),
            self.communicator.ranks()
        ))
    }
}

/// The rank whose output gets the planted error: the last one that has an output.
fn culprit(case: &Case) -> u32 {
    if case.benchmark == Benchmark::Reduce { case.root } else { case.ranks - 1 }
}

fn operate(communicator: &Communicator, case: &Case, plan: Option<&Verified>, lent: Lent<'_>) -> Result<()> {
    match case.benchmark {
        Benchmark::Barrier => communicator.barrier(),
        Benchmark::SendRecv => invoke::send_to_next(communicator, &case.request(), lent),
        _ => invoke::call(communicator, &case.request(), plan, lent),
    }
}

fn wrong(row: &Row) -> u64 {
    [&row.out_of_place, &row.in_place].into_iter().flatten().filter_map(|figures| figures.wrong).sum()
}
