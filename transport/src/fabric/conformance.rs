//! One suite that every fabric passes.
