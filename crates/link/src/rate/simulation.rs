//! Rate control over a simulated channel, on a virtual clock.

mod scenarios;

use std::time::{Duration, Instant};

use nervure_linkemu::{Air, Duplex, Schedule, cubic::CubicSender};

use super::{Config, Observed, Permission, Rate};

/// A packet of a flow on the wire, with IP and UDP headers.
const PACKET_BYTES: u32 = 1500;
const REPORT_BYTES: u32 = 128;
const ACK_BYTES: u32 = 52;
/// Packets after which a report is sent, per millisecond of the requested interval.
const REPORT_PACKETS: f64 = 24.0;

#[derive(Clone, Copy, Debug)]
struct Packet {
    flow: usize,
    content: Content,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    Data {
        number: u64,
        report_interval: Duration,
    },
    Report(Observed),
    Segment {
        number: u64,
    },
    Ack {
        number: u64,
    },
}

/// Packets that a flow has to send.
#[derive(Clone, Copy, Debug)]
enum Demand {
    /// Always something.
    Greedy,
    /// This many packets at once, every period.
    Samples { packets: u64, period: Duration },
}

enum Sender {
    Link {
        rate: Box<Rate>,
        demand: Demand,
        number: u64,
    },
    Cubic(Box<CubicSender>),
}

struct Flow {
    from: usize,
    to: usize,
    starts: Duration,
    sender: Sender,
    wake: Option<Duration>,
    receiver: Receiver,
    /// Delivered packets: (arrival, one-way delay) in seconds.
    delivered: Vec<(f32, f32)>,
}

#[derive(Default)]
struct Receiver {
    highest: u64,
    packets: u64,
    arrived: Duration,
    unreported: u64,
    report_at: Option<Duration>,
    reported_at: Duration,
}

/// Flows on one air.
struct Simulation {
    air: Air<Packet>,
    flows: Vec<Flow>,
    now: Duration,
    epoch: Instant,
}

