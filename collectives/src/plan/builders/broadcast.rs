//! Everybody gets the root's input.

use super::super::{Buffer::*, Builder, Condition, Expr};
use super::{alone, each_other, others};

/// Down the chain root, root + 1, ... (n - 1) messages, (n - 1)B bytes.
pub fn ring(p: &Builder) {
    p.when_else(alone(p), |p| p.copy(p.input(0), p.output(0)), chain_of_several);
}

fn chain_of_several(p: &Builder) {
    let last = || (p.root() - 1) % p.ranks();
    p.when_else(
        is_root(p),
        |p| p.copy_send(p.input(0), p.output(0), p.after(1)),
        |p| {
            p.when_else(
                p.rank().is(last()),
                |p| p.recv(p.before(1), p.output(0)),
                |p| p.recv_copy_send(p.before(1), p.output(0), p.after(1)),
            );
        },
    );
}

/// The root sends to everybody. (n - 1) messages, (n - 1)B bytes.
pub fn one_shot(p: &Builder) {
    p.when_else(
        is_root(p),
        |p| {
            each_other(p, |q| p.send(p.input(0), q));
            p.copy(p.input(0), p.output(0));
        },
        |p| p.recv(p.root(), p.output(0)),
    );
}

/// The root writes into all outputs. (n - 1)B remote bytes.
pub fn direct(p: &Builder) {
    p.enter();
    p.when(is_root(p), |p| p.put(p.input(0), [p.output(0), others(p, |q| p.at(q, Output, 0))]));
    p.leave();
}

/// Everybody reads the root's input. (n - 1)B remote bytes.
pub fn pull(p: &Builder) {
    p.enter();
    p.when_else(is_root(p), |p| p.copy(p.input(0), p.output(0)), |p| p.get(p.at(p.root(), Input, 0), p.output(0)));
    p.leave();
}

fn is_root(p: &Builder) -> Condition {
    p.rank().is(Expr::Root)
}
