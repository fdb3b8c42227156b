//! Inputs that are delivered together: `sync` in the dataflow file.

mod matcher;

use std::collections::VecDeque;
use std::sync::Arc;

use nervure_protocol::graph::SyncSpec;
use nervure_protocol::wiring::InputSpec;
use nervure_shm::CountersPage;

use self::matcher::Matcher;
use crate::sample::Sample;

/// Samples of several inputs that belong together, of [`Event::Synced`](super::Event::Synced).
#[derive(Clone, Debug)]
pub struct SyncedSamples {
    /// One of each matched input, then those of each collected input.
    members: Vec<Member>,
    collected: Arc<[Arc<str>]>,
}

#[derive(Clone, Debug)]
struct Member {
    input: usize,
    name: Arc<str>,
    sample: Sample,
}

impl SyncedSamples {
    /// The sample of a matched input; the first one of a collected input. `None` for an input without a
    /// sample in this event.
    pub fn get(&self, input: &str) -> Option<&Sample> {
        let mut samples = self.iter();
        let found = samples.find(|(name, _)| &***name == input);
        found.map(|(_, sample)| sample)
    }

    /// The samples of an input, by the time of their stamps: one of a matched input, any number of a
    /// collected input.
    pub fn all<'s>(&'s self, input: &'s str) -> impl Iterator<Item = &'s Sample> {
        self.iter()
            .filter_map(move |(name, sample)| (&**name == input).then_some(sample))
    }

    /// All samples with the names of their inputs: one of each matched input in the order of the file,
    /// then those of the collected inputs.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Sample)> {
        self.members.iter().map(|one| (&one.name, &one.sample))
    }

    /// The names of the collected inputs, also of those without a sample in this event.
    pub fn collected(&self) -> &[Arc<str>] {
        &self.collected
    }

    /// All samples with the indices of their inputs.
    pub(crate) fn by_input(&self) -> impl Iterator<Item = (usize, &Sample)> {
        self.members.iter().map(|one| (one.input, &one.sample))
    }

    /// The stamp of the first matched input, in nanoseconds since the Unix epoch.
    pub fn stamp(&self) -> i64 {
        self.members[0].sample.stamp()
    }

    /// The same samples in private memory: see [`Sample::copied`].
    #[must_use]
    pub fn copied(&self) -> Self {
        let copied = |member: &Member| Member {
            sample: member.sample.copied(),
            ..member.clone()
        };
        Self {
            members: self.members.iter().map(copied).collect(),
            collected: self.collected.clone(),
        }
    }
}

/// Holds the samples of the inputs of a [`SyncSpec`] until they form a set.
#[derive(Debug)]
pub(crate) struct Synchroniser {
    /// Per input of the node.
    parts: Vec<Part>,
    /// The matched inputs with their names.
    inputs: Vec<(usize, Arc<str>)>,
    matcher: Matcher<Sample>,
    collected: Vec<Collected>,
    collected_names: Arc<[Arc<str>]>,
    /// Sets that wait for collected samples.
    matched: VecDeque<Vec<Sample>>,
    /// Most sets that wait.
    most_matched: usize,
}

/// The part of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    None,
    Matched(usize),
    Collected(usize),
}

/// The samples of a collected input since the last set.
#[derive(Debug)]
struct Collected {
    input: usize,
    /// Most samples that wait: as many as in the input's queue.
    limit: usize,
    waiting: VecDeque<Sample>,
    is_closed: bool,
}

impl Collected {
    /// Whether no sample as old as `stamp` comes any more.
    fn is_complete_until(&self, stamp: i64) -> bool {
        self.is_closed || self.waiting.back().is_some_and(|last| last.stamp() > stamp)
    }
}

