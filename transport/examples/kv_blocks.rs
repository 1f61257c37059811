//! A pool of KV-cache blocks: a prefill process writes the blocks of a prompt into the pool of a decode process, layer by
//! layer, each with one immediate, and decode starts on a layer as soon as that has come.
//!
//! In both pools the block with number `b` of layer `l` starts at `(l * BLOCKS + b) * BLOCK`. Which blocks a prompt has is
//! decided on each side alone; the two lists are of the same length, and pair up in order.
//!
//! `cargo run --release -p vervain-transport --example kv_blocks`

mod support;

use support::{Channel, Process, Result, accept, soon, until_left};
use vervain_transport::endpoint::{Access, Arrivals, Endpoint, Exposed, Notify, PageList, Pages};

const LAYERS: u64 = 24;
/// Blocks in a pool, for each layer.
const BLOCKS: u64 = 256;
/// Bytes of a block: 16 tokens of 8 heads of 128 half-precision keys and values.
const BLOCK: u64 = 16 * 8 * 128 * 2;
const LAYER: u64 = BLOCKS * BLOCK;
/// The immediate of layer `l` of a prompt is `prompt * LAYERS + l`.
const PROMPTS: u32 = 2;

fn main() -> Result {
    match support::role()? {
        None => decode(),
        Some((_, channel)) => prefill(channel),
    }
}

/// What prefill computes: the value of the token block at this place of the prompt.
fn value(prompt: u32, layer: u64, place: usize) -> u8 {
    (prompt as usize * 101 + layer as usize * 7 + place * 13) as u8
}

fn decode() -> Result {
    let mut prefill = Process::start("prefill")?;
    let mut endpoint = support::endpoint()?.build()?;
    prefill.channel.send(&endpoint.address()?)?;
    let peer = accept(&mut endpoint)?;
    let pool = endpoint.register(Pages::huge((LAYERS * LAYER) as usize))?;
    let (pool, advert) = endpoint.advertise(pool, peer, Access::Write)?;
    prefill.channel.send(&advert)?;

    // free blocks of a pool that was used for long lie all over it
    let free: Vec<u32> = (0..BLOCKS as u32).map(|index| index * 77 % BLOCKS as u32).collect();
    for (prompt, blocks) in (0..PROMPTS).zip(free.chunks(100)) {
        // expected before anybody is asked to write; arrivals that came early would count too
        let layers: Vec<Arrivals> =
            (0..LAYERS as u32).map(|layer| endpoint.expect(prompt * LAYERS as u32 + layer, 1)).collect();
        let list: Vec<u8> = blocks.iter().flat_map(|block| block.to_le_bytes()).collect();
        prefill.channel.send(&list)?;
        run_layers(&mut endpoint, &pool, prompt, blocks, &layers)?;
    }
    until_left(&mut endpoint)?;
    endpoint.revoke(pool, soon())?;
    prefill.finish()
}

/// "Runs the model": checks every block of a layer as soon as the layer is there.
fn run_layers(endpoint: &mut Endpoint, pool: &Exposed, prompt: u32, blocks: &[u32], layers: &[Arrivals]) -> Result {
    let (mut block, mut early) = (vec![0; BLOCK as usize], 0);
    for (layer, arrivals) in (0..).zip(layers) {
        endpoint.wait_arrivals(arrivals, soon())?;
        early += usize::from(layers.iter().any(|later| !later.is_complete()));
        for (place, &number) in blocks.iter().enumerate() {
            pool.copy_out((layer * LAYER + u64::from(number) * BLOCK) as usize, &mut block)?;
            assert!(block.iter().all(|&byte| byte == value(prompt, layer, place)), "layer {layer}, block {number}");
        }
    }
    let bytes = LAYERS * BLOCK * blocks.len() as u64;
    println!(
        "prompt {prompt}: {} blocks, {LAYERS} layers, {bytes} bytes; {early} layers began before the last had come",
        blocks.len()
    );
    Ok(())
}

fn prefill(mut channel: Channel) -> Result {
    let mut endpoint = support::endpoint()?.build()?;
    let peer = endpoint.connect(&channel.receive()?, soon())?;
    let remote = endpoint.open_region(peer, &channel.receive()?)?;
    let mut pool = endpoint.register(Pages::huge((LAYERS * LAYER) as usize))?;
    for prompt in 0..PROMPTS {
        let theirs: Vec<u32> =
            channel.receive()?.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect();
        let ours: Vec<u32> = (0..theirs.len() as u32).rev().collect();
        let mut transfers = Vec::new();
        for layer in 0..LAYERS {
            // "computes" the layer, while those before it are on their way
            for (place, &number) in ours.iter().enumerate() {
                let block = [value(prompt, layer, place); BLOCK as usize];
                pool.copy_in((layer * LAYER + u64::from(number) * BLOCK) as usize, &block)?;
            }
            let from = pool.all().pages(PageList::listed(&ours, BLOCK).after(layer * LAYER));
            let to = remote.pages(PageList::listed(&theirs, BLOCK).after(layer * LAYER));
            let notify = Notify::Immediate(prompt * LAYERS as u32 + layer as u32);
            transfers
                .push(endpoint.wait_start(soon(), |endpoint| endpoint.write_paged(BLOCK, from, to, notify, soon()))?);
        }
        // a block is used again when its transfers have ended
        for transfer in transfers {
            endpoint.wait(transfer)?.end.ok()?;
        }
    }
    Ok(())
}
