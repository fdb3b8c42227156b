//! Tells of losses while a dataflow runs: never silent, never a flood.

use std::{collections::HashMap, time::Duration};

use nervure_shm::OutputCounters;

use super::edges::{Edge, Edges};
use crate::validate::count;

/// The pause after the first line; it doubles while losses go on.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What was told of losses.
#[derive(Debug, Default)]
pub struct Losses {
    /// Per input, the counters when its edge was last told of, or looked at.
    told: HashMap<String, OutputCounters>,
    next: Duration,
    pause: Duration,
}

impl Losses {
    /// A line about the edge that lost most since the last line, if one is due.
    pub fn tell(&mut self, edges: &Edges, elapsed: Duration) -> Option<String> {
        if elapsed < self.next {
            return None;
        }
        let mut losing: Vec<(u64, &Edge, OutputCounters)> = edges
            .iter()
            .filter(|edge| !edge.is_latest())
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
            self.told.insert(edge.input.clone(), edge.totals().output);
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

    fn since_told(&self, edge: &Edge) -> OutputCounters {
        let now = edge.totals().output;
        let then = self.told.get(&edge.input).copied().unwrap_or_default();
        OutputCounters {
            dropped_oldest: now.dropped_oldest.saturating_sub(then.dropped_oldest),
            dropped_newest: now.dropped_newest.saturating_sub(then.dropped_newest),
            missed_held: now.missed_held.saturating_sub(then.missed_held),
            missed_memory: now.missed_memory.saturating_sub(then.missed_memory),
            missed_control: now.missed_control.saturating_sub(then.missed_control),
            lost_in_crash: now.lost_in_crash.saturating_sub(then.lost_in_crash),
            ..OutputCounters::default()
        }
    }
}

/// Why samples were lost, with how many: `12 queue full, 3 held`.
pub fn causes(counters: &OutputCounters) -> String {
    let causes = [
        (counters.dropped_oldest + counters.dropped_newest, "queue full"),
        (counters.missed_held, "too many held"),
        (counters.missed_memory, "memory budget"),
        (counters.missed_control, "not accepted in time"),
        (counters.lost_in_crash, "in a crash"),
    ];
    let named: Vec<_> = causes
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    named.join(", ")
}

/// A cause of losses.
#[derive(Debug)]
pub struct Loss {
    /// How many samples.
    pub count: u64,
    /// Why.
    pub what: &'static str,
    /// The setting that would change it.
    pub remedy: String,
}

/// The cause of most of the losses, and the setting that would change it.
fn main_cause(counters: &OutputCounters, edge: &Edge) -> (&'static str, String) {
    let worst = explanations(counters, edge).into_iter().max_by_key(|loss| loss.count);
    worst.map(|loss| (loss.what, loss.remedy)).expect("only asked when there are some")
}

/// Every cause of losses on an edge, and the setting that would change it.
pub fn explanations(counters: &OutputCounters, edge: &Edge) -> Vec<Loss> {
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
    let all = [
        (
            counters.dropped_oldest,
            "the consumer is slower than the producer, and the oldest made room",
            queue.clone(),
        ),
        (counters.dropped_newest, "the consumer is slower than the producer, and its queue was full", queue),
        (
            counters.missed_held,
            "the consumer holds as many samples as it may",
            match edge.observer {
                true => format!("observers may keep {held} samples: let go of them sooner"),
                false => {
                    format!("let go of them sooner, or give that input a larger `max_held` (now {held})")
                }
            },
        ),
        (
            counters.missed_memory,
            "the producer's shared memory is used up",
            format!(
                "a larger `shared_memory` for node `{producer}`, or consumers that hold less, would keep them"
            ),
        ),
        (
            counters.missed_control,
            "the consumer did not accept new memory in time",
            "is its process stopped, or the machine overloaded?".to_owned(),
        ),
        (counters.lost_in_crash, "the consumer had taken them when it died", "see its log".to_owned()),
    ];
    let losses = all.into_iter().map(|(count, what, remedy)| Loss { count, what, remedy });
    losses.filter(|loss| loss.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nervure_protocol::wiring::{Policy, Queue};
    use nervure_shm::InputCounters;

    fn queue(policy: Policy, depth: u32) -> Queue {
        Queue { policy, depth, max_held: 18 }
    }

    fn lose(edges: &mut Edges, edge: usize, output: OutputCounters) {
        edges.imagine(edge, Duration::ZERO, output, InputCounters::default());
    }

    fn dropped_oldest(dropped_oldest: u64) -> OutputCounters {
        OutputCounters { dropped_oldest, ..OutputCounters::default() }
    }

    #[test]
    fn losses_are_told_at_growing_intervals_and_none_is_left_out() {
        let mut edges = Edges::imagined(vec![("a/out", "b/in", queue(Policy::DropOldest, 10))]);
        let mut losses = Losses::default();
        let mut told = Vec::new();
        for second in 0..200 {
            lose(&mut edges, 0, dropped_oldest(100 * (second + 1)));
            if let Some(line) = losses.tell(&edges, Duration::from_secs(second)) {
                let count: u64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
                told.push((second, count));
            }
        }
        assert_eq!(told[..6], [(0, 100), (1, 100), (3, 200), (7, 400), (15, 800), (31, 1600)]);
        let last = told.last().unwrap().0;
        assert_eq!(told.iter().map(|(_, count)| count).sum::<u64>(), 100 * (last + 1));
        assert!(told.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 30));
    }

    #[test]
    fn the_cause_names_the_setting() {
        let mut edges = Edges::imagined(vec![
            ("cam/out", "slow/in", queue(Policy::DropOldest, 10)),
            ("cam/out", "hoarder/in", queue(Policy::Block, 10)),
            ("cam/out", "newest/in", queue(Policy::DropOldest, 1)),
        ]);
        let tell = |edges: &Edges| Losses::default().tell(edges, Duration::ZERO);
        lose(&mut edges, 2, dropped_oldest(1000));
        assert_eq!(tell(&edges), None, "only the newest is wanted there");
        lose(&mut edges, 0, dropped_oldest(5));
        let line = tell(&edges).unwrap();
        assert!(line.starts_with("cam/out -> slow/in lost 5 samples"), "{line}");
        assert!(line.contains("`queue_size` (now 10) or `queue_policy: block`"), "{line}");
        lose(&mut edges, 1, OutputCounters { missed_memory: 7, ..OutputCounters::default() });
        let line = tell(&edges).unwrap();
        assert!(
            line.contains("`shared_memory` for node `cam`") && line.ends_with("(and 1 other edge lost some)"),
            "{line}"
        );
    }

    #[test]
    fn causes_are_listed_with_their_counts() {
        let counters = OutputCounters { dropped_newest: 2, lost_in_crash: 3, ..OutputCounters::default() };
        assert_eq!(causes(&counters), "2 queue full, 3 in a crash");
        assert_eq!(causes(&OutputCounters::default()), "");
    }
}
