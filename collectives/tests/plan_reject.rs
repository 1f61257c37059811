//! The verifier refuses what is wrong, and says where.

use vervain_collectives::plan::{self, Awaited, Buffer::*, Builder, Defect, Plan, Ranks, Reason, builders};
use vervain_collectives::plan::{Access, Algorithm, Expr};
use vervain_collectives::{Collective, Rank};

fn all_reduce(body: impl FnOnce(&Builder)) -> Plan {
    plan::build("test", Collective::AllReduce, body)
}

fn refused(plan: &Plan, ranks: u32) -> Defect {
    plan.verify(Ranks::one(ranks)).expect_err("the plan is wrong")
}

fn reason(plan: &Plan, ranks: u32) -> Reason {
    refused(plan, ranks).reason().clone()
}

/// Everybody has the input, as a start.
fn exchange(p: &Builder) {
    p.each(p.ranks() - 1, |i| p.send(p.input(0), p.after(i + 1)));
}

#[test]
fn a_missing_contribution_is_named_with_its_place() {
    let forgetful = all_reduce(|p| {
        p.chunks(p.ranks());
        p.enter();
        let sources = [p.count(p.ranks() - 1).map(|r| p.at(r, Input, p.rank()))];
        p.reduce(sources, p.ranks().map(|r| p.at(r, Output, p.rank())));
        p.leave();
    });
    let defect = refused(&forgetful, 6);
    assert_eq!(defect.reason(), &Reason::Missing(Rank::new(5)));
    assert_eq!(
        defect.to_string(),
        "plan \"test\" with 6 ranks: rank 0, lane 0, step 1, chunk 0: contribution of rank 5 missing"
    );
}

#[test]
fn a_repeated_contribution_is_named() {
    let eager = all_reduce(|p| {
        p.when_else(
            p.rank().is(0),
            |p| {
                p.send(p.input(0), 1);
                p.recv_reduce_copy(1, p.input(0), p.output(0));
            },
            |p| {
                p.scratch(1);
                p.recv_reduce_copy(0, p.input(0), p.local(Scratch, 0));
                p.reduce([p.local(Scratch, 0), p.input(0)], [p.output(0), p.link(0)]);
            },
        );
    });
    assert_eq!(reason(&eager, 2), Reason::Twice(Rank::new(1)));
}

#[test]
fn a_deadlock_prints_its_cycle() {
    let circular = all_reduce(|p| {
        p.recv_reduce_copy(p.before(1), p.input(0), p.output(0));
        p.send(p.input(0), p.after(1));
    });
    let defect = refused(&circular, 3);
    let Reason::Deadlock { cycle, .. } = defect.reason() else { panic!("{defect}") };
    assert_eq!(cycle.len(), 3);
    assert!(cycle.iter().all(|waiting| waiting.what == Awaited::Message && waiting.step == 0));
    assert!(defect.to_string().contains("rank 0, lane 0, step 0 waits for a message from rank 2"), "{defect}");
}

#[test]
fn more_messages_in_flight_than_slots_are_a_deadlock() {
    let greedy = |messages: i64| {
        plan::build("greedy", Collective::AllGather, |p| {
            p.chunks(messages);
            p.each(messages, |i| p.send(p.input(i), p.after(1)));
            p.each(messages, |i| p.copy(p.input(&i), p.output(p.rank() * messages + i)));
            p.each(messages, |i| p.recv(p.before(1), p.output(p.before(1) * messages + i)));
        })
    };
    assert!(greedy(2).verify(Ranks::one(2)).is_ok());
    let Reason::Deadlock { slots: 2, cycle } = reason(&greedy(3), 2) else { panic!() };
    assert!(cycle.iter().all(|waiting| waiting.what == Awaited::Slot));
}

#[test]
fn reading_results_before_they_are_signalled_is_a_race() {
    let hasty = all_reduce(|p| {
        p.chunks(p.ranks());
        p.enter();
        p.reduce(p.ranks().map(|r| p.at(r, Input, p.rank())), p.output(p.rank()));
        p.each(p.ranks() - 1, |i| p.signal(p.after(i + 1)));
        p.each(p.ranks() - 1, |i| {
            let q = p.after(i + 1);
            p.get(p.at(&q, Output, &q), p.output(&q));
        });
        p.each(p.ranks() - 1, |i| p.wait(p.after(i + 1)));
        p.leave();
    });
    assert!(matches!(reason(&hasty, 3), Reason::Undefined { .. } | Reason::Race { .. }));
}

