//! `nervure start --rolling`: one instance after the other, each in the place of the one that runs.

use std::{collections::BTreeMap, time::Duration};

use nervure_daemon::state::{Phase, RunState};

use super::{
    launch::{Launch, NewRun, new_id, trouble},
    parts::{self, Part, Parts},
    placement::Instance,
    progress::Progress,
    stop::{await_stop, desired_runs},
};
use crate::failure::Failure;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// An instance has to run for this long, without a failure, before the next one is replaced.
    pub healthy_for: Duration,
    /// The longest time for each step: to prepare an instance, to stop one, and until one is ready.
    pub step: Duration,
}

/// Replaces one instance after the other. The first failure ends that: it says what runs where.
pub fn roll(
    launch: &Launch<'_>,
    instances: Vec<Instance>,
    limits: Limits,
) -> Result<Vec<NewRun>, Failure> {
    let mut running: BTreeMap<String, Parts> = BTreeMap::new();
    // A roll that was interrupted has left two runs of an instance.
    for run in desired_runs(launch.fleet)? {
        running.entry(run.dataflow).or_default().extend(run.parts);
    }
    let names: Vec<String> = instances.iter().map(|it| it.name.clone()).collect();
    let mut done = Vec::new();
    for (index, instance) in instances.into_iter().enumerate() {
        let name = &names[index];
        note!("{name}: {} of {}", index + 1, names.len());
        let roll = Step { launch, limits };
        match roll.replace(instance, running.get(name)) {
            Ok(run) => done.push(run),
            Err(stop) => {
                let (new, rest) = (&names[..index], &names[index + 1..]);
                return Err(stopped(name, &stop, new, rest, &running));
            }
        }
    }
    Ok(done)
}

/// Why an instance was not replaced.
#[derive(Debug, PartialEq, Eq)]
struct Stopped {
    why: String,
    /// What is there now.
    now: String,
}

impl Stopped {
    fn new(why: impl Into<String>, now: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            now: now.into(),
        }
    }
}

struct Step<'l, 'f> {
    launch: &'l Launch<'f>,
    limits: Limits,
}

