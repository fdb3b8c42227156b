//! `nervure pause` and `nervure resume` of a dataflow on several machines.

use std::{collections::BTreeSet, time::Duration};

use nervure_daemon::{
    by_hand::ByHand,
    state::{ActualRun, DesiredRun, RunState},
};
use nervure_fleet::{
    Error, Fleet,
    parts::{self, Part, Parts},
    progress::{Progress, reported},
    runs::find_runs,
};
use nervure_inspect::Fault;

use super::{
    here::{Alone, Here},
    interrupt::or_give_up,
    progress::listener,
};
use crate::{failure::Failure, inspect::arguments::Target};

/// Time limit for the machines. An order that a machine has not carried out by then is withdrawn.
const LIMIT: Duration = Duration::from_secs(10);

/// Pauses or resumes the dataflow on all its machines, if it belongs to the fleet. Returns its name, or the
/// names of its instances; none if it does not belong to the fleet. On a robot, and without the coordinator,
/// the order is for this machine alone.
pub fn set_paused_if_fleet(target: &Target, is_paused: bool) -> Result<Vec<String>, Failure> {
    let name = target.dataflow.as_deref();
    let here = Here::find(name)?;
    let fleet = match here.is_empty() {
        true => match Fleet::of_orders()? {
            Some(fleet) => fleet,
            None => return Ok(Vec::new()),
        },
        false => match here.fleet() {
            Ok(fleet) => fleet,
            Err(alone) => return here.set_paused(is_paused, alone),
        },
    };
    let runs = match find_runs(&fleet, name) {
        Err(error) if !here.is_empty() => {
            return here.set_paused(is_paused, Alone::Failed(error.into()));
        }
        found => found?,
    };
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    if !is_paused {
        here.release()?;
    }
    let all: Parts = runs.iter().flat_map(|run| run.parts.clone()).collect();
    let order = Order {
        fleet: &fleet,
        before: &all,
        is_paused,
    };
    match order.give() {
        Err(error) if !here.is_empty() => {
            return here.set_paused(is_paused, Alone::Failed(error.into()));
        }
        given => given?,
    }
    order.await_all()?;
    Ok(runs.into_iter().map(|run| run.dataflow).collect())
}

/// An order to pause or resume parts.
struct Order<'f> {
    fleet: &'f Fleet,
    /// Desired states of the parts before the order.
    before: &'f Parts,
    is_paused: bool,
}

impl Order<'_> {
    fn give(&self) -> Result<(), Error> {
        let pause = |run: &mut DesiredRun| run.is_paused = self.is_paused;
        parts::change_existing(self.fleet, self.before.keys(), pause)
    }

    /// Waits until all machines have carried it out. Those that do not in time, or before the command is
    /// interrupted, shall not do so later.
    fn await_all(&self) -> Result<(), Failure> {
        let what = match self.is_paused {
            true => "pause",
            false => "go on",
        };
        let all = self.before.keys().cloned();
        let mut progress = Progress::new(self.fleet, all, listener(false)).with_limit(LIMIT);
        let waited = or_give_up(
            || Ok(progress.wait(what, |_, run| self.is_done(run) || self.is_held(run))?),
            || self.withdraw(),
        );
        waited.inspect_err(|_| self.withdraw())?;
        let is_held = |(part, run): (&Part, &Option<ActualRun>)| {
            let run = run.as_ref().filter(|run| self.is_held(run))?;
            Some((part.machine.clone(), run.dataflow.clone()))
        };
        match progress.parts.iter().find_map(is_held) {
            None => Ok(()),
            Some((machine, dataflow)) => Err(Failure::invalid(format!(
                "{dataflow} stays paused on {machine}: the user of that machine has paused it there"
            ))
            .hint(format!(
                "`nervure resume -d {dataflow}` on {machine} lets it go on"
            ))),
        }
    }

    fn is_done(&self, run: &ActualRun) -> bool {
        run.is_paused == self.is_paused || run.state == RunState::Ended
    }

    /// Whether the user of its machine has paused it, which only they take back.
    fn is_held(&self, run: &ActualRun) -> bool {
        !self.is_paused && run.by_hand == Some(ByHand::Paused)
    }

    /// Takes the order back where it was not carried out. An order that another command has given
    /// since holds.
    fn withdraw(&self) {
        let withdrawn = reported(self.fleet, self.before.keys()).and_then(|reported| {
            let is_awaited = |part: &&Part| {
                let run = reported.get(*part);
                run.is_none_or(|run| !self.is_done(run) && !self.is_held(run))
            };
            let awaited: Vec<&Part> = self.before.keys().filter(is_awaited).collect();
            parts::change(self.fleet, awaited.iter().copied(), |desired, part| {
                if let Some(run) = desired.runs.get_mut(&part.run)
                    && run.is_paused == self.is_paused
                {
                    run.is_paused = self.before[part].is_paused;
                }
            })?;
            Ok(machines(awaited))
        });
        match withdrawn {
            Ok(machines) if machines.is_empty() => {}
            Ok(machines) => note!("the order is withdrawn from {machines}, where nothing changes"),
            Err(error) => note!(
                "warning: the order cannot be withdrawn, and is carried out by machines that are back later: {}",
                error.text_with_causes()
            ),
        }
    }
}

/// `r1, r2`
fn machines<'p>(parts: impl IntoIterator<Item = &'p Part>) -> String {
    let names: BTreeSet<_> = parts
        .into_iter()
        .map(|part| part.machine.as_str())
        .collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}