#[test]
fn results_that_overwrite_unread_inputs_are_a_race_in_place_only() {
    let one_shot = all_reduce(|p| {
        p.enter();
        p.reduce(p.ranks().map(|r| p.at(r, Input, 0)), p.output(0));
        p.leave();
    });
    let verified = one_shot.verify(Ranks::range(1..=4)).expect("right out of place");
    let defect = verified.in_place().expect_err("wrong in place");
    assert!(defect.site().in_place);
    assert!(matches!(defect.reason(), Reason::Twice(_) | Reason::Race { .. }), "{defect}");
}

#[test]
fn a_lane_that_reads_anothers_scratch_is_a_race() {
    let lanes = all_reduce(|p| {
        p.scratch(1);
        p.lane(|p| {
            p.copy(p.input(0), p.local(Scratch, 0));
        });
        p.lane(|p| {
            p.copy(p.local(Scratch, 0), p.output(0));
        });
    });
    let defect = refused(&lanes, 1);
    let Reason::Race { other: Access::Step { lane, .. }, .. } = defect.reason() else { panic!("{defect}") };
    assert_ne!(Some(*lane), defect.site().lane);
}

#[test]
fn lanes_that_keep_to_themselves_are_right() {
    let lanes = all_reduce(|p| {
        p.chunks(2);
        let half = |p: &Builder, chunk: i64| {
            p.send(p.input(chunk), p.after(1));
            p.recv_reduce_copy(p.after(1), p.input(chunk), p.output(chunk)).complete();
        };
        p.lane(|p| half(p, 0));
        p.lane(|p| half(p, 1));
    });
    lanes.verify(Ranks::one(2)).expect_err("each rank adds in another order");
    let ordered = plan::build("lanes", Collective::AllGather, |p| {
        p.chunks(2);
        for chunk in 0..2 {
            p.lane(|p| {
                p.copy_send(p.input(chunk), p.output(p.rank() * 2 + chunk), p.after(1));
                p.recv(p.after(1), p.output(p.after(1) * 2 + chunk));
            });
        }
    });
    ordered.verify(Ranks::one(2)).expect("both lanes are right");
}

#[test]
fn different_orders_on_different_ranks_are_refused() {
    let selfish = all_reduce(|p| {
        exchange(p);
        p.reduce([p.input(0), p.count(p.ranks() - 1).map(|i| p.link(p.after(i + 1)))], p.output(0));
    });
    assert_eq!(reason(&selfish, 3), Reason::OrderDiffers(Rank::new(0)));
}

#[test]
fn wrong_marks_are_refused_and_missing_marks_found() {
    let plan = |mark: bool| {
        all_reduce(move |p| {
            p.scratch(1);
            exchange(p);
            p.when_else(
                p.rank().is(0),
                |p| {
                    p.reduce([p.input(0), p.link(1)], p.local(Scratch, 0));
                    let last = p.reduce([p.local(Scratch, 0), p.link(2)], [p.output(0), p.link(1), p.link(2)]);
                    if mark {
                        last.complete();
                    }
                },
                |p| {
                    let first = p.reduce([p.input(0), p.link(p.rank() % 2 + 1)], p.local(Scratch, 0));
                    if mark {
                        first.complete();
                    }
                    p.recv(0, p.local(Scratch, 0));
                    p.recv(0, p.output(0));
                },
            );
        })
    };
    assert_eq!(reason(&plan(true), 3), Reason::NotComplete);
}

#[test]
fn unmarked_plans_get_their_marks_from_the_verifier() {
    for &algorithm in Algorithm::ALL {
        let marked = builders::plan(Collective::AllReduce, algorithm).unwrap();
        let text = format!("{marked:?}");
        assert!(text.contains("complete: true"));
        let mut bare = marked.clone();
        bare.lanes.iter_mut().for_each(|lane| unmark(lane));
        let verified = bare.verify(Ranks::range(1..=5)).unwrap();
        for ranks in 1..=5 {
            for rank in (0..ranks).map(Rank::new) {
                let found = verified.program(rank, ranks, None).unwrap();
                assert_eq!(*found, marked.expand(rank, ranks, None).unwrap());
            }
        }
        assert_eq!(verified.program(Rank::new(0), 6, None).unwrap_err().reason(), &Reason::NotVerified);
    }
}