impl Synchroniser {
    /// `None` for indices that name no input: the keeper has checked them.
    pub fn new(spec: &SyncSpec, inputs: &[InputSpec], names: &[Arc<str>]) -> Option<Self> {
        let mut parts = vec![Part::None; inputs.len()];
        for (at, &input) in spec.inputs.iter().enumerate() {
            *parts.get_mut(input)? = Part::Matched(at);
        }
        for (at, &input) in spec.collect.iter().enumerate() {
            *parts.get_mut(input)? = Part::Collected(at);
        }
        let collected = |&input: &usize| Collected {
            input,
            limit: inputs[input].queue.map_or(1, |queue| queue.depth as usize),
            waiting: VecDeque::new(),
            is_closed: false,
        };
        let tolerance = spec
            .tolerance
            .map(|it| i64::try_from(it.as_nanos()).unwrap_or(i64::MAX));
        let lanes = spec.inputs.len();
        (lanes > 0).then(|| Self {
            parts,
            inputs: spec
                .inputs
                .iter()
                .map(|&input| (input, names[input].clone()))
                .collect(),
            matcher: Matcher::new(lanes, spec.policy, tolerance, spec.queue_size as usize),
            collected: spec.collect.iter().map(collected).collect(),
            collected_names: spec
                .collect
                .iter()
                .map(|&input| names[input].clone())
                .collect(),
            matched: VecDeque::new(),
            most_matched: spec.queue_size as usize,
        })
    }

    /// Whether samples of an input are delivered in sets.
    pub fn has(&self, input: usize) -> bool {
        self.parts[input] != Part::None
    }

    /// Adds a sample, and counts those that have found no partner.
    pub fn add(&mut self, input: usize, sample: Sample, counters: &CountersPage) {
        match self.parts[input] {
            Part::None => {}
            Part::Matched(lane) => {
                self.matcher.add(lane, sample.stamp(), sample);
                self.take_sets(counters);
            }
            Part::Collected(at) => {
                let collected = &mut self.collected[at];
                collected.waiting.push_back(sample);
                if collected.waiting.len() > collected.limit {
                    collected.waiting.pop_front();
                    counters.count_unused(input as u32, 1);
                }
            }
        }
    }

    /// No more samples come from an input.
    pub fn close(&mut self, input: usize, counters: &CountersPage) {
        match self.parts[input] {
            Part::None => {}
            Part::Matched(lane) => {
                self.matcher.close(lane);
                self.take_sets(counters);
            }
            Part::Collected(at) => self.collected[at].is_closed = true,
        }
    }

    fn take_sets(&mut self, counters: &CountersPage) {
        self.matched
            .extend(std::iter::from_fn(|| self.matcher.next_set()));
        for (input, part) in self.parts.iter().enumerate() {
            let Part::Matched(lane) = *part else {
                continue;
            };
            let unmatched = self.matcher.take_unmatched(lane);
            if unmatched > 0 {
                counters.count_unused(input as u32, unmatched);
            }
        }
    }

    /// The next set whose collected samples have come. If more sets wait than may, the oldest is delivered
    /// with the collected samples that are there.
    pub fn next(&mut self) -> Option<SyncedSamples> {
        let stamp = self.matched.front()?.first()?.stamp();
        let is_complete = |collected: &Collected| collected.is_complete_until(stamp);
        if self.matched.len() <= self.most_matched && !self.collected.iter().all(is_complete) {
            return None;
        }
        let set = self.matched.pop_front()?;
        let matched = self.inputs.iter().cloned().zip(set);
        let member = |((input, name), sample)| Member {
            input,
            name,
            sample,
        };
        let mut members: Vec<_> = matched.map(member).collect();
        for (collected, name) in self.collected.iter_mut().zip(&*self.collected_names) {
            let is_newer = |sample: &Sample| sample.stamp() > stamp;
            let until = collected.waiting.iter().position(is_newer);
            let until = until.unwrap_or(collected.waiting.len());
            members.extend(collected.waiting.drain(..until).map(|sample| Member {
                input: collected.input,
                name: name.clone(),
                sample,
            }));
        }
        Some(SyncedSamples {
            members,
            collected: self.collected_names.clone(),
        })
    }
}
