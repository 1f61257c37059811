//! A counter, and what it says about other memory.

use vervain_transport::{
    Kind,
    ring::counter::{self, Reader, Writer},
    sync::{Owned, model, spin_loop, thread},
};

use super::Side;

fn wait(reader: &mut Reader<Owned>, target: u64) -> Result<u64, Kind> {
    reader.wait_until(target, || {
        spin_loop();
        Ok(())
    })
}

#[test]
fn loom_counter_shows_what_was_stored_before_it_was_advanced() {
    model(|| {
        let (line, side) = (Owned::new(counter::WORDS), Side::new());
        let mut writer = Writer::attach(line.clone()).unwrap();
        let mut reader = Reader::attach(line).unwrap();
        let peer_side = side.clone();
        let counting = thread::spawn(move || {
            peer_side.set();
            writer.advance(2);
        });
        assert_eq!((wait(&mut reader, 1), side.get()), (Ok(2), 1), "CN-3");
        counting.join().unwrap();
    });
}

#[test]
fn loom_counter_never_moves_back_across_its_wrap() {
    model(|| {
        let line = Owned::new(counter::WORDS);
        let mut writer = Writer::starting_at(line.clone(), u64::MAX).unwrap();
        let mut reader = Reader::attach(line).unwrap();
        let counting = thread::spawn(move || {
            writer.advance(1);
            writer.advance(1);
        });
        assert!(wait(&mut reader, 0).is_ok_and(|value| value < 2), "CN-2");
        assert_eq!(wait(&mut reader, 1), Ok(1), "CN-4");
        counting.join().unwrap();
    });
}
