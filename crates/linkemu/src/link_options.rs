//! Settings as written on the command line and in files: those left out keep their value.

use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use crate::units::{Rate, Reorder, Share, Written};
use crate::{Aggregation, Aqm, Bursts, LossPlace, Outage, Policer, Queue, Settings};

/// The settings of a direction that are given.
#[derive(Args, Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkOptions {
    /// Send at this rate in bits a second, such as `54mbit`, or `unlimited`.
    #[arg(long, value_name = "RATE")]
    rate: Option<Written<Rate>>,
    /// Limit the queue by time (`100ms`) or size (`64kib`); packets beyond it are dropped.
    #[arg(long, value_name = "TIME|SIZE")]
    queue: Option<Written<Queue>>,
    /// Lose this share of packets, such as `20%`, independently.
    #[arg(long, value_name = "SHARE")]
    loss: Option<Written<Share>>,
    /// Lose packets on the `air`, where they have cost airtime, or at the `ingress` (before the
    /// queue, as in Mininet).
    #[arg(long, value_name = "PLACE")]
    loss_at: Option<Written<LossPlace>>,
    /// Delay packets by this time from the end of the transmission to the arrival.
    #[arg(long, value_name = "TIME")]
    delay: Option<Written<Duration>>,
    /// Delay packets by up to this time more; the order is kept.
    #[arg(long, value_name = "TIME")]
    jitter: Option<Written<Duration>>,
    /// Hold back a share of packets for a time: `1%:5ms`.
    #[arg(long, value_name = "SHARE:TIME")]
    reorder: Option<Written<Reorder>>,
    /// Lose packets in fades (Gilbert-Elliott in time): mean good time, mean bad time and the loss
    /// in it: `270ms:30ms:100%`.
    #[arg(long, value_name = "GOOD:BAD[:SHARE]")]
    bursts: Option<Written<Option<Bursts>>>,
    /// Interruption: `lose`, `hold` or `none`.
    #[arg(skip)]
    outage: Option<Written<Option<Outage>>>,
    /// Drop IP packets above this size silently, as a path with broken MTU discovery does.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// Count this many bytes on the air for each packet beside its own.
    #[arg(long, value_name = "BYTES")]
    overhead: Option<u32>,
    /// Manage the queue actively: `codel` or `fq-codel` (a queue for each flow), perhaps with target
    /// and interval, and with `ecn` to mark where packets allow it: `fq-codel:5ms:100ms:ecn`.
    #[arg(long, value_name = "AQM[:TARGET:INTERVAL][:ecn]")]
    aqm: Option<Written<Option<Aqm>>>,
    /// Drop packets that exceed a token bucket before the queue: `20mbit:100kb`.
    #[arg(long, value_name = "RATE:SIZE")]
    policer: Option<Written<Option<Policer>>>,
    /// Send packets that wait in one transmission, as WiFi does: the longest, the most packets in it,
    /// and the time of access to the air: `4ms:64:150us`.
    #[arg(long, value_name = "TIME:PACKETS:ACCESS")]
    aggregate: Option<Written<Option<Aggregation>>>,
}

impl LinkOptions {
    /// Applies the settings that are given.
    pub fn apply(&self, settings: &mut Settings) {
        fn set<T: Copy>(place: &mut T, value: Option<T>) {
            *place = value.unwrap_or(*place);
        }
        set(
            &mut settings.rate_bits_per_second,
            self.rate.map(|rate| rate.0.0),
        );
        set(&mut settings.queue, self.queue.map(|queue| queue.0));
        set(&mut settings.loss, self.loss.map(|share| share.0.0));
        set(&mut settings.loss_place, self.loss_at.map(|place| place.0));
        set(&mut settings.delay, self.delay.map(|delay| delay.0));
        set(&mut settings.jitter, self.jitter.map(|jitter| jitter.0));
        set(
            &mut settings.reorder,
            self.reorder.map(|reorder| reorder.0.share),
        );
        set(
            &mut settings.reorder_delay,
            self.reorder.map(|reorder| reorder.0.delay),
        );
        set(&mut settings.bursts, self.bursts.map(|bursts| bursts.0));
        set(&mut settings.outage, self.outage.map(|outage| outage.0));
        set(&mut settings.mtu_bytes, self.mtu.map(Some));
        set(&mut settings.overhead_bytes, self.overhead);
        set(&mut settings.aqm, self.aqm.map(|aqm| aqm.0));
        set(&mut settings.policer, self.policer.map(|policer| policer.0));
        set(
            &mut settings.aggregation,
            self.aggregate.map(|aggregation| aggregation.0),
        );
    }
}
