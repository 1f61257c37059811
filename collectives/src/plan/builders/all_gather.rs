//! Everybody gets everybody's block, in rank order.

use super::super::{Buffer::*, Builder};
use super::{alone, each_other, others};

/// Every block travels once around. n(n - 1) messages, n(n - 1)B bytes.
pub fn ring(p: &Builder) {
    p.when_else(alone(p), |p| p.copy(p.input(0), p.output(0)), ring_of_several);
}

fn ring_of_several(p: &Builder) {
    p.copy_send(p.input(0), p.output(p.rank()), p.after(1));
    p.each(p.ranks() - 2, |i| {
        p.recv_copy_send(p.before(1), p.output(p.before(i + 1)), p.after(1));
    });
    p.recv(p.before(1), p.output(p.after(1)));
}

/// Everybody sends its block to everybody. n(n - 1) messages, n(n - 1)B bytes.
pub fn one_shot(p: &Builder) {
    each_other(p, |q| p.send(p.input(0), q));
    p.copy(p.input(0), p.output(p.rank()));
    each_other(p, |q| p.recv(&q, p.output(&q)));
}

/// Everybody writes its block into all outputs. n(n - 1)B remote bytes.
pub fn direct(p: &Builder) {
    p.enter();
    p.put(p.input(0), [p.output(p.rank()), others(p, |q| p.at(q, Output, p.rank()))]);
    p.leave();
}

/// Everybody reads all inputs. n(n - 1)B remote bytes.
pub fn pull(p: &Builder) {
    p.enter();
    p.copy(p.input(0), p.output(p.rank()));
    each_other(p, |q| p.get(p.at(&q, Input, 0), p.output(&q)));
    p.leave();
}