impl<'f> Step<'_, 'f> {
    /// Starts an instance in the place of the one that runs, which goes on while the new one is prepared.
    fn replace(&self, instance: Instance, old: Option<&Parts>) -> Result<NewRun, Stopped> {
        let fleet = self.launch.fleet;
        let unchanged = match old {
            Some(_) => "goes on as before",
            None => "does not run",
        };
        let unchanged = |why: String| Stopped::new(why, unchanged);
        let text = |failure: Failure| failure.to_string();
        let mut new = self
            .launch
            .run_of(instance)
            .map_err(|failure| unchanged(text(failure)))?;
        let is_paused = old.is_some_and(|old| old.values().any(|part| part.is_paused));
        for part in new.parts.values_mut() {
            part.is_paused = is_paused;
        }
        let mut progress = self.progress(&new.parts);
        let prepared = self.launch.prepare(&new.parts, &mut progress);
        let prepared = prepared.map_err(text).and_then(none);
        if let Err(why) = prepared {
            return Err(unchanged(match parts::remove(fleet, new.parts.keys()) {
                Ok(()) => why,
                Err(failure) => format!("{why}; {failure}"),
            }));
        }
        // It stays desired, and so its programs stay with the coordinator, until the new one is healthy.
        let ended = old.map_or(Ok(()), |old| self.end(old).map_err(text));
        let started = ended.and_then(|()| self.start(&new.parts, &mut progress));
        let Err(why) = started else {
            if let Some(old) = old {
                let removed = parts::remove(fleet, old.keys());
                removed.map_err(|failure| Stopped::new(text(failure), "is replaced"))?;
            }
            return Ok(new);
        };
        let ended = self.end(&new.parts);
        let removed = ended.and_then(|()| parts::remove(fleet, new.parts.keys()));
        let now = match (removed, old) {
            (Err(failure), _) => format!("its state is not known: {failure}"),
            (Ok(()), None) => "does not run".to_owned(),
            (Ok(()), Some(old)) => match self.restore(old) {
                Ok(()) => "the one before runs again".to_owned(),
                Err(why) => format!("the one before does not run again: {why}"),
            },
        };
        Err(Stopped { why, now })
    }

    /// Starts a run that is prepared, and waits until it is healthy.
    fn start(&self, parts: &Parts, progress: &mut Progress<'f>) -> Result<(), String> {
        let text = |failure: Failure| failure.to_string();
        none(self.launch.start(parts, progress).map_err(text)?)?;
        self.await_health(progress)
    }

    fn await_health(&self, progress: &mut Progress<'f>) -> Result<(), String> {
        let text = |failure: Failure| failure.to_string();
        let waited = progress.wait("become ready", |_, run| {
            run.is_ready || run.state == RunState::Ended || trouble(run).is_some()
        });
        waited.map_err(text)?;
        let watched = progress.watch(self.limits.healthy_for, trouble);
        match watched.map_err(text)? {
            Some((part, trouble)) => Err(format!("{}: {trouble}", part.machine)),
            None => Ok(()),
        }
    }

    /// Stops runs.
    fn end(&self, parts: &Parts) -> Result<(), Failure> {
        let all: Vec<&Part> = parts.keys().collect();
        await_stop(self.launch.fleet, &all, self.progress(parts)).map(drop)
    }

    /// Starts the run of before again, as a new run with its programs.
    fn restore(&self, old: &Parts) -> Result<(), String> {
        let text = |failure: Failure| failure.to_string();
        let fleet = self.launch.fleet;
        let id = new_id().map_err(text)?;
        let ran = old.iter().filter(|(_, part)| part.phase == Phase::Run);
        let again = ran.map(|(part, desired)| {
            let part = Part {
                machine: part.machine.clone(),
                run: id.clone(),
            };
            (part, desired.clone())
        });
        let again: Parts = again.collect();
        parts::insert(fleet, &again).map_err(text)?;
        parts::remove(fleet, old.keys()).map_err(text)?;
        let mut progress = self.progress(&again);
        self.await_health(&mut progress)
    }

    fn progress(&self, parts: &Parts) -> Progress<'f> {
        let all = parts.keys().cloned();
        Progress::new(self.launch.fleet, all, self.launch.json).with_limit(self.limits.step)
    }
}

fn none(reasons: Vec<String>) -> Result<(), String> {
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(reasons.join("; ")),
    }
}

/// The error of a roll that has stopped: with what runs where.
fn stopped(
    name: &str,
    stop: &Stopped,
    new: &[String],
    rest: &[String],
    running: &BTreeMap<String, Parts>,
) -> Failure {
    let failure = Failure::invalid(format!("{name} was not replaced: {}", stop.why))
        .because(format!("{name}: {}", stop.now));
    let (old, absent): (Vec<_>, Vec<_>) = rest
        .iter()
        .map(String::as_str)
        .partition(|name| running.contains_key(*name));
    let new = new.iter().map(String::as_str).collect();
    let lists: [(&str, Vec<&str>); 3] = [
        ("replaced or started", new),
        ("as before", old),
        ("not started", absent),
    ];
    let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
    lists.fold(failure, |failure, (what, names)| {
        failure.because(format!("{what}: {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_that_has_stopped_says_what_runs_where() {
        let names: Vec<String> = (1..=5).map(|number| format!("two@r{number}")).collect();
        let running = ["two@r1", "two@r2", "two@r4"].map(|name| (name.to_owned(), Parts::new()));
        let failure = stopped(
            "two@r3",
            &Stopped::new("r3: camera failed: exit code 3", "does not run"),
            &names[..2],
            &names[3..],
            &running.into(),
        );
        assert_eq!(
            failure.to_string(),
            "two@r3 was not replaced: r3: camera failed: exit code 3: two@r3: does not run: \
             replaced or started: two@r1, two@r2: as before: two@r4: not started: two@r5"
        );
    }
}
