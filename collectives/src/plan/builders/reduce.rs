//! The root gets the reduction of everybody's input.

use super::super::{Buffer::*, Builder, Condition, Expr};
use super::{all_in_rank_order, alone};

/// Down the chain root + 1, root + 2, ..., root. (n - 1) messages, (n - 1)B bytes.
pub fn ring(p: &Builder) {
    p.when_else(alone(p), |p| p.copy(p.input(0), p.output(0)), chain_of_several);
}

fn chain_of_several(p: &Builder) {
    let first = || (p.root() + 1) % p.ranks();
    p.when_else(
        is_root(p),
        |p| p.recv_reduce_copy(p.before(1), p.input(0), p.output(0)).complete(),
        |p| {
            p.when_else(
                p.rank().is(first()),
                |p| p.send(p.input(0), p.after(1)),
                |p| p.recv_reduce_send(p.before(1), p.input(0), p.after(1)),
            );
        },
    );
}

/// Everybody sends to the root, which reduces. (n - 1) messages, (n - 1)B bytes.
pub fn one_shot(p: &Builder) {
    p.when_else(
        is_root(p),
        |p| p.reduce(all_in_rank_order(p, p.input(0)), p.output(0)).complete(),
        |p| p.send(p.input(0), p.root()),
    );
}

/// Everybody reduces its own chunk from all inputs into the root's output. (n - 1)(n + 1)B/n remote bytes.
pub fn direct(p: &Builder) {
    p.chunks(p.ranks());
    p.enter();
    p.reduce(p.ranks().map(|r| p.at(r, Input, p.rank())), p.at(p.root(), Output, p.rank())).complete();
    p.leave();
}

/// The root reads all inputs. (n - 1)B remote bytes.
pub fn pull(p: &Builder) {
    p.enter();
    p.when(is_root(p), |p| p.reduce(p.ranks().map(|r| p.at(r, Input, 0)), p.output(0)).complete());
    p.leave();
}

fn is_root(p: &Builder) -> Condition {
    p.rank().is(Expr::Root)
}
