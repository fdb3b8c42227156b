//! Rolling: replaces the running instances one after the other.

use std::{collections::BTreeMap, time::Duration};

use nervure_daemon::state::{DesiredRun, Phase, RunState};
use nervure_inspect::Fault;

use crate::{
    Error,
    launch::{Launch, NewRun, new_id, trouble},
    parts::{self, Part, Parts},
    placement::Instance,
    progress::{Event, Progress},
    runs::{await_stop, desired_runs},
    stopped::{Roll, Stopped},
};

/// Time limits of a roll.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// An instance has to run for this long, without a error, before the next one is replaced.
    pub healthy_for: Duration,
    /// The longest time for each step: to prepare an instance, to stop one, and until one is ready.
    pub step: Duration,
}

/// Replaces one instance after the other. The first error ends the roll, and names the runs that remain.
pub fn roll(
    launch: &Launch<'_>,
    instances: Vec<Instance>,
    limits: Limits,
) -> Result<Vec<NewRun>, Error> {
    let mut running: BTreeMap<String, Parts> = BTreeMap::new();
    // A roll that was interrupted has left two runs of an instance.
    for run in desired_runs(launch.fleet)? {
        running.entry(run.dataflow).or_default().extend(run.parts);
    }
    let names: Vec<String> = instances.iter().map(|it| it.name.clone()).collect();
    let mut done = Vec::new();
    for (index, instance) in instances.into_iter().enumerate() {
        let name = &names[index];
        let replacing = Event::Replacing {
            name,
            number: index + 1,
            of: names.len(),
        };
        (launch.listener)(replacing).map_err(Error::Listener)?;
        let roll = Step { launch, limits };
        match roll.replace(instance, running.get(name)) {
            Ok(run) => done.push(run),
            Err(stop) => {
                let rest = names[index + 1..].iter().cloned();
                let (old, absent) = rest.partition(|name| running.contains_key(name));
                return Err(Error::Roll(Box::new(Roll {
                    what: name.clone(),
                    name: name.clone(),
                    stop,
                    new: names[..index].to_vec(),
                    old,
                    absent,
                })));
            }
        }
    }
    Ok(done)
}

struct Step<'l, 'f> {
    launch: &'l Launch<'f>,
    limits: Limits,
}

impl<'f> Step<'_, 'f> {
    /// Replaces a running instance, which continues while the new one is prepared.
    fn replace(&self, instance: Instance, old: Option<&Parts>) -> Result<NewRun, Stopped> {
        let fleet = self.launch.fleet;
        let unchanged = match old {
            Some(_) => "goes on as before",
            None => "does not run",
        };
        let unchanged = |why: String| Stopped::new(why, unchanged);
        let text = |error: Error| error.text_with_causes();
        let mut new = self
            .launch
            .run_of(instance)
            .map_err(|error| unchanged(text(error)))?;
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
                Err(error) => format!("{why}; {}", text(error)),
            }));
        }
        // The old run stays desired until the new one is healthy, so that the coordinator keeps its programs.
        let ended = old.map_or(Ok(()), |old| self.end(old).map_err(text));
        let started = ended.and_then(|()| self.start(&new.parts, &mut progress));
        let Err(why) = started else {
            if let Some(old) = old {
                let removed = parts::remove(fleet, old.keys());
                removed.map_err(|error| Stopped::new(text(error), "is replaced"))?;
            }
            return Ok(new);
        };
        let now = self.go_back(&new.parts, old);
        let now = now.unwrap_or_else(|error| format!("its state is not known: {}", text(error)));
        Err(Stopped { why, now })
    }

    /// Ends the new run, and starts the previous one again. Returns the outcome, as text for users.
    fn go_back(&self, new: &Parts, old: Option<&Parts>) -> Result<String, Error> {
        let fleet = self.launch.fleet;
        let ended = self.end(new);
        let Some(old) = old.filter(|old| run_of_before(old).is_some()) else {
            parts::remove(fleet, new.keys())?;
            return Ok(match ended {
                Ok(()) => "does not run".to_owned(),
                Err(error) => format!("is to stop: {}", error.text_with_causes()),
            });
        };
        // The daemon of a machine that does not answer does this when it is back.
        let again = self.restore(old)?;
        parts::remove(fleet, new.keys())?;
        let runs = ended.map_err(|error| error.text_with_causes());
        let runs = runs.and_then(|()| self.await_health(&mut self.progress(&again)));
        Ok(match runs {
            Ok(()) => "the one before runs again".to_owned(),
            Err(why) => format!("the one before is to run again, and does not yet: {why}"),
        })
    }

    /// Starts a run that is prepared, and waits until it is healthy.
    fn start(&self, parts: &Parts, progress: &mut Progress<'f>) -> Result<(), String> {
        let text = |error: Error| error.text_with_causes();
        none(self.launch.start(parts, progress).map_err(text)?)?;
        self.await_health(progress)
    }

    fn await_health(&self, progress: &mut Progress<'f>) -> Result<(), String> {
        let text = |error: Error| error.text_with_causes();
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
    fn end(&self, parts: &Parts) -> Result<(), Error> {
        let all: Vec<&Part> = parts.keys().collect();
        await_stop(self.launch.fleet, &all, self.progress(parts)).map(drop)
    }

    /// Makes the run of before desired again, as a new run with its programs. Its machines start it
    /// when those that are to end have ended.
    fn restore(&self, old: &Parts) -> Result<Parts, Error> {
        let id = new_id()?;
        let before = run_of_before(old);
        let ran = old
            .iter()
            .filter(|(part, _)| Some(part.run.as_str()) == before);
        let again = ran.map(|(part, desired)| {
            let part = Part {
                machine: part.machine.clone(),
                run: id.clone(),
            };
            let desired = DesiredRun {
                phase: Phase::Run,
                ..desired.clone()
            };
            (part, desired)
        });
        let again: Parts = again.collect();
        parts::insert(self.launch.fleet, &again)?;
        parts::remove(self.launch.fleet, old.keys())?;
        Ok(again)
    }

    fn progress(&self, parts: &Parts) -> Progress<'f> {
        let all = parts.keys().cloned();
        Progress::new(self.launch.fleet, all, self.launch.listener).with_limit(self.limits.step)
    }
}

/// The previous run among the runs of an instance: a desired one, or else one that an interrupted roll has
/// stopped.
fn run_of_before(old: &Parts) -> Option<&str> {
    let of_phase = |phase: Phase| {
        let mut parts = old.iter();
        let found = parts.find(|(_, desired)| desired.phase == phase);
        found.map(|(part, _)| part.run.as_str())
    };
    of_phase(Phase::Run).or_else(|| of_phase(Phase::Stop))
}

fn none(reasons: Vec<String>) -> Result<(), String> {
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(reasons.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_that_has_stopped_says_what_runs_where() {
        let names: Vec<String> = (1..=5).map(|number| format!("two@r{number}")).collect();
        let error = Error::Roll(Box::new(Roll {
            what: "two@r3".to_owned(),
            name: "two@r3".to_owned(),
            stop: Stopped::new("r3: camera failed: exit code 3", "does not run"),
            new: names[..2].to_vec(),
            old: names[3..4].to_vec(),
            absent: names[4..].to_vec(),
        }));
        assert_eq!(
            error.text_with_causes(),
            "two@r3 was not replaced: r3: camera failed: exit code 3: two@r3: does not run: \
             replaced or started: two@r1, two@r2: as before: two@r4: not started: two@r5"
        );
    }
}
