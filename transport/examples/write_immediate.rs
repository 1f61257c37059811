//! Writing into another process's memory, and telling it so: writes with an immediate, which a counter there counts.
//!
//! `cargo run --release -p vervain-transport --example write_immediate`

mod support;

use support::{Channel, Process, Result, accept, finish, receive, soon, until_left};
use vervain_transport::endpoint::{Access, Notify, Pages};

/// What the immediate means is between the two sides.
const ROW_DONE: u32 = 7;
const ROWS: u64 = 16;
const ROW: u64 = 64 << 10;

fn main() -> Result {
    match support::role()? {
        None => target(),
        Some((_, channel)) => writer(channel),
    }
}

/// Gives a peer the right to write a region, and waits until all of it has come.
fn target() -> Result {
    let mut writer = Process::start("writer")?;
    let mut endpoint = support::endpoint()?.build()?;
    writer.channel.send(&endpoint.address()?)?;
    let peer = accept(&mut endpoint)?;
    let region = endpoint.register(Pages::new((ROWS * ROW) as usize).prefault())?;
    let (exposed, advert) = endpoint.advertise(region, peer, Access::Write)?;
    let arrivals = endpoint.expect(ROW_DONE, ROWS);
    writer.channel.send(&advert)?;

    endpoint.wait_arrivals(&arrivals, soon())?;
    // an immediate is counted after its bytes have landed: all of it can be read, while the peer may still write
    let mut row = vec![0; ROW as usize];
    for index in 0..ROWS {
        exposed.copy_out((index * ROW) as usize, &mut row)?;
        assert!(row.iter().all(|&byte| byte == index as u8 + 1));
    }
    println!("{ROWS} rows of {ROW} bytes arrived: {}", endpoint.explain(peer)?);

    // from here on nobody writes, and the bytes can be borrowed
    let region = endpoint.revoke(exposed, soon())?;
    assert_eq!(endpoint.bytes(&region)?[0], 1);
    finish(&mut endpoint, |endpoint| endpoint.send(peer, 0, b"revoked", soon()))?;
    until_left(&mut endpoint)?;
    writer.finish()
}

/// Writes one row after the other, several at a time.
fn writer(mut channel: Channel) -> Result {
    let mut endpoint = support::endpoint()?.build()?;
    let peer = endpoint.connect(&channel.receive()?, soon())?;
    let remote = endpoint.open_region(peer, &channel.receive()?)?;
    let mut source = endpoint.register(Pages::new((ROWS * ROW) as usize))?;
    for (row, value) in endpoint.bytes_mut(&mut source)?.chunks_mut(ROW as usize).zip(1..) {
        row.fill(value);
    }
    let mut transfers = Vec::new();
    for offset in (0..ROWS).map(|row| row * ROW) {
        let row = source.span(offset, ROW);
        let notify = Notify::Immediate(ROW_DONE);
        transfers.push(endpoint.wait_start(soon(), |endpoint| endpoint.write(row, remote.at(offset), notify, soon()))?);
    }
    for transfer in transfers {
        endpoint.wait(transfer)?.end.ok()?;
    }

    // who polls learns of the revocation before anything that is sent later, and a write is refused
    assert_eq!(receive(&mut endpoint)?, b"revoked");
    let refused = finish(&mut endpoint, |endpoint| endpoint.write(source.all(), remote.at(0), Notify::No, soon()));
    println!("a write after the revocation: {}", refused.expect_err("the region was revoked"));
    Ok(())
}
