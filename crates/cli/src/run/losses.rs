//! Warns about losses while a dataflow runs, at a limited rate.

use std::{borrow::Cow, collections::HashMap, time::Duration};

use nervure_shm::{InputCounters, OutputCounters};

use super::edges::{Edge, Edges, Totals};
use crate::format::{self, count};

/// The pause after the first warning; it doubles while losses continue.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause between warnings.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The losses that were reported.
#[derive(Debug, Default)]
pub struct Losses {
    /// Per input, the counters at the last warning.
    reported: HashMap<String, Totals>,
    next: Duration,
    pause: Duration,
}

impl Losses {
    /// The next warning, if one is due: about the edge that lost most since the last one.
    pub fn next_warning(&mut self, edges: &Edges, elapsed: Duration) -> Option<String> {
        if elapsed < self.next {
            return None;
        }
        for edge in edges.iter().filter(|edge| edge.unreadable().is_some()) {
            // The counters of the node's next process start from zero.
            self.reported.remove(&edge.input);
        }
        let mut losing: Vec<(u64, &Edge, Totals)> = edges
            .iter()
            .filter(|edge| !edge.is_latest() && !edge.activity().is_undecided())
            .filter_map(|edge| {
                let since = self.since_reported(edge);
                (since.lost() > 0).then(|| (since.lost(), edge, since))
            })
            .collect();
        if losing.is_empty() {
            self.pause = Duration::ZERO;
            return None;
        }
        losing.sort_by_key(|(lost, ..)| std::cmp::Reverse(*lost));
        for (_, edge, _) in &losing {
            self.reported.insert(edge.input.clone(), edge.totals());
        }
        self.pause = (self.pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        self.next = elapsed + self.pause;
        let (lost, edge, since) = &losing[0];
        let (what, remedy) = main_cause(since, edge);
        let others = match losing.len() - 1 {
            0 => String::new(),
            1 => " (and 1 other edge lost some)".to_owned(),
            count => format!(" (and {count} other edges lost some)"),
        };
        Some(format!(
            "{} -> {} lost {}: {what}; {remedy}{others}",
            edge.topic,
            edge.input,
            count(*lost as usize, "sample")
        ))
    }

    fn since_reported(&self, edge: &Edge) -> Totals {
        let Totals { output: now, input } = edge.totals();
        let Totals {
            output: then,
            input: input_then,
        } = self.reported.get(&edge.input).cloned().unwrap_or_default();
        let output = OutputCounters {
            dropped_oldest: now.dropped_oldest.saturating_sub(then.dropped_oldest),
            dropped_newest: now.dropped_newest.saturating_sub(then.dropped_newest),
            missed_held: now.missed_held.saturating_sub(then.missed_held),
            missed_memory: now.missed_memory.saturating_sub(then.missed_memory),
            missed_control: now.missed_control.saturating_sub(then.missed_control),
            lost_in_crash: now.lost_in_crash.saturating_sub(then.lost_in_crash),
            ..OutputCounters::default()
        };
        let lost = input.lost.saturating_sub(input_then.lost);
        Totals {
            output,
            input: InputCounters {
                lost,
                ..InputCounters::default()
            },
        }
    }
}

/// The causes of losses with their counts: `12 queue full, 3 too many held`.
pub fn causes(totals: &Totals) -> String {
    let counters = &totals.output;
    let causes = [
        (
            counters
                .dropped_oldest
                .saturating_add(counters.dropped_newest),
            "queue full",
        ),
        (counters.missed_held, "too many held"),
        (counters.missed_memory, "memory budget"),
        (counters.missed_control, "not accepted in time"),
        (counters.lost_in_crash, "in a crash"),
        (totals.input.lost, "with their producer"),
    ];
    let named: Vec<_> = causes
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    named.join(", ")
}

/// For a consumer that takes nothing although samples are queued: the problem, and what to check.
/// No queue policy is a remedy: with `block` the producer would wait for ever.
pub fn takes_nothing(edge: &Edge) -> Option<(String, String)> {
    if edge.shortage().is_some_and(|short| !short.is_over) {
        // The consumer waits for a resource.
        return None;
    }
    let idle = format::elapsed(edge.activity().took_nothing_for()?);
    let consumer = edge.consumer_name().split('/').next().unwrap_or_default();
    Some(match edge.observer {
        true => (
            format!("the observer took nothing for {idle}"),
            "is it stopped?".to_owned(),
        ),
        false => (
            format!("the consumer took nothing for {idle}"),
            format!(
                "is `{consumer}` stuck, stopped or busy? `nervure logs --node {consumer}` shows its output, and \
                 `health_check_timeout` restarts a node that hangs"
            ),
        ),
    })
}

/// A cause of losses.
#[derive(Debug)]
pub struct Loss {
    /// Number of samples.
    pub count: u64,
    /// The cause, as a clause.
    pub what: Cow<'static, str>,
    /// The setting or action that prevents it.
    pub remedy: String,
}

/// The cause of most of the losses, and its remedy.
fn main_cause(totals: &Totals, edge: &Edge) -> (Cow<'static, str>, String) {
    let worst = explanations(totals, edge)
        .into_iter()
        .max_by_key(|loss| loss.count);
    worst
        .map(|loss| (loss.what, loss.remedy))
        .expect("called for edges with losses only")
}

/// Every cause of losses on an edge, with its remedy.
pub fn explanations(totals: &Totals, edge: &Edge) -> Vec<Loss> {
    let counters = &totals.output;
    let depth = edge.queue.depth;
    let queue = match edge.observer {
        true => {
            "a producer never waits for an observer: read faster, or receive the topic as a node of the dataflow"
                .to_owned()
        }
        false => format!(
            "use a larger `queue_size` (now {depth}) or `queue_policy: block` on that input"
        ),
    };
    let held = edge.queue.max_held;
    let producer = edge.topic.split('/').next().unwrap_or(&edge.topic);
    let (full, queue) = match edge.shortage() {
        _ if let Some((what, remedy)) = takes_nothing(edge) => (what, remedy),
        Some(short) if short.is_over => (
            format!(
                "the consumer could not map new memory for a time, or is slower than the producer ({})",
                short.cause
            ),
            queue,
        ),
        Some(short) => (
            format!("the consumer cannot map new memory ({})", short.cause),
            "losses end when the resource is available".to_owned(),
        ),
        None => ("the consumer is slower than the producer".to_owned(), queue),
    };
    let all: [(u64, Cow<'static, str>, String); 7] = [
        (
            counters.dropped_oldest,
            format!("{full}; the oldest samples were dropped").into(),
            queue.clone(),
        ),
        (
            counters.dropped_newest,
            format!("{full}; its queue was full").into(),
            queue,
        ),
        (
            counters.missed_held,
            "the consumer holds as many samples as `max_held` allows".into(),
            match edge.observer {
                true => {
                    format!("an observer may hold {held} samples: keep copies instead (`copied()`)")
                }
                false => {
                    format!(
                        "keep copies (`copied()`), or set a larger `max_held` (now {held}) on that input"
                    )
                }
            },
        ),
        (
            counters.missed_memory,
            "the producer's shared memory is used up".into(),
            format!(
                "set a larger `shared_memory` for node `{producer}`, or hold fewer samples in its consumers"
            ),
        ),
        (
            counters.missed_control,
            "the consumer did not map new memory in time".into(),
            "check whether its process is stopped, or the machine overloaded".to_owned(),
        ),
        (
            counters.lost_in_crash,
            "the consumer held them when it died".into(),
            "see the log of the consumer".to_owned(),
        ),
        (
            totals.input.lost,
            "they were in the queue, and their producer ended before the consumer started again"
                .into(),
            format!("end node `{producer}` only after its consumers have received everything"),
        ),
    ];
    let losses = all.into_iter().map(|(count, what, remedy)| Loss {
        count,
        what,
        remedy,
    });
    losses.filter(|loss| loss.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nervure_protocol::{
        report::EdgeStatus,
        wiring::{EdgeState, Policy, Queue},
    };

    fn queue(policy: Policy, depth: u32) -> Queue {
        Queue {
            policy,
            depth,
            max_held: 18,
        }
    }

    fn lose(edges: &mut Edges, edge: usize, output: OutputCounters) {
        edges.set_fake(edge, Duration::ZERO, output, InputCounters::default());
    }

    fn dropped_oldest(dropped_oldest: u64) -> OutputCounters {
        OutputCounters {
            dropped_oldest,
            ..OutputCounters::default()
        }
    }

    #[test]
    fn losses_are_reported_at_growing_intervals_and_none_is_left_out() {
        let mut edges = Edges::fake(vec![("a/out", "b/in", queue(Policy::DropOldest, 10))]);
        let mut losses = Losses::default();
        let mut reported = Vec::new();
        for second in 0..200 {
            lose(&mut edges, 0, dropped_oldest(100 * (second + 1)));
            if let Some(line) = losses.next_warning(&edges, Duration::from_secs(second)) {
                let count: u64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
                reported.push((second, count));
            }
        }
        assert_eq!(
            reported[..6],
            [
                (0, 100),
                (1, 100),
                (3, 200),
                (7, 400),
                (15, 800),
                (31, 1600)
            ]
        );
        let last = reported.last().unwrap().0;
        assert_eq!(
            reported.iter().map(|(_, count)| count).sum::<u64>(),
            100 * (last + 1)
        );
        assert!(reported.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 30));
    }

    #[test]
    fn the_cause_names_the_setting() {
        let mut edges = Edges::fake(vec![
            ("cam/out", "slow/in", queue(Policy::DropOldest, 10)),
            ("cam/out", "hoarder/in", queue(Policy::Block, 10)),
            ("cam/out", "newest/in", queue(Policy::DropOldest, 1)),
        ]);
        let warning = |edges: &Edges| Losses::default().next_warning(edges, Duration::ZERO);
        lose(&mut edges, 2, dropped_oldest(1000));
        assert_eq!(warning(&edges), None, "`latest` loses samples by design");
        lose(&mut edges, 0, dropped_oldest(5));
        let line = warning(&edges).unwrap();
        assert!(
            line.starts_with("cam/out -> slow/in lost 5 samples"),
            "{line}"
        );
        assert!(
            line.contains("`queue_size` (now 10) or `queue_policy: block`"),
            "{line}"
        );
        lose(
            &mut edges,
            1,
            OutputCounters {
                missed_memory: 7,
                ..OutputCounters::default()
            },
        );
        let line = warning(&edges).unwrap();
        assert!(
            line.contains("`shared_memory` for node `cam`")
                && line.ends_with("(and 1 other edge lost some)"),
            "{line}"
        );
    }

    #[test]
    fn a_consumer_that_is_short_of_something_is_not_called_slow() {
        let mut edges = Edges::fake(vec![("cam/out", "sink/in", queue(Policy::DropOldest, 10))]);
        lose(&mut edges, 0, dropped_oldest(5));
        let status = |state| EdgeStatus {
            topic: "cam/out".to_owned(),
            input: "sink/in".to_owned(),
            state,
            cause: "node `sink`: out of file descriptors".to_owned(),
        };
        edges.set_status(&status(EdgeState::Waiting));
        let line = Losses::default()
            .next_warning(&edges, Duration::ZERO)
            .unwrap();
        assert!(
            line.contains(
                "the consumer cannot map new memory (node `sink`: out of file descriptors)"
            ) && !line.contains("slower"),
            "{line}"
        );
        edges.set_status(&status(EdgeState::Working));
        let line = Losses::default()
            .next_warning(&edges, Duration::ZERO)
            .unwrap();
        assert!(
            line.contains("could not map new memory for a time"),
            "{line}"
        );
    }

    #[test]
    fn block_is_no_remedy_for_a_consumer_that_takes_nothing() {
        let mut edges = Edges::fake(vec![("cam/out", "stuck/in", queue(Policy::DropOldest, 10))]);
        let mut losses = Losses::default();
        let mut warning = |edges: &mut Edges, seconds: u64| {
            let output = OutputCounters {
                sent: 100 * seconds,
                ..dropped_oldest(100 * seconds - 10)
            };
            edges.set_fake(
                0,
                Duration::from_secs(seconds),
                output,
                InputCounters::default(),
            );
            losses.next_warning(edges, Duration::from_secs(seconds))
        };
        assert_eq!(warning(&mut edges, 1), None, "it may be about to start");
        let line = warning(&mut edges, 5).unwrap();
        assert!(line.starts_with(
            "cam/out -> stuck/in lost 490 samples: the consumer took nothing for 4.0 s; the oldest samples were dropped; is `stuck` "
        ));
        assert!(
            !line.contains("block") && !line.contains("slower"),
            "{line}"
        );
    }

    #[test]
    fn causes_are_listed_with_their_counts() {
        let output = OutputCounters {
            dropped_newest: 2,
            lost_in_crash: 3,
            ..OutputCounters::default()
        };
        let input = InputCounters {
            lost: 4,
            ..InputCounters::default()
        };
        assert_eq!(
            causes(&Totals { output, input }),
            "2 queue full, 3 in a crash, 4 with their producer"
        );
        assert_eq!(causes(&Totals::default()), "");
    }
}
