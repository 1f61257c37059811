//! Rank r gets the reduction of everybody's block r.

use super::super::{Buffer::*, Builder};
use super::{all_in_rank_order, alone, each_other};

/// Every block travels once around and grows. n(n - 1) messages, n(n - 1)B bytes.
pub fn ring(p: &Builder) {
    p.when_else(alone(p), |p| p.copy(p.input(0), p.output(0)), ring_of_several);
}

fn ring_of_several(p: &Builder) {
    p.send(p.input(p.before(1)), p.after(1));
    p.each(p.ranks() - 2, |i| {
        p.recv_reduce_send(p.before(1), p.input(p.before(i + 2)), p.after(1));
    });
    p.recv_reduce_copy(p.before(1), p.input(p.rank()), p.output(0)).complete();
}

/// Block q goes to rank q, which reduces. n(n - 1) messages, n(n - 1)B bytes.
pub fn one_shot(p: &Builder) {
    each_other(p, |q| p.send(p.input(&q), q));
    p.reduce(all_in_rank_order(p, p.input(p.rank())), p.output(0)).complete();
}

/// Everybody reduces its block from all inputs. Pulling does the same. n(n - 1)B remote bytes.
pub fn direct(p: &Builder) {
    p.enter();
    p.reduce(p.ranks().map(|r| p.at(r, Input, p.rank())), p.output(0)).complete();
    p.leave();
}
