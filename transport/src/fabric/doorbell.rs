//! Wakes a thread that sleeps in [`Fabric::sleep`](super::Fabric::sleep).

/// Wakes one sleeper; does nothing, cheaply, while it is awake.
#[derive(Clone, Debug)]
pub struct Doorbell {}

impl Doorbell {
    /// Wake the sleeper if it sleeps. Everything stored before this call is visible to it.
    pub fn ring(&self) {}
}
