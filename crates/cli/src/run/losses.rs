//! Tells of losses while a dataflow runs: never silent, never a flood.

use std::{borrow::Cow, collections::HashMap, time::Duration};

use nervure_shm::{InputCounters, OutputCounters};

use super::edges::{Edge, Edges, Totals};
use crate::format::{self, count};

/// The pause after the first line; it doubles while losses go on.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What was told of losses.
#[derive(Debug, Default)]
pub struct Losses {
    /// Per input, the counters when its edge was last told of, or looked at.
    told: HashMap<String, Totals>,
    next: Duration,
    pause: Duration,
}

impl Losses {
    /// A line about the edge that lost most since the last line, if one is due.
    pub fn tell(&mut self, edges: &Edges, elapsed: Duration) -> Option<String> {
        if elapsed < self.next {
            return None;
        }
        for edge in edges.iter().filter(|edge| edge.unreadable().is_some()) {
            // Its next process counts from zero.
            self.told.remove(&edge.input);
        }
        let mut losing: Vec<(u64, &Edge, Totals)> = edges
            .iter()
            .filter(|edge| !edge.is_latest() && !edge.activity().is_undecided())
            .filter_map(|edge| {
                let since = self.since_told(edge);
                (since.lost() > 0).then(|| (since.lost(), edge, since))
            })
            .collect();
        if losing.is_empty() {
            self.pause = Duration::ZERO;
            return None;
        }
        losing.sort_by_key(|(lost, ..)| std::cmp::Reverse(*lost));
        for (_, edge, _) in &losing {
            self.told.insert(edge.input.clone(), edge.totals());
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

    fn since_told(&self, edge: &Edge) -> Totals {
        let Totals { output: now, input } = edge.totals();
        let Totals {
            output: then,
            input: input_then,
        } = self.told.get(&edge.input).cloned().unwrap_or_default();
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

/// Why samples were lost, with how many: `12 queue full, 3 held`.
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

/// What is known of a consumer that takes nothing although samples wait for it, and what to look at. With `block` its
/// producer would wait for ever, so that no queue policy is a remedy.
pub fn takes_nothing(edge: &Edge) -> Option<(String, String)> {
    if edge.shortage().is_some_and(|short| !short.is_over) {
        // It would, if it could.
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
                "is `{consumer}` stuck, stopped, or busy elsewhere? `nervure logs --node {consumer}` has its last words, and \
                 `health_check_timeout` restarts a node that hangs"
            ),
        ),
    })
}

/// A cause of losses.
#[derive(Debug)]
pub struct Loss {
    /// How many samples.
    pub count: u64,
    /// Why.
    pub what: Cow<'static, str>,
    /// The setting that would change it.
    pub remedy: String,
}

/// The cause of most of the losses, and the setting that would change it.
fn main_cause(totals: &Totals, edge: &Edge) -> (Cow<'static, str>, String) {
    let worst = explanations(totals, edge)
        .into_iter()
        .max_by_key(|loss| loss.count);
    worst
        .map(|loss| (loss.what, loss.remedy))
        .expect("only asked when there are some")
}

/// Every cause of losses on an edge, and the setting that would change it.
pub fn explanations(totals: &Totals, edge: &Edge) -> Vec<Loss> {
    let counters = &totals.output;
    let depth = edge.queue.depth;
    let queue = match edge.observer {
        true => {
            "observers never hold a dataflow up: a faster reader, or a node of the dataflow, gets them all"
                .to_owned()
        }
        false => format!(
            "a larger `queue_size` (now {depth}) or `queue_policy: block` on that input would keep them"
        ),
    };
    let held = edge.queue.max_held;
    let producer = edge.topic.split('/').next().unwrap_or(&edge.topic);
    let (full, queue) = match edge.shortage() {
        _ if let Some((what, remedy)) = takes_nothing(edge) => (what, remedy),
        Some(short) if short.is_over => (
            format!(
                "the consumer could not take new memory for a time, or is slower than the producer ({})",
                short.cause
            ),
            queue,
        ),
        Some(short) => (
            format!("the consumer cannot take new memory ({})", short.cause),
            "nothing is dropped once the resource is there".to_owned(),
        ),
        None => ("the consumer is slower than the producer".to_owned(), queue),
    };
    let all: [(u64, Cow<'static, str>, String); 7] = [
        (
            counters.dropped_oldest,
            format!("{full}, and the oldest made room").into(),
            queue.clone(),
        ),
        (
            counters.dropped_newest,
            format!("{full}, and its queue was full").into(),
            queue,
        ),
        (
            counters.missed_held,
            "the consumer holds as many samples as it may".into(),
            match edge.observer {
                true => format!("observers may keep {held} samples: keep copies (`copied()`)"),
                false => {
                    format!(
                        "keep copies (`copied()`), or give that input a larger `max_held` (now {held})"
                    )
                }
            },
        ),
        (
            counters.missed_memory,
            "the producer's shared memory is used up".into(),
            format!(
                "a larger `shared_memory` for node `{producer}`, or consumers that hold less, would keep them"
            ),
        ),
        (
            counters.missed_control,
            "the consumer did not accept new memory in time".into(),
            "is its process stopped, or the machine overloaded?".to_owned(),
        ),
        (
            counters.lost_in_crash,
            "the consumer had taken them when it died".into(),
            "see its log".to_owned(),
        ),
        (
            totals.input.lost,
            "they were queued, and their producer ended before the consumer was started again"
                .into(),
            format!("let node `{producer}` live until its consumers have received everything"),
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
        keeper_to_run::EdgeStatus,
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
    fn losses_are_told_at_growing_intervals_and_none_is_left_out() {
        let mut edges = Edges::fake(vec![("a/out", "b/in", queue(Policy::DropOldest, 10))]);
        let mut losses = Losses::default();
        let mut told = Vec::new();
        for second in 0..200 {
            lose(&mut edges, 0, dropped_oldest(100 * (second + 1)));
            if let Some(line) = losses.tell(&edges, Duration::from_secs(second)) {
                let count: u64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
                told.push((second, count));
            }
        }
        assert_eq!(
            told[..6],
            [
                (0, 100),
                (1, 100),
                (3, 200),
                (7, 400),
                (15, 800),
                (31, 1600)
            ]
        );
        let last = told.last().unwrap().0;
        assert_eq!(
            told.iter().map(|(_, count)| count).sum::<u64>(),
            100 * (last + 1)
        );
        assert!(told.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 30));
    }

    #[test]
    fn the_cause_names_the_setting() {
        let mut edges = Edges::fake(vec![
            ("cam/out", "slow/in", queue(Policy::DropOldest, 10)),
            ("cam/out", "hoarder/in", queue(Policy::Block, 10)),
            ("cam/out", "newest/in", queue(Policy::DropOldest, 1)),
        ]);
        let tell = |edges: &Edges| Losses::default().tell(edges, Duration::ZERO);
        lose(&mut edges, 2, dropped_oldest(1000));
        assert_eq!(tell(&edges), None, "only the newest is wanted there");
        lose(&mut edges, 0, dropped_oldest(5));
        let line = tell(&edges).unwrap();
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
        let line = tell(&edges).unwrap();
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
        edges.note(&status(EdgeState::Waiting));
        let line = Losses::default().tell(&edges, Duration::ZERO).unwrap();
        assert!(
            line.contains(
                "the consumer cannot take new memory (node `sink`: out of file descriptors)"
            ) && !line.contains("slower"),
            "{line}"
        );
        edges.note(&status(EdgeState::Working));
        let line = Losses::default().tell(&edges, Duration::ZERO).unwrap();
        assert!(
            line.contains("could not take new memory for a time"),
            "{line}"
        );
    }

    #[test]
    fn a_consumer_that_takes_nothing_gets_no_advice_to_wait_for_it() {
        let mut edges = Edges::fake(vec![("cam/out", "stuck/in", queue(Policy::DropOldest, 10))]);
        let mut losses = Losses::default();
        let mut tell = |edges: &mut Edges, seconds: u64| {
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
            losses.tell(edges, Duration::from_secs(seconds))
        };
        assert_eq!(tell(&mut edges, 1), None, "it may be about to start");
        let line = tell(&mut edges, 5).unwrap();
        assert!(line.starts_with(
            "cam/out -> stuck/in lost 490 samples: the consumer took nothing for 4.0 s, and the oldest made room; is `stuck` "
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
