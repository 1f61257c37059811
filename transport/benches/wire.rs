//! What packing and unpacking a message costs when everything is in the cache: the part of a transfer that is ours.

use core::{hint::black_box, ptr::NonNull};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use vervain_transport::{
    sync::Mapped,
    wire::{ll, ll128},
};

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pack and unpack");
    for bytes in [8_usize, 112, 1024, 4096, 65536] {
        let (source, mut destination) = (vec![1_u8; bytes], vec![0_u8; bytes]);
        let mut memory = vec![[0_u64; 16]; (ll::slot_bytes(bytes as u64) / 128) as usize];
        // SAFETY: the vector outlives the words and is not touched otherwise.
        let slot = unsafe { Mapped::new(NonNull::from(&mut memory[..]).cast(), memory.len() * 16) };
        let mut step = 0;
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::new("LL", bytes), |b| {
            b.iter(|| {
                step += 1;
                let flag = ll::flag(step);
                // SAFETY: both buffers have `bytes` bytes.
                unsafe {
                    ll::pack(&slot, step, black_box(source.as_ptr()), bytes, flag);
                    black_box(ll::unpack(&slot, black_box(destination.as_mut_ptr()), bytes, flag, 0));
                }
            });
        });
        group.bench_function(BenchmarkId::new("LL128", bytes), |b| {
            b.iter(|| {
                step += 1;
                let flag = ll128::flag(step);
                // SAFETY: both buffers have `bytes` bytes.
                unsafe {
                    ll128::pack(&slot, step, black_box(source.as_ptr()), bytes, flag);
                    black_box(ll128::unpack(&slot, black_box(destination.as_mut_ptr()), bytes, flag, 0));
                }
            });
        });
        group.bench_function(BenchmarkId::new("memcpy twice", bytes), |b| {
            b.iter(|| {
                // SAFETY: both buffers and the slot have `bytes` bytes.
                unsafe {
                    let middle = slot.start().as_ptr().cast::<u8>();
                    middle.copy_from_nonoverlapping(black_box(source.as_ptr()), bytes);
                    black_box(destination.as_mut_ptr()).copy_from_nonoverlapping(black_box(middle), bytes);
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
