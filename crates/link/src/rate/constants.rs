//! The constants of the law.

/// Defines the constants as fields, so that a simulation can change each by its name.
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        /// The constants of the law. The reference page `link-rate.md` says how they were judged. They are public only
        /// for simulations that change them.
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
    /// Largest rate, as a multiple of the largest delivery rate, corrected for the channel's loss.
    cap = 1.1;
    /// The same while loss exceeds the channel's: a higher rate would only lose more.
    cap_at_excess = 1.02;
    /// The same while the queue stays empty and the path follows.
    cap_growing = 2.0;
    /// Below this fraction of the bottleneck's rate, with a short queue, loss is the channel's.
    below = 0.95;
    /// Seconds between two drains of the queue.
    drain_period = 1.0;
    /// The same in round trips; the longer of both counts.
    drain_period_round_trips = 20.0;
    /// Seconds between two deep drains, of a whole round trip: a flow that joins a standing queue takes it for part of
    /// the path.
    deep_drain_period = 10.0;
    /// Seconds from the end of startup to the first deep drain.
    first_deep_drain = 0.3;
    /// The rate during a drain, relative to the bottleneck's.
    drain_gain = 0.25;
    /// Drain period of a settled claim, in seconds: beside a flow that fills the queue, a drain costs its share of it.
    competing_drain_period = 5.0;
    /// A queue above this many times its target, for more rounds than control needs to shorten it, causes a drain.
    above = 1.3;
    /// Our share of the traffic above which the standing queue is attributed to this link.
    ours = 0.7;
    /// A queue that stands at this many times its target is another kind of flow's.
    standing = 2.0;
    /// Fraction of its target above which a queue may be growing, when less passed than was sent. A shorter one may be
    /// jitter that keeps the order.
    overloaded = 0.75;
    /// The path follows the rate if it passes this fraction of it.
    followed = 0.7;
    /// Factor of the rate per round trip of startup, and one more on a path with a long round-trip time: samples cannot
    /// wait for six of those.
    startup_growth = 2.0;
    /// A long round-trip time, in seconds.
    long_rtt = 0.05;
    /// On a long path, the first rate is larger by this fraction.
    first_rate_growth = 0.5;
    /// Multiple of the rate at the end of startup that is tried on a long path until a queue confirms that rate. A late
    /// processor may have ended startup, and raising the rate again takes many round trips. (HyStart++ does so too: RFC
    /// 9406, section 4.2.)
    doubt = 1.25;
    /// Multiple of that rate that must pass for startup to go on.
    refuted = 1.15;
    /// While the queue stays empty, the growth of the rate is limited so that a queue has at most this many seconds before it
    /// shows.
    unseen_queue = 0.05;
    /// Startup ends when loss rises by this fraction.
    start_excess = 0.2;
    /// Seconds after which a flow that has slowed down is back: the time of Cubic to fill a link of 300 Mbit/s again.
    /// (RFC 9438, section 4.1: the cube root of its reduction in packets, by 0.4.)
    back_after = 15.0;
    /// Excess loss, as a fraction, that a loss-based flow never causes.
    not_loss_based = 0.05;
    /// A queue below this part of its target is empty.
    empty = 0.2;
    /// Factor of the rate after marks of congestion. (RFC 8511, section 3.1.)
    marked = 0.85;
}
