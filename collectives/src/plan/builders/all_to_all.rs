//! Rank r's block q goes to rank q's block r.

use super::super::{Buffer::*, Builder};
use super::each_other;

/// Everybody sends to everybody. n(n - 1) messages, n(n - 1)B bytes.
pub fn one_shot(p: &Builder) {
    each_other(p, |q| p.send(p.input(&q), q));
    p.copy(p.input(p.rank()), p.output(p.rank()));
    each_other(p, |q| p.recv(&q, p.output(&q)));
}

/// Everybody writes into all outputs. n(n - 1)B remote bytes.
pub fn direct(p: &Builder) {
    p.enter();
    p.copy(p.input(p.rank()), p.output(p.rank()));
    each_other(p, |q| p.put(p.input(&q), p.at(&q, Output, p.rank())));
    p.leave();
}

/// Everybody reads all inputs. n(n - 1)B remote bytes.
pub fn pull(p: &Builder) {
    p.enter();
    p.copy(p.input(p.rank()), p.output(p.rank()));
    each_other(p, |q| p.get(p.at(&q, Input, p.rank()), p.output(&q)));
    p.leave();
}
