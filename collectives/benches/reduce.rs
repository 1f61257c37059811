//! The kernels, by shape, type and size. `benches/reduce_rate.rs` prints the same as one table.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use vervain_collectives::reduce::{Kernel, Source, Write};
use vervain_collectives::{DataType, ReduceOp};

const SIZES: [usize; 8] = [4, 64, 256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20];

/// Runs one shape at every size.
fn shape(
    criterion: &mut Criterion,
    name: &str,
    datatype: DataType,
    op: Option<ReduceOp>,
    k: usize,
    m: usize,
    write: Write,
) {
    let mut group = criterion.benchmark_group(name);
    for bytes in SIZES {
        // written, so that they are memory and not the one page of zeros
        let inputs = vec![vec![1u8; bytes]; k];
        let mut outputs = vec![vec![1u8; bytes]; m];
        let sources: Vec<_> = inputs.iter().map(|input| Source { start: input.as_ptr(), raw: true }).collect();
        let destinations: Vec<_> = outputs.iter_mut().map(|output| output.as_mut_ptr()).collect();
        let kernel = Kernel::select(datatype, op, 2);
        group.throughput(Throughput::Bytes(((k + m) * bytes) as u64));
        group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
            bencher.iter(|| {
                let (sources, destinations) = black_box((sources.as_slice(), destinations.as_slice()));
                // SAFETY: all have `bytes` bytes and are distinct.
                unsafe { kernel.run(sources, destinations, bytes / datatype.bytes(), true, write) }
            });
        });
    }
}

fn copies(criterion: &mut Criterion) {
    shape(criterion, "copy cached", DataType::U8, None, 1, 1, Write::Cached);
    shape(criterion, "copy streaming", DataType::U8, None, 1, 1, Write::Streaming);
    shape(criterion, "copy to 3 cached", DataType::U8, None, 1, 3, Write::Cached);
}

fn sums(criterion: &mut Criterion) {
    let sum = Some(ReduceOp::Sum);
    for write in [Write::Cached, Write::Streaming] {
        for (k, m) in [(2, 1), (2, 2), (3, 1), (4, 4), (8, 8)] {
            shape(criterion, &format!("sum f32 {k}->{m} {write:?}"), DataType::F32, sum, k, m, write);
        }
    }
    for &datatype in DataType::ALL {
        shape(criterion, &format!("sum {datatype} 2->1"), datatype, sum, 2, 1, Write::Cached);
    }
}

fn averages(criterion: &mut Criterion) {
    for &datatype in DataType::ALL {
        shape(criterion, &format!("avg {datatype} 2->1"), datatype, Some(ReduceOp::Avg), 2, 1, Write::Cached);
    }
    shape(criterion, "max f32 2->1", DataType::F32, Some(ReduceOp::Max), 2, 1, Write::Cached);
}

criterion_group!(benches, copies, sums, averages);
criterion_main!(benches);