impl Simulation {
    fn new<S: Into<Schedule>>(
        duplex: Duplex,
        seed: u64,
        hosts: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            air: Air::new(duplex, seed, hosts),
            flows: Vec::new(),
            now: Duration::ZERO,
            epoch: Instant::now(),
        }
    }

    fn link(&mut self, from: usize, to: usize, starts: Duration, demand: Demand) -> usize {
        let rate = Box::new(Rate::new(Config::default(), self.epoch + starts));
        self.add(
            from,
            to,
            starts,
            Sender::Link {
                rate,
                demand,
                number: 0,
            },
        )
    }

    fn cubic(&mut self, from: usize, to: usize, starts: Duration) -> usize {
        self.add(from, to, starts, Sender::Cubic(Box::default()))
    }

    fn add(&mut self, from: usize, to: usize, starts: Duration, sender: Sender) -> usize {
        let receiver = Receiver::default();
        self.flows.push(Flow {
            from,
            to,
            starts,
            sender,
            wake: Some(starts),
            receiver,
            delivered: Vec::new(),
        });
        self.flows.len() - 1
    }

    fn rate(&self, flow: usize) -> &Rate {
        match &self.flows[flow].sender {
            Sender::Link { rate, .. } => rate,
            Sender::Cubic(_) => panic!("flow {flow} is a Cubic flow"),
        }
    }

    /// Ends a Cubic flow.
    fn stop(&mut self, flow: usize) {
        match &mut self.flows[flow].sender {
            Sender::Cubic(cubic) => cubic.stop(),
            Sender::Link { .. } => panic!("flow {flow} is a link's"),
        }
    }

    fn run_until(&mut self, end: Duration) {
        loop {
            let wakes = self
                .flows
                .iter()
                .flat_map(|flow| [flow.wake, flow.receiver.report_at])
                .flatten();
            let Some(next) = wakes.chain(self.air.next_event()).min() else {
                break;
            };
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            while let Some(delivery) = self.air.deliver(self.now) {
                self.receive(delivery.packet, delivery.offered_at);
            }
            for flow in 0..self.flows.len() {
                if self.flows[flow]
                    .receiver
                    .report_at
                    .is_some_and(|at| at <= self.now)
                {
                    self.report(flow);
                }
                if self.flows[flow].wake.is_some_and(|at| at <= self.now) {
                    self.send(flow);
                }
            }
        }
        self.now = end;
    }

    fn receive(&mut self, packet: Packet, offered_at: Duration) {
        let (now, epoch) = (self.now, self.epoch);
        let flow = &mut self.flows[packet.flow];
        match (packet.content, &mut flow.sender) {
            (
                Content::Data {
                    number,
                    report_interval,
                },
                _,
            ) => {
                flow.delivered
                    .push((now.as_secs_f32(), (now - offered_at).as_secs_f32()));
                let receiver = &mut flow.receiver;
                receiver.packets += 1;
                receiver.unreported += 1;
                if number > receiver.highest {
                    (receiver.highest, receiver.arrived) = (number, now);
                }
                let due = (receiver.reported_at + report_interval).max(now);
                receiver.report_at = Some(receiver.report_at.map_or(due, |at| at.min(due)));
                if receiver.unreported as f64
                    >= REPORT_PACKETS * report_interval.as_secs_f64() * 1e3
                {
                    self.report(packet.flow);
                }
            }
            (Content::Report(observed), Sender::Link { rate, .. }) => {
                rate.on_feedback(epoch + now, &observed)
                    .expect("reports are true");
                self.send(packet.flow);
            }
            (Content::Segment { number }, _) => {
                flow.delivered
                    .push((now.as_secs_f32(), (now - offered_at).as_secs_f32()));
                let (host, content) = (flow.to, Content::Ack { number });
                self.air.offer(
                    now,
                    host,
                    ACK_BYTES,
                    Packet {
                        flow: packet.flow,
                        content,
                    },
                );
            }
            (Content::Ack { number }, Sender::Cubic(cubic)) => {
                cubic.on_ack(now, number);
                self.send(packet.flow);
            }
            _ => unreachable!("answers go to the flow they belong to"),
        }
    }

    fn report(&mut self, index: usize) {
        let now = self.now;
        let flow = &mut self.flows[index];
        let receiver = &mut flow.receiver;
        receiver.report_at = None;
        receiver.reported_at = now;
        receiver.unreported = 0;
        let observed = Observed {
            highest_packet_number: receiver.highest,
            packets_received: receiver.packets,
            bytes_received: receiver.packets * u64::from(PACKET_BYTES),
            congestion_marks: 0,
            // The receiver's clock is not ours.
            arrived: receiver.arrived + Duration::from_secs(1000),
            held: now - receiver.arrived,
        };
        let host = flow.to;
        self.air.offer(
            now,
            host,
            REPORT_BYTES,
            Packet {
                flow: index,
                content: Content::Report(observed),
            },
        );
    }

    fn send(&mut self, index: usize) {
        let (now, epoch) = (self.now, self.epoch);
        let flow = &mut self.flows[index];
        if now < flow.starts {
            return;
        }
        let host = flow.from;
        let mut go = |content| {
            self.air.offer(
                now,
                host,
                PACKET_BYTES,
                Packet {
                    flow: index,
                    content,
                },
            );
        };
        match &mut flow.sender {
            Sender::Link {
                rate,
                demand,
                number,
            } => loop {
                let permission = rate.permission(epoch + now);
                if let Demand::Samples { packets, period } = *demand {
                    let begun = (now - flow.starts).div_duration_f64(period).floor() as u64 + 1;
                    if *number >= packets * begun {
                        rate.on_nothing_to_send();
                        if permission == Permission::Send {
                            flow.wake = Some(flow.starts + period * begun as u32);
                            break;
                        }
                    }
                }
                match permission {
                    Permission::Send | Permission::Probe => {
                        *number += 1;
                        rate.on_sent(epoch + now, *number, PACKET_BYTES as usize);
                        let report_interval = rate.report_interval(epoch + now);
                        go(Content::Data {
                            number: *number,
                            report_interval,
                        });
                    }
                    Permission::Wait(at) => {
                        assert!(at > epoch + now, "a wait lies ahead");
                        flow.wake = Some(at - epoch);
                        break;
                    }
                }
            },
            Sender::Cubic(cubic) => {
                while let Some(number) = cubic.next(now) {
                    go(Content::Segment { number });
                }
                flow.wake = cubic.timeout();
            }
        }
    }

    /// Mean rate on the wire at the receiver, in Mbit/s.
    fn megabits(&self, flow: usize, from: f64, to: f64) -> f64 {
        self.delays(flow, from, to).len() as f64 * f64::from(PACKET_BYTES) * 8e-6 / (to - from)
    }

    /// One-way delays of the delivered packets, sorted, in seconds.
    fn delays(&self, flow: usize, from: f64, to: f64) -> Vec<f32> {
        let within = |at: f32| (from..to).contains(&f64::from(at));
        let delivered = self.flows[flow].delivered.iter();
        let mut delays: Vec<f32> = delivered
            .filter(|(at, _)| within(*at))
            .map(|(_, delay)| *delay)
            .collect();
        delays.sort_by(f32::total_cmp);
        delays
    }

    /// A percentile of the one-way delay, in milliseconds.
    fn delay_millis(&self, flow: usize, from: f64, to: f64, percentile: f64) -> f64 {
        let delays = self.delays(flow, from, to);
        let index = (delays.len().saturating_sub(1)) as f64 * percentile / 100.0;
        delays
            .get(index as usize)
            .map_or(f64::NAN, |delay| f64::from(*delay) * 1e3)
    }

    /// The time from `from` until the first second-tenth in which at least this rate arrives, in seconds.
    fn time_to_reach(&self, flow: usize, megabits: f64, from: f64) -> f64 {
        let delivered = &self.flows[flow].delivered;
        let needed = (megabits * 0.05e6 / 8.0 / f64::from(PACKET_BYTES)) as usize;
        let since = delivered.partition_point(|(at, _)| f64::from(*at) < from);
        let arrivals = &delivered[since..];
        let reached = arrivals
            .windows(needed.max(1))
            .find(|window| f64::from(window[window.len() - 1].0 - window[0].0) <= 0.05);
        reached.map_or(f64::INFINITY, |window| f64::from(window[0].0) - from)
    }
}

/// Jain's fairness index: (sum x)^2 / (n sum x^2). (Jain, Chiu, Hawe, DEC-TR-301, 1984.)
fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), rate| {
        (sum + rate, squares + rate * rate)
    });
    sum * sum / (rates.len() as f64 * squares)
}
