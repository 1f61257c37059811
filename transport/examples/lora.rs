//! A LoRA adapter goes from a trainer to two servers: straight from the mapped file into the servers' memory, with an
//! immediate that says it is there. Then each server revokes the memory in the middle of the next transfers and puts another
//! adapter there: the trainer's transfer ends with an error, and the new adapter stays whole.
//!
//! `cargo run --release -p vervain-transport --example lora`

mod support;

use std::fs::{self, File};
use std::ptr::NonNull;

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
use support::{Channel, Process, Result, accept, finish, receive, soon, until_left};
use vervain_transport::endpoint::{Access, End, Endpoint, Local, Notify, Pages, PeerId, RemoteRegion, Write};
use vervain_transport::fabric::Backend;

const ADAPTER: u32 = 1;
const NEXT: u32 = 2;

fn main() -> Result {
    match support::role()? {
        None => [Backend::Shm, Backend::Tcp].into_iter().try_for_each(trainer),
        Some((role, channel)) => server(if role == "tcp" { Backend::Tcp } else { Backend::Shm }, channel),
    }
}

/// An adapter for 8 layers: `seed` stands for what was learned.
fn adapter(seed: u8) -> Result<Vec<u8>> {
    const RANK: usize = 16;
    const WIDTH: usize = 4096;
    let weights: Vec<u8> = (0..RANK * WIDTH * 4).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
    let mut tensors = Vec::new();
    for layer in 0..8 {
        for (matrix, shape) in [("A", [RANK, WIDTH]), ("B", [WIDTH, RANK])] {
            let view = TensorView::new(Dtype::F32, shape.to_vec(), &weights)?;
            tensors.push((format!("layers.{layer}.q_proj.lora_{matrix}.weight"), view));
        }
    }
    Ok(serialize(tensors, None)?)
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn trainer(fabric: Backend) -> Result {
    let path = std::env::temp_dir().join(format!("vervain-lora-{}.safetensors", std::process::id()));
    fs::write(&path, adapter(1)?)?;
    let file = File::open(&path)?;
    fs::remove_file(&path)?;
    // SAFETY: the file has no name any more, so nobody changes it while it is mapped.
    let map = unsafe { Mmap::map(&file)? };
    let mut endpoint = support::endpoint()?.only(fabric).build()?;
    let start = NonNull::new(map.as_ptr().cast_mut()).ok_or("an empty file")?;
    // SAFETY: `map` outlives the endpoint's use of it, which ends with `release` below or with the endpoint, declared later;
    // the region is a source only: nothing here writes into it or lets a peer do so.
    let source = unsafe { endpoint.register_raw(start, map.len())? };

    let mut servers = Vec::new();
    for _ in 0..2 {
        let mut process = Process::start(&fabric.to_string())?;
        let peer = endpoint.connect(&process.channel.receive()?, soon())?;
        process.channel.send(&(map.len() as u64).to_le_bytes())?;
        let remote = endpoint.open_region(peer, &process.channel.receive()?)?;
        servers.push((process, peer, remote));
    }
    let notify = Notify::Immediate(ADAPTER);
    let write = |remote: RemoteRegion| Write { local: source.all(), remote: remote.at(0), notify, context: 0 };
    let writes: Vec<Write> = servers.iter().map(|&(_, _, remote)| write(remote)).collect();
    finish(&mut endpoint, |endpoint| endpoint.scatter(&writes, soon()))?;
    for (process, ..) in &mut servers {
        assert_eq!(process.channel.receive()?, checksum(&map).to_le_bytes());
    }
    println!("{fabric}: {} bytes from the mapped file to two servers, checksum {:016x}", map.len(), checksum(&map));

    for &(_, peer, remote) in &servers {
        let (count, end) = push_until_it_fails(&mut endpoint, peer, source.all(), remote)?;
        println!("{fabric}: {count} more transfers, then {end:?}");
    }
    endpoint.release(source)?;
    drop(endpoint);
    servers.into_iter().try_for_each(|(process, ..)| process.finish())
}

/// How many transfers ended well, and how one did not.
fn push_until_it_fails(endpoint: &mut Endpoint, peer: PeerId, all: Local, remote: RemoteRegion) -> Result<(u32, End)> {
    for count in 0.. {
        let write = endpoint
            .wait_start(soon(), |endpoint| endpoint.write(all, remote.at(0), Notify::Immediate(NEXT), soon()))?;
        let end = endpoint.wait(write)?.end;
        if !end.is_done() {
            finish(endpoint, |endpoint| endpoint.send(peer, 0, b"it failed", soon()))?;
            return Ok((count, end));
        }
    }
    unreachable!("the server revokes its region")
}

fn server(fabric: Backend, mut channel: Channel) -> Result {
    let mut endpoint = support::endpoint()?.only(fabric).build()?;
    channel.send(&endpoint.address()?)?;
    let trainer = accept(&mut endpoint)?;
    let bytes = u64::from_le_bytes(channel.receive()?.try_into().expect("a size")) as usize;
    let memory = endpoint.register(Pages::new(bytes).prefault())?;
    let (exposed, advert) = endpoint.advertise(memory, trainer, Access::Write)?;
    let (arrived, next) = (endpoint.expect(ADAPTER, 1), endpoint.expect(NEXT, 2));
    channel.send(&advert)?;
    endpoint.wait_arrivals(&arrived, soon())?;
    let mut copy = vec![0; bytes];
    exposed.copy_out(0, &mut copy)?;
    assert_eq!(SafeTensors::deserialize(&copy)?.len(), 16);
    channel.send(&checksum(&copy).to_le_bytes())?;

    // the trainer goes on writing without end: take the memory away from it, and use it for something else
    endpoint.wait_arrivals(&next, soon())?;
    let mut memory = endpoint.revoke(exposed, soon())?;
    let replacement = adapter(2)?;
    memory.copy_in(0, &replacement)?;
    assert_eq!(receive(&mut endpoint)?, b"it failed");
    let served = &endpoint.bytes(&memory)?[..bytes];
    assert_eq!(checksum(served), checksum(&replacement));
    println!("{fabric}: the replacement is whole, {} tensors", SafeTensors::deserialize(served)?.len());
    until_left(&mut endpoint)
}
