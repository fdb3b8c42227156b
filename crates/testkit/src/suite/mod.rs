//! The conformance suite of planes. [`conformance!`](crate::conformance) makes a test of each case.

pub mod accounting;
pub mod deaths;
pub mod fan_out;
pub mod history;
pub mod holds;
pub mod inputs;
pub mod memory;
pub mod order;
pub mod policies;
pub mod views;

use crate::content::Content;
use crate::plane::{
    Arrival, Edge, Limits, Plane, PlaneInbox, PlaneSample, Receipt, Refusal, SampleOf, Sent, Wait,
};
use nervure_protocol::wiring::{Policy, Queue};
use std::thread;

macro_rules! cases {
    ($($module:ident { $($case:ident)+ })+) => {
        /// Makes a test of each case of the suite, in a module named after its part. Each test gets
        /// its own plane, the default value of the type.
        #[macro_export]
        macro_rules! conformance {
            ($plane:ty) => {
                type TestedPlane = $plane;
                $(mod $module {
                    $(#[test]
                    fn $case() {
                        $crate::suite::$module::$case(&super::TestedPlane::default());
                    })+
                })+
            };
        }
    };
}

cases! {
    order {
        every_size_of_payload_and_head_arrives_whole
        a_head_that_just_fits_behind_its_payload_arrives
        headers_keep_the_fields_of_the_sender
        a_head_beyond_the_limit_is_refused
        threads_of_one_output_keep_their_order
    }
    policies {
        drop_oldest_keeps_the_newest
        drop_newest_keeps_the_oldest
        a_full_block_edge_refuses_a_try_and_publishes_nothing
        a_full_block_edge_times_out_and_the_loan_can_be_tried_again
        a_blocked_send_goes_on_when_there_is_room
        block_loses_nothing_at_any_rates
        stop_ends_blocked_sends
        stop_leaves_sends_that_have_room_alone
    }
    fan_out {
        eight_consumers_of_mixed_policies_each_get_their_own
        a_full_block_edge_holds_every_edge_back
        two_edges_to_one_process_are_two_edges
        an_output_without_edges_publishes_to_no_consumer
    }
    holds {
        a_consumer_that_holds_too_much_misses_alone
        samples_without_a_block_are_never_held_against_the_consumer
        a_block_edge_waits_for_blocks_that_its_consumer_holds
        what_is_queued_makes_room_for_newer_blocks
        small_samples_are_not_dropped_for_blocks_that_the_consumer_holds
    }
    history {
        a_late_joiner_gets_the_history_first
        a_short_queue_gets_the_newest_of_the_history
        history_keeps_its_blocks
        joining_a_running_output_leaves_no_gap
    }
    deaths {
        a_blocked_producer_goes_on_when_its_consumer_dies_for_good
        blocks_of_a_dead_consumer_are_reused
        a_restarted_consumer_inherits_a_block_edge
        a_restarted_consumer_inherits_every_block_edge_of_an_output
        a_restarted_consumer_gets_a_new_drop_edge
        a_producer_waits_while_its_consumer_is_away
        an_input_is_drained_then_closed_once
        an_idle_input_closes_too
        the_next_incarnation_comes_after_the_old_one_is_drained
    }
    memory {
        a_sample_beyond_the_limit_is_too_large
        every_sample_that_is_not_too_large_can_be_sent
        history_gives_way_to_new_samples
        drop_edges_count_samples_without_memory
        block_edges_wait_for_memory
        steady_state_uses_no_more_memory
        a_dropped_loan_returns_its_block
        a_larger_sample_pushes_free_blocks_out
        memory_counts_until_its_last_view_is_gone
        an_output_gets_memory_that_its_sibling_no_longer_uses
        no_more_blocks_than_allowed_are_in_use
    }
    inputs {
        inputs_with_news_take_turns
        a_flooded_input_starves_no_other
        a_hundred_and_thirty_inputs_all_wake
        a_wake_for_everything_delivers_nothing_twice
        a_sleeping_consumer_is_woken_by_each_of_its_inputs
        the_newest_sample_passes_over_those_before_it
    }
    views {
        samples_outlive_everything
        a_clone_keeps_the_sample
        held_samples_never_change
    }
    accounting {
        every_sample_is_counted_exactly_once
    }
}

/// A queue whose hold limit is the default of dataflow files.
pub(crate) fn queue(policy: Policy, depth: u32) -> Queue {
    Queue {
        policy,
        depth,
        max_held: depth + 8,
    }
}

/// One output, one consumer of one input, one edge.
pub(crate) struct Line<'a, P: Plane> {
    pub(crate) plane: &'a P,
    pub(crate) output: P::Output,
    pub(crate) consumer: P::Consumer,
    pub(crate) inbox: P::Inbox,
    pub(crate) edge: Edge,
}

impl<'a, P: Plane> Line<'a, P> {
    pub(crate) fn new(plane: &'a P, queue: Queue) -> Self {
        Self::with_limits(plane, queue, Limits::default())
    }

    pub(crate) fn with_limits(plane: &'a P, queue: Queue, limits: Limits) -> Self {
        let output = plane.producer(limits);
        let (consumer, inbox) = plane.consumer(1);
        let edge = plane.connect(&output, &consumer, 0, queue);
        Self {
            plane,
            output,
            consumer,
            inbox,
            edge,
        }
    }

    pub(crate) fn sent(&self) -> Sent {
        self.plane.sent(self.edge)
    }
}

/// The next delivery, which must be a complete sample of that input.
pub(crate) fn next_sample<I: PlaneInbox>(inbox: &mut I, input: u32) -> I::Sample {
    match inbox.next() {
        Arrival::Sample(from, sample) => {
            assert_eq!(from, input);
            Content::check(&sample);
            sample
        }
        Arrival::Closed(from) => panic!("input {from} closed, expected a sample of {input}"),
    }
}

/// Numbers of the samples that can be received now. Checks each. Panics at any other delivery.
pub(crate) fn drain(inbox: &mut impl PlaneInbox) -> Vec<u64> {
    std::iter::from_fn(|| inbox.try_next())
        .map(|arrival| match arrival {
            Arrival::Sample(_, sample) => Content::check(&sample).number,
            Arrival::Closed(input) => panic!("input {input} closed"),
        })
        .collect()
}

/// Numbers of all samples until the input closes.
pub(crate) fn drain_until_closed(inbox: &mut impl PlaneInbox) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Arrival::Sample(_, sample) = inbox.next() {
        numbers.push(Content::check(&sample).number);
    }
    numbers
}

/// A sample that takes a block.
pub(crate) fn block(number: u64) -> Content {
    Content::new(number, 100_000)
}

/// A sample that takes no block.
pub(crate) fn small(number: u64) -> Content {
    Content::new(number, 24)
}

/// Sends while another thread serves the control threads of all processes.
pub(crate) fn send_served<P: Plane>(
    plane: &P,
    output: &P::Output,
    content: Content,
    wait: Wait,
) -> Result<Receipt, Refusal> {
    thread::scope(|scope| {
        let sender = scope.spawn(move || content.send(output, wait));
        while !sender.is_finished() {
            plane.serve();
            thread::yield_now();
        }
        sender.join().expect("no panic")
    })
}

pub(crate) fn hold<P: Plane>(inbox: &mut P::Inbox, count: usize) -> Vec<SampleOf<P>> {
    (0..count).map(|_| next_sample(inbox, 0)).collect()
}

pub(crate) fn numbers<S: PlaneSample>(samples: &[S]) -> Vec<u64> {
    samples
        .iter()
        .map(|sample| Content::check(sample).number)
        .collect()
}
