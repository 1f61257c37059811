//! How fast the kernels are here: GB/s of all bytes that are read and written, by message size.
//!
//! `cargo bench -p vervain-collectives --bench reduce_rate [-- THREADS]`: that many threads run at once, each on its own memory,
//! and the slowest counts.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use std::{env, thread};

use vervain_collectives::reduce::{Kernel, Source, Write};
use vervain_collectives::{DataType, ReduceOp};

/// One column of the table.
struct Shape {
    name: &'static str,
    datatype: DataType,
    op: Option<ReduceOp>,
    sources: usize,
    destinations: usize,
    write: Write,
}

const fn shape(name: &'static str, op: Option<ReduceOp>, sources: usize, destinations: usize, write: Write) -> Shape {
    Shape { name, datatype: DataType::F32, op, sources, destinations, write }
}

const SUM: Option<ReduceOp> = Some(ReduceOp::Sum);

const SHAPES: [Shape; 10] = [
    shape("copy", None, 1, 1, Write::Cached),
    shape("copy nt", None, 1, 1, Write::Streaming),
    shape("2->1", SUM, 2, 1, Write::Cached),
    shape("2->1 nt", SUM, 2, 1, Write::Streaming),
    shape("2->2", SUM, 2, 2, Write::Cached),
    shape("2->2 nt", SUM, 2, 2, Write::Streaming),
    shape("8->8", SUM, 8, 8, Write::Cached),
    shape("8->8 nt", SUM, 8, 8, Write::Streaming),
    Shape { datatype: DataType::Bf16, ..shape("bf16 2->1", SUM, 2, 1, Write::Cached) },
    Shape { datatype: DataType::F16, ..shape("f16 2->1", SUM, 2, 1, Write::Cached) },
];

fn main() {
    // Under `cargo test` there is nothing to measure.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    let threads = env::args().find_map(|text| text.parse().ok()).unwrap_or(1);
    println!("GB/s per thread, read and written, {threads} thread(s)");
    print!("{:>12}", "bytes");
    SHAPES.iter().for_each(|shape| print!("{:>10}", shape.name));
    println!();
    for bytes in [256, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 128 << 20] {
        print!("{bytes:>12}");
        for shape in &SHAPES {
            print!("{:>10.2}", slowest(shape, bytes, threads));
        }
        println!();
    }
}

/// The rate of the slowest of all threads.
fn slowest(shape: &Shape, bytes: usize, threads: usize) -> f64 {
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| rate(shape, bytes, &start))).collect();
        running.into_iter().map(|thread| thread.join().expect("a thread that measures")).fold(f64::INFINITY, f64::min)
    })
}

/// The best of a few repetitions: what the machine can do.
fn rate(shape: &Shape, bytes: usize, start: &Barrier) -> f64 {
    let inputs: Vec<Vec<u8>> = (0..shape.sources).map(|_| vec![1; bytes]).collect();
    let mut outputs: Vec<Vec<u8>> = (0..shape.destinations).map(|_| vec![1; bytes]).collect();
    let kernel = Kernel::select(shape.datatype, shape.op, 2);
    let sources: Vec<Source> = inputs.iter().map(|input| Source { start: input.as_ptr(), raw: true }).collect();
    let destinations: Vec<*mut u8> = outputs.iter_mut().map(|output| output.as_mut_ptr()).collect();
    let elements = bytes / shape.datatype.bytes();
    let repeats = ((32 << 20) / (bytes * (shape.sources + shape.destinations))).max(1);
    let best = (0..15)
        .map(|_| {
            start.wait();
            let begin = Instant::now();
            for _ in 0..repeats {
                // SAFETY: every vector has `bytes` bytes, and all are distinct.
                unsafe { kernel.run(black_box(&sources), black_box(&destinations), elements, true, shape.write) }
            }
            begin.elapsed()
        })
        .min()
        .unwrap_or(Duration::MAX);
    let moved = (shape.sources + shape.destinations) * bytes * repeats;
    moved as f64 / best.as_secs_f64() / 1e9
}
