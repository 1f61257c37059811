//! What every fabric must do, as cases that any backend runs: `conformance::run(&mut |identity| Box::new(..))`.
//!
//! Most cases step two or three fabrics in one thread; those about sleeping use threads. A case that waits in vain panics
//! after [`PATIENCE`] and says what for.

mod cancels;
mod failures;
mod fences;
mod links;
mod operations;
mod refusals;
mod sleeping;
mod world;

use super::{Fabric, Identity};

pub use world::PATIENCE;

/// Makes a fabric of the backend under test.
pub type Make<'a> = dyn FnMut(Identity) -> Box<dyn Fabric> + 'a;

/// One property.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The property.
    pub name: &'static str,
    /// Panics if it does not hold.
    pub run: fn(&mut Make<'_>),
}

/// All cases, one after the other.
///
/// # Panics
/// If a property does not hold.
pub fn run(make: &mut Make<'_>) {
    for case in CASES {
        println!("case {}", case.name);
        (case.run)(make);
    }
}

/// The cases in this module's files, by name.
macro_rules! cases {
    ($($module:ident: $($name:ident)+;)+) => {
        /// Every property, for harnesses that run or skip them one by one.
        pub const CASES: &[Case] = &[$($(Case { name: stringify!($name), run: $module::$name },)+)+];
    };
}

cases! {
    links:
        address_is_short
        link_reports_peer_and_incarnation
        two_links_of_one_pair_are_independent
        link_to_oneself_works
        restarted_peer_is_a_new_incarnation
        nobody_listening_goes_down
        wrong_secret_goes_down
        silent_peer_times_out;
    operations:
        writes_of_every_size_arrive
        inline_writes_of_every_size_arrive
        reads_of_every_size_arrive
        messages_of_every_size_arrive
        registered_memory_can_be_read
        foreign_memory_can_be_read
        views_show_what_is_stored
        immediate_makes_earlier_writes_visible
        receives_complete_in_posting_order
        post_without_receive_is_not_accepted
        message_too_long_for_its_receive_ends_it
        atomics_of_two_peers_add_up
        compare_swap_replaces_only_what_is_expected
        flush_ends_after_what_was_posted_before
        long_streams_complete_each_once
        passive_target_need_not_poll;
    refusals:
        ranges_out_of_bounds_are_refused
        malformed_operation_refuses_its_batch
        unknown_names_are_refused
        changed_key_is_refused
        key_of_another_link_is_refused
        release_in_use_is_refused
        released_region_is_out_of_reach
        poll_stays_within_capacity;
    fences:
        rights_are_kept
        revoked_region_is_out_of_reach
        revoke_ends_what_is_under_way
        revoke_is_for_all_links_and_all_rights
        revoked_region_can_be_advertised_again
        revoke_is_reported_once_and_one_at_a_time
        silent_peer_is_fenced
        views_end_with_their_key
        many_regions_are_revoked_at_once
        end_of_a_link_ends_its_keys
        registered_memory_is_revoked_or_the_deadline_passes
        sleeper_does_not_miss_the_end_of_a_revocation;
    cancels:
        cancel_of_the_unknown_is_nothing
        cancel_after_the_end_changes_nothing
        cancelled_receive_gives_its_turn_to_the_next
        immediate_for_a_cancelled_receive_waits_for_the_next
        cancelled_operations_end_once_and_leave_their_memory_alone
        cancel_while_the_peer_never_polls
        cancelled_token_can_be_used_again;
    failures:
        close_ends_everything_once
        dropped_peer_ends_everything_once
        down_link_takes_nothing
        other_links_survive
        kept_memory_outlives_the_fabric;
    sleeping:
        ring_wakes_a_sleeper
        sleep_ends_at_its_deadline
        arriving_message_wakes_a_sleeper
        no_wake_up_is_lost;
}
