//! Warns about losses while a dataflow runs, at a limited rate.

use std::{borrow::Cow, collections::HashMap, time::Duration};

use nervure_shm::{InputCounters, OutputCounters};

use crate::{
    edges::{Edge, Edges, Totals},
    format::{self, count},
    remedies::{self, Setting},
};

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
            missed_away: now.missed_away.saturating_sub(then.missed_away),
            dropped_away: now.dropped_away.saturating_sub(then.dropped_away),
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
        (
            counters.missed_away.saturating_add(counters.dropped_away),
            "consumer away",
        ),
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
    /// What prevents it.
    pub remedy: Remedy,
}

/// What prevents a loss, or improves a dataflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// As a clause.
    pub text: String,
    /// The settings of the dataflow file that the text names.
    pub settings: Vec<Setting>,
}

impl Loss {
    fn new(count: u64, what: impl Into<Cow<'static, str>>, remedy: Remedy) -> Self {
        Self {
            count,
            what: what.into(),
            remedy,
        }
    }
}

impl Remedy {
    /// Something other than a setting.
    pub fn action(text: impl Into<String>) -> Self {
        Self::with(text, Vec::new())
    }

    /// A shorter queue.
    pub fn for_deep_queue(now: u32) -> Self {
        let (shorter, latest) = (Setting::ShorterQueue { now }, Setting::Latest);
        Self::with(
            format!(
                "{shorter}: as many as the node needs to catch up; {latest} where only the newest counts"
            ),
            vec![shorter, latest],
        )
    }

    /// `text` names the settings.
    pub fn with(text: impl Into<String>, settings: Vec<Setting>) -> Self {
        Self {
            text: text.into(),
            settings,
        }
    }
}

/// The cause of most of the losses, and its remedy.
fn main_cause(totals: &Totals, edge: &Edge) -> (Cow<'static, str>, String) {
    let worst = explanations(totals, edge)
        .into_iter()
        .max_by_key(|loss| loss.count);
    worst
        .map(|loss| (loss.what, loss.remedy.text))
        .expect("called for edges with losses only")
}

/// Every cause of losses on an edge, with its remedy.
pub fn explanations(totals: &Totals, edge: &Edge) -> Vec<Loss> {
    let counters = &totals.output;
    let (full, queue) = full_queue(edge);
    let away = counters.missed_away.saturating_add(counters.dropped_away);
    let producer = edge.topic.split('/').next().unwrap_or(&edge.topic);
    let all = [
        Loss::new(
            counters.dropped_oldest,
            format!("{full}; the oldest samples were dropped"),
            queue.clone(),
        ),
        Loss::new(
            counters.dropped_newest,
            format!("{full}; its queue was full"),
            queue,
        ),
        Loss::new(
            counters.missed_held,
            "the consumer holds as many samples as `max_held` allows",
            too_many_held(edge),
        ),
        Loss::new(
            counters.missed_memory,
            "the producer's shared memory is used up",
            memory_used_up(producer),
        ),
        Loss::new(
            counters.missed_control,
            "the consumer did not map new memory in time",
            Remedy::action("check whether its process is stopped, or the machine overloaded"),
        ),
        Loss::new(
            away,
            "the consumer had no process: it was restarting, or stopped by hand",
            consumer_away(edge),
        ),
        Loss::new(
            counters.lost_in_crash,
            "the consumer held them when it died",
            Remedy::action("see the log of the consumer"),
        ),
        Loss::new(
            totals.input.lost,
            "they were in the queue, and their producer ended before the consumer started again",
            Remedy::action(format!(
                "end node `{producer}` only after its consumers have received everything"
            )),
        ),
    ];
    all.into_iter().filter(|loss| loss.count > 0).collect()
}

