//! Progress of parts of dataflows on their machines.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::{Duration, Instant},
};

use nervure_coordinator::{ACTUAL, ALIVE};
use nervure_daemon::state::{Actual, ActualRun, RunState, actual_key, alive_machines, parse};
use nervure_inspect::format;
use nervure_store::{Epoch, Revision, Store};

use crate::{Error, Fleet, parts::Part};

/// Interval between messages about machines that are awaited.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// An event that a user may want to see.
#[derive(Debug)]
pub enum Event<'a> {
    /// Machines have not carried out an order yet; again every few seconds.
    Waiting {
        /// Their names.
        machines: &'a str,
        /// The order.
        what: &'a str,
    },
    /// A machine has reported a change of a part.
    Reported(Reported<'a>),
    /// An instance is being replaced.
    Replacing {
        /// Its name.
        name: &'a str,
        /// Its number, from 1.
        number: usize,
        /// Number of instances.
        of: usize,
    },
}

/// The report of a machine about a part.
#[derive(Debug)]
pub struct Reported<'a> {
    /// The machine, with several runs followed by the dataflow: `robot, two@robot`.
    pub place: String,
    /// The name of the machine.
    pub machine: &'a str,
    /// Whether it cannot be reached, so that the report is old.
    pub is_away: bool,
    /// The report before.
    pub before: Option<&'a ActualRun>,
    /// The report.
    pub now: &'a ActualRun,
}

/// Shows events. An error ends the order.
pub type Listener<'f> = &'f dyn Fn(Event<'_>) -> io::Result<()>;

/// Follows parts of runs.
pub struct Progress<'f> {
    fleet: &'f Fleet,
    listener: Listener<'f>,
    /// The longest wait.
    limit: Option<Duration>,
    from: Option<(Epoch, Revision)>,
    /// The machines that can be reached; `None` if that is not known.
    reachable: Option<BTreeSet<String>>,
    /// The state of each part, as its machine has reported it.
    pub parts: BTreeMap<Part, Option<ActualRun>>,
}

impl<'f> Progress<'f> {
    /// Follows these parts.
    pub fn new(
        fleet: &'f Fleet,
        parts: impl IntoIterator<Item = Part>,
        listener: Listener<'f>,
    ) -> Self {
        Self {
            fleet,
            listener,
            limit: None,
            from: None,
            reachable: None,
            parts: parts.into_iter().map(|part| (part, None)).collect(),
        }
    }

    /// A wait that takes longer fails.
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Waits until `is_done` holds for the reported state of every part, or one has failed.
    pub fn wait(
        &mut self,
        what: &str,
        is_done: impl Fn(&Part, &ActualRun) -> bool,
    ) -> Result<(), Error> {
        // Machines that cannot be reached are named at once.
        let mut report_at = match self.look_for_machines() {
            true => Instant::now() + REPORT_INTERVAL,
            false => Instant::now(),
        };
        self.step(Duration::ZERO)?;
        let until = self.limit.map(|limit| Instant::now() + limit);
        loop {
            let is_awaited = |(part, run): &(&Part, &Option<ActualRun>)| {
                !run.as_ref().is_some_and(|run| is_done(part, run))
            };
            let has_failed = |(_, run): (&Part, &Option<ActualRun>)| {
                let state = run.as_ref().map(|run| &run.state);
                matches!(state, Some(RunState::Failed { .. }))
            };
            let mut awaited = self.parts.iter().filter(is_awaited);
            if awaited.clone().next().is_none() || awaited.any(has_failed) {
                return Ok(());
            }
            let now = Instant::now();
            let is_late = until.is_some_and(|until| now >= until);
            if is_late || now >= report_at {
                self.look_for_machines();
                let awaited = self.parts.iter().filter(is_awaited);
                let machines: BTreeSet<_> = awaited
                    .map(|(part, _)| match self.is_away(&part.machine) {
                        true => format!("{} (cannot be reached)", part.machine),
                        false => part.machine.clone(),
                    })
                    .collect();
                let machines = machines.into_iter().collect::<Vec<_>>().join(", ");
                if is_late {
                    let limit = format::elapsed(self.limit.unwrap_or_default());
                    let what = what.to_owned();
                    return Err(Error::Late {
                        machines,
                        what,
                        limit,
                    });
                }
                let waiting = Event::Waiting {
                    machines: &machines,
                    what,
                };
                (self.listener)(waiting).map_err(Error::Listener)?;
                report_at = now + REPORT_INTERVAL;
            }
            let next = until.map_or(report_at, |until| until.min(report_at));
            self.step(next.saturating_duration_since(now))?;
        }
    }

