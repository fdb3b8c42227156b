//! The constants of the law.

/// Defines the constants as fields, so that a simulation can change each by its name.
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        /// The constants of the law. The reference page `link-rate.md` says how they were judged. They are public so that a simulation can
        /// change them; nothing else should.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Constants {
            $($(#[$doc])* pub $name: f64,)*
        }

        impl Default for Constants {
            fn default() -> Self {
                Self { $($name: $value,)* }
            }
        }

        impl Constants {
            /// All of them, with their names.
            pub fn by_name(&mut self) -> Vec<(&'static str, &mut f64)> {
                vec![$((stringify!($name), &mut self.$name),)*]
            }
        }
    };
}

constants! {
    /// Bounds of the target of queue delay, in seconds: the smallest, ..
    target_least = 0.0025;
    /// .. and the largest.
    target_most = 0.040;
    /// Sending never exceeds the largest delivery rate, corrected for the channel's loss, by more.
    cap = 1.1;
    /// The same while more is lost than the channel loses: sending more would only lose more.
    cap_at_excess = 1.02;
    /// The same while the queue stays empty and the path follows.
    cap_growing = 2.0;
    /// While the queue is short, a link that sends less than this part of what passes overflows no queue: what is lost
    /// then is the channel's.
    below = 0.95;
    /// Seconds between two drains of the queue.
    drain_period = 1.0;
    /// The same in round trips; the longer of both counts.
    drain_period_round_trips = 20.0;
    /// Seconds between two drains of a whole round trip, and from the start to the first: a flow that joins a standing queue
    /// takes it for part of the path.
    deep_drain_period = 10.0;
    /// From the start to the first of them.
    first_deep_drain = 0.3;
    /// The rate while it does, relative to the bottleneck's.
    drain_gain = 0.25;
    /// The same beside a flow that fills the queue, where a drain costs its share of the queue. It holds for a settled claim.
    competing_drain_period = 5.0;
    /// A queue so much above its target, for more rounds than it takes to bring it down, is looked into.
    above = 1.3;
    /// A queue that falls by this part of what it would, were all that waits in it ours, is ours.
    ours = 0.7;
    /// A queue that stands at this many times its target is not of our kind.
    standing = 2.0;
    /// A queue of this part of its target may be growing, when more was sent than passed. A shorter one may be jitter that
    /// keeps the order.
    overloaded = 0.75;
    /// A path follows that passes this part of what is sent.
    followed = 0.7;
    /// Every round trip of the start multiplies the rate by this, and by one more on a path with a long round-trip time, in
    /// seconds: samples do not wait for six of them.
    startup_growth = 2.0;
    /// A long round-trip time, in seconds.
    long_rtt = 0.05;
    /// There, the first rate is larger by this part of it.
    first_rate_growth = 0.5;
    /// What ended the start may have been a processor that was late, and raising the rate again takes many round trips of a
    /// long path. There the rate that the start found is tried, and this much more of it, until a queue confirms it; the start
    /// goes on when so much more passes. (HyStart++ does so too: RFC 9406, section 4.2.)
    doubt = 1.25;
    /// .. and this part of it is to pass.
    refuted = 1.15;
    /// While the queue stays empty, the growth of the rate is limited so that a queue has at most this many seconds before it
    /// shows.
    unseen_queue = 0.05;
    /// So much more loss than before ends the start.
    start_excess = 0.2;
    /// Seconds after which a flow that has slowed down is back: Cubic takes as long to fill a link of 300 Mbit/s again.
    /// (RFC 9438, section 4.1: the cube root of what it gave up in packets, by 0.4.)
    back_after = 15.0;
    /// A flow that takes loss as a sign to slow down does not let it come to this.
    not_loss_based = 0.05;
    /// A queue below this part of its target is empty.
    empty = 0.2;
    /// What is left of the rate after packets were marked for congestion. (RFC 8511, section 3.1.)
    marked = 0.85;
}
