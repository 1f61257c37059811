//! Everybody gets the reduction of everybody's input.

use super::super::{Buffer::*, Builder};
use super::{all_in_rank_order, alone, each_other, others};

/// Every chunk travels once around and grows, then once more and is kept. 2n(n - 1) messages, 2(n - 1)B bytes.
pub fn ring(p: &Builder) {
    p.chunks(p.ranks());
    p.when_else(alone(p), |p| p.copy(p.input(0), p.output(0)), ring_of_several);
}

fn ring_of_several(p: &Builder) {
    let (previous, next) = (|| p.before(1), || p.after(1));
    p.send(p.input(p.before(1)), next());
    p.each(p.ranks() - 2, |i| {
        p.recv_reduce_send(previous(), p.input(p.before(i + 2)), next());
    });
    p.recv_reduce_copy_send(previous(), p.input(p.rank()), p.output(p.rank()), next()).complete();
    p.each(p.ranks() - 2, |i| {
        p.recv_copy_send(previous(), p.output(p.before(i + 1)), next());
    });
    p.recv(previous(), p.output(next()));
}

/// Everybody sends its input to everybody. n(n - 1) messages, n(n - 1)B bytes.
pub fn one_shot(p: &Builder) {
    each_other(p, |q| p.send(p.input(0), q));
    p.reduce(all_in_rank_order(p, p.input(0)), p.output(0)).complete();
}

/// Chunk q goes to rank q, which reduces it and sends it to everybody. 2n(n - 1) messages, 2(n - 1)B bytes.
pub fn two_shot(p: &Builder) {
    p.chunks(p.ranks());
    each_other(p, |q| p.send(p.input(&q), q));
    let everywhere = [p.output(p.rank()), others(p, |q| p.link(q))];
    p.reduce(all_in_rank_order(p, p.input(p.rank())), everywhere).complete();
    each_other(p, |q| p.recv(&q, p.output(&q)));
}

/// Everybody reduces its own chunk from all inputs into all outputs. 2(n - 1)B remote bytes.
pub fn direct(p: &Builder) {
    p.chunks(p.ranks());
    p.enter();
    let everywhere = [p.output(p.rank()), others(p, |q| p.at(q, Output, p.rank()))];
    p.reduce(p.ranks().map(|r| p.at(r, Input, p.rank())), everywhere).complete();
    p.leave();
}

/// Everybody reduces all inputs alone. The result waits in scratch until all have read: it may be one buffer with the input.
/// n(n - 1)B remote bytes.
pub fn direct_one_shot(p: &Builder) {
    p.scratch(1);
    p.enter();
    p.reduce(p.ranks().map(|r| p.at(r, Input, 0)), p.local(Scratch, 0)).complete();
    p.leave();
    p.copy(p.local(Scratch, 0), p.output(0));
}

/// Everybody reduces its own chunk from all inputs, then gets the others' results. 2(n - 1)B remote bytes.
pub fn pull(p: &Builder) {
    p.chunks(p.ranks());
    p.enter();
    p.reduce(p.ranks().map(|r| p.at(r, Input, p.rank())), p.output(p.rank())).complete();
    each_other(p, |q| p.signal(q));
    each_other(p, |q| {
        p.wait(&q);
        p.get(p.at(&q, Output, &q), p.output(&q));
    });
    p.leave();
}