/// Why the queue is full, and what helps.
fn full_queue(edge: &Edge) -> (String, Remedy) {
    let settings = Setting::for_full_queue(edge);
    let queue = match edge.observer {
        true => Remedy::action(
            "a producer never waits for an observer: read faster, or receive the topic as a node of the dataflow",
        ),
        false if !edge.is_in_file() => Remedy::action(
            "ask for events more often, or look up transforms: the node takes these samples then",
        ),
        false => Remedy::with(
            format!("use {} on that input", remedies::any_of(&settings)),
            settings,
        ),
    };
    let slow = match edge.is_losing() {
        true => "is slower than the producer",
        false => "was slower than the producer, or stood still, for a time",
    };
    match edge.shortage() {
        _ if let Some((what, remedy)) = takes_nothing(edge) => (what, Remedy::action(remedy)),
        Some(short) if short.is_over => (
            format!(
                "the consumer could not map new memory for a time, or {slow} ({})",
                short.cause
            ),
            queue,
        ),
        Some(short) => (
            format!("the consumer cannot map new memory ({})", short.cause),
            Remedy::action("losses end when the resource is available"),
        ),
        None => (format!("the consumer {slow}"), queue),
    }
}

fn too_many_held(edge: &Edge) -> Remedy {
    let now = edge.queue.max_held;
    if edge.observer {
        let text = format!("an observer may hold {now} samples: keep copies instead (`copied()`)");
        return Remedy::action(text);
    }
    let setting = Setting::MaxHeld { now };
    Remedy::with(
        format!("keep copies (`copied()`), or set {setting} on that input"),
        vec![setting],
    )
}

fn memory_used_up(producer: &str) -> Remedy {
    let setting = Setting::SharedMemory {
        node: producer.to_owned(),
    };
    Remedy::with(
        format!("set {setting}, or hold fewer samples in its consumers"),
        vec![setting],
    )
}

fn consumer_away(edge: &Edge) -> Remedy {
    let consumer = edge.consumer_name().split('/').next().unwrap_or_default();
    let history = Setting::History {
        topic: edge.topic.clone(),
    };
    let block = Setting::block(edge).filter(|_| edge.is_in_file());
    let settings: Vec<_> = block.into_iter().chain([history]).collect();
    Remedy::with(
        format!(
            "`nervure logs --node {consumer}` shows why; {} keeps samples for its next process",
            remedies::any_of(&settings)
        ),
        settings,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedies::files;
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
    fn no_setting_is_named_for_an_input_that_the_file_has_not() {
        let full = queue(Policy::DropOldest, 100);
        let mut edges = Edges::fake(vec![(
            "odometry/pose",
            "arm/transforms~odometry/pose",
            full,
        )]);
        let away = OutputCounters {
            dropped_oldest: 5,
            missed_away: 3,
            ..OutputCounters::default()
        };
        lose(&mut edges, 0, away);
        let edge = edges.iter().next().unwrap();
        let losses = explanations(&edge.totals(), edge);
        let remedies: Vec<&Remedy> = losses.iter().map(|loss| &loss.remedy).collect();
        let [full, away] = remedies[..] else {
            panic!("{losses:?}");
        };
        assert!(full.settings.is_empty() && full.text.starts_with("ask for events more often"));
        let history = Setting::History {
            topic: "odometry/pose".to_owned(),
        };
        assert_eq!(away.settings, [history]);
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

    fn one_of_each_cause() -> Totals {
        let output = OutputCounters {
            dropped_oldest: 1,
            dropped_newest: 1,
            missed_held: 1,
            missed_memory: 1,
            missed_control: 1,
            missed_away: 1,
            dropped_away: 1,
            lost_in_crash: 1,
            ..OutputCounters::default()
        };
        let input = InputCounters {
            lost: 1,
            ..InputCounters::default()
        };
        Totals { output, input }
    }

    #[test]
    fn each_setting_that_a_remedy_names_is_one_that_validate_accepts() {
        let mut tried = 0;
        for (consumer, file) in files::all() {
            let Some(queue) = files::queue_of(&file) else {
                assert!(
                    consumer == "cam" && file.to_string().contains("block"),
                    "{file}"
                );
                continue;
            };
            let input = format!("{consumer}/in");
            let edges = Edges::fake(vec![("cam/out", &input, queue)]);
            let totals = one_of_each_cause();
            let explained = explanations(&totals, edges.iter().next().unwrap());
            assert_eq!(
                explained.iter().map(|loss| loss.count).sum::<u64>(),
                totals.lost()
            );
            for Loss { remedy, .. } in explained {
                tried += files::check(&remedy, &file);
            }
        }
        assert!(tried > 100, "{tried}");
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