fn unmark(body: &mut [plan::Statement]) {
    for statement in body {
        match statement {
            plan::Statement::Instruction(plan::Instruction::Move { complete, .. }) => *complete = false,
            plan::Statement::Instruction(_) => {}
            plan::Statement::For { body, .. } => unmark(body),
            plan::Statement::When { then, otherwise, .. } => {
                unmark(then);
                unmark(otherwise);
            }
        }
    }
}

#[test]
fn misplaced_operands_are_refused() {
    let writes_input = all_reduce(|p| {
        p.copy(p.input(0), p.input(0));
    });
    assert_eq!(reason(&writes_input, 1), Reason::WritesInput);
    let outside = all_reduce(|p| {
        p.get(p.at(0, Input, 0), p.output(0));
    });
    assert_eq!(reason(&outside, 1), Reason::NotEntered);
    let scratch = all_reduce(|p| {
        p.scratch(1);
        p.enter();
        p.get(p.at(0, Scratch, 0), p.output(0));
        p.leave();
    });
    assert_eq!(reason(&scratch, 2), Reason::DirectScratch);
    let beyond = all_reduce(|p| {
        p.copy(p.input(1), p.output(0));
    });
    assert!(matches!(reason(&beyond, 1), Reason::NoSuchChunk { chunk: 1, chunks: 1, .. }));
    let undefined = all_reduce(|p| {
        p.scratch(1);
        p.copy(p.local(Scratch, 0), p.output(0));
    });
    assert!(matches!(reason(&undefined, 1), Reason::Undefined { buffer: Scratch, .. }));
    let silent = all_reduce(|_| ());
    assert_eq!(reason(&silent, 1), Reason::Unwritten);
    let alone = all_reduce(|p| {
        p.send(p.input(0), p.rank());
    });
    assert_eq!(reason(&alone, 2), Reason::ToItself);
    let half_entered = all_reduce(|p| p.when(p.rank().is(0), |p| (p.enter(), p.leave())));
    assert!(matches!(reason(&half_entered, 2), Reason::Shape { .. }));
    let never_left = all_reduce(|p| p.enter());
    assert_eq!(reason(&never_left, 2), Reason::Unpaired);
    let second_lane = all_reduce(|p| {
        p.lane(|p| {
            p.copy(p.input(0), p.output(0));
        });
        p.lane(|p| p.barrier());
    });
    assert_eq!(reason(&second_lane, 2), Reason::NotInFirstLane);
    let ragged = all_reduce(|p| p.chunks(p.rank() + 1));
    assert!(matches!(reason(&ragged, 2), Reason::Shape { .. }));
    let adds = plan::build("test", Collective::AllGather, |p| {
        p.reduce([p.input(0), p.output(0)], p.output(0));
    });
    assert_eq!(reason(&adds, 1), Reason::Reduces(Collective::AllGather));
}

#[test]
fn unmatched_messages_and_signals_are_counted() {
    let deaf = all_reduce(exchange);
    assert_eq!(reason(&deaf, 2), Reason::Messages { to: Rank::new(1), lane: 0, sent: 1, received: 0 });
    let mute = plan::build("test", Collective::Barrier, |p| p.when(p.rank().is(0), |p| p.wait(1)));
    assert_eq!(reason(&mute, 2), Reason::Signals { to: Rank::new(0), signalled: 0, awaited: 1 });
}

#[test]
fn a_barrier_that_does_not_hear_of_everybody_is_none() {
    let neighbours = plan::build("test", Collective::Barrier, |p| {
        p.when(Expr::from(p.ranks()).is_not(1), |p| {
            p.signal(p.after(1));
            p.wait(p.before(1));
        });
    });
    assert!(neighbours.verify(Ranks::range(1..=2)).is_ok());
    assert!(matches!(reason(&neighbours, 3), Reason::NoBarrier(_)));
}

#[test]
fn huge_calls_are_refused_before_memory_is_taken() {
    let huge = all_reduce(|p| {
        p.chunks(65_536);
        p.copy(p.input(0), p.output(0));
    });
    assert!(matches!(reason(&huge, 1000), Reason::TooLarge { .. }));
    let many = all_reduce(|p| p.barrier());
    assert!(matches!(reason(&many, 65_536), Reason::TooLarge { .. }));
}