    /// Learns which machines can be reached. Returns whether all can that have a part.
    fn look_for_machines(&mut self) -> bool {
        let noted = self.fleet.client.list(ALIVE);
        let machines = noted.map(|noted| alive_machines(&noted.entries).into_keys().collect());
        self.reachable = machines.ok();
        !self.parts.keys().any(|part| self.is_away(&part.machine))
    }

    fn is_away(&self, machine: &str) -> bool {
        let reachable = self.reachable.as_ref();
        reachable.is_some_and(|reachable| !reachable.contains(machine))
    }

    /// Follows the parts for some time. Ends at the first trouble, and names the part.
    pub fn watch(
        &mut self,
        time: Duration,
        trouble: impl Fn(&ActualRun) -> Option<String>,
    ) -> Result<Option<(Part, String)>, Error> {
        let until = Instant::now() + time;
        loop {
            let mut known = self.parts.iter();
            let found = known.find_map(|(part, run)| Some((part, trouble(run.as_ref()?)?)));
            let left = until.saturating_duration_since(Instant::now());
            match found {
                Some((part, trouble)) => return Ok(Some((part.clone(), trouble))),
                None if left.is_zero() => return Ok(None),
                None => self.step(left)?,
            }
        }
    }

    /// Takes the next reports, if there are some before the timeout.
    fn step(&mut self, timeout: Duration) -> Result<(), Error> {
        let store = &self.fleet.client;
        let is_listing = self.from.is_none();
        let entries = match self.from {
            None => {
                let listing = store.list(ACTUAL)?;
                self.from = Some((listing.epoch, listing.revision));
                listing.entries
            }
            Some((epoch, after)) => {
                let changes = store.watch(ACTUAL, after, timeout)?;
                let is_same = changes.epoch == epoch;
                self.from = is_same.then_some((epoch, changes.revision));
                changes
                    .changes
                    .into_iter()
                    .filter_map(|change| change.entry)
                    .collect()
            }
        };
        let has_several = self.has_several_runs();
        for entry in entries {
            let Some(machine) = entry.key.strip_prefix(ACTUAL) else {
                continue;
            };
            if !self.parts.keys().any(|part| part.machine == machine) {
                continue;
            }
            let actual: Actual = parse(&entry.key, &entry.value)?;
            // A machine whose report has just changed is reachable.
            let is_away = is_listing && self.is_away(machine);
            let mut of_machine = self.parts.iter_mut();
            while let Some((part, known)) = of_machine.find(|(part, _)| part.machine == machine) {
                let now = actual.runs.get(&part.run).cloned();
                let before = std::mem::replace(known, now.clone());
                if let Some(now) = now.filter(|now| before.as_ref() != Some(now)) {
                    let reported = Reported {
                        place: place(machine, has_several, &now),
                        machine,
                        is_away,
                        before: before.as_ref(),
                        now: &now,
                    };
                    (self.listener)(Event::Reported(reported)).map_err(Error::Listener)?;
                }
            }
        }
        Ok(())
    }

    fn has_several_runs(&self) -> bool {
        let runs: BTreeSet<_> = self.parts.keys().map(|part| &part.run).collect();
        runs.len() > 1
    }

    /// The parts that have failed, each with its machine and the reason.
    pub fn failures(&self) -> Vec<String> {
        let has_several = self.has_several_runs();
        let text = |(part, run): (&Part, &Option<ActualRun>)| {
            let run = run.as_ref()?;
            match &run.state {
                RunState::Failed { reason } => {
                    let place = place(&part.machine, has_several, run);
                    Some(format!("{place}: {reason}"))
                }
                _ => None,
            }
        };
        self.parts.iter().filter_map(text).collect()
    }
}

/// `robot`, or with several runs `robot, two@robot`.
fn place(machine: &str, has_several: bool, run: &ActualRun) -> String {
    match has_several {
        true => format!("{machine}, {}", run.dataflow),
        false => machine.to_owned(),
    }
}

/// What machines have reported last of parts.
pub fn reported<'p>(
    fleet: &Fleet,
    parts: impl IntoIterator<Item = &'p Part>,
) -> Result<BTreeMap<Part, ActualRun>, Error> {
    let mut found = BTreeMap::new();
    for part in parts {
        let key = actual_key(&part.machine);
        let entry = fleet.client.get(&key)?;
        let actual = entry.map(|entry| parse::<Actual>(&key, &entry.value));
        let actual = actual.transpose()?;
        let run = actual.and_then(|mut actual| actual.runs.remove(&part.run));
        found.extend(run.map(|run| (part.clone(), run)));
    }
    Ok(found)
}
