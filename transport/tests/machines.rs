//! State x event of every machine, as a table under version control: the review of a protocol change is its diff.
#![cfg(not(vervain_loom))]

use core::fmt::Debug;
use std::fmt::Write;

use vervain_transport::{
    Error, Kind,
    proto::{abort, ll, ll128, simple},
};

/// One table: rows are states, columns events; `-` is refused.
fn table<S: Copy + Debug, E: Copy + Debug>(
    name: &str,
    states: &[S],
    events: &[E],
    on: fn(S, E) -> Option<S>,
) -> String {
    let mut text = format!("{name}\n{:12}", "");
    for event in events {
        write!(text, " {:12}", format!("{event:?}")).unwrap();
    }
    for state in states {
        write!(text, "\n{:12}", format!("{state:?}")).unwrap();
        for event in events {
            let next = on(*state, *event).map_or("-".to_owned(), |next| format!("{next:?}"));
            write!(text, " {next:12}").unwrap();
        }
    }
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n\n"
}

#[test]
fn tables_are_as_recorded() {
    let tables = [
        table("ll, sending", &ll::Transmit::ALL, &ll::Sending::ALL, ll::Transmit::on),
        table("ll and ll128, receiving", &ll::Receive::ALL, &ll::Receiving::ALL, ll::Receive::on),
        table("ll128, sending", &ll128::Transmit::ALL, &ll128::Sending::ALL, ll128::Transmit::on),
        table("simple, sending", &simple::Transmit::ALL, &simple::Sending::ALL, simple::Transmit::on),
        table("simple, receiving", &simple::Receive::ALL, &simple::Receiving::ALL, simple::Receive::on),
        table("abort", &abort::State::ALL, &abort::Event::ALL, abort::State::on),
    ]
    .concat();
    let recorded = include_str!("machines.txt");
    assert!(tables == recorded, "the tables changed; if that is meant, record them in tests/machines.txt:\n{tables}");
}

#[test]
fn the_first_cause_of_an_abort_is_kept_and_told_once() {
    let (first, second) = (Error::new(Kind::PeerDied), Error::new(Kind::TimedOut));
    let mut abort = abort::Abort::new();
    assert_eq!((abort.poll_notice(), abort.cause()), (None, None));
    abort.on_notice(first);
    abort.request(second);
    assert_eq!(abort.cause(), Some(first), "AB-3");
    assert_eq!((abort.poll_notice(), abort.poll_notice()), (Some(first), None), "AB-4");
    abort.request(second);
    assert_eq!((abort.state(), abort.cause(), abort.poll_notice()), (abort::State::Aborted, Some(first), None), "AB-1");
}
