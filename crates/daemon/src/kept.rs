//! The desired state on disk, and its succession, also if the store has gone back.

use std::collections::BTreeMap;

use nervure_store::{Epoch, Revision};
use serde::{Deserialize, Serialize};

use crate::state::{Desired, DesiredRun, Phase, RunId};

/// The desired state that a daemon keeps on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The epoch of the store.
    #[serde(default)]
    pub epoch: Epoch,
    /// The revision of the store.
    pub revision: Revision,
    /// The state in the store.
    pub desired: Desired,
    /// Runs whose state in the store is outdated, since the store has gone back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<RunId, Held>,
}

/// A run whose state in the store does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Its desired state, from before the store went back.
    pub desired: DesiredRun,
    /// Its state in the store, which counts again once it changes; `None` if the store does not name the
    /// run.
    pub stale: Option<DesiredRun>,
}

impl Kept {
    /// This state as the successor of the known one; `None` if it is not later.
    pub(crate) fn after(mut self, known: &Self) -> Option<Self> {
        self.held = match self.epoch.continues(known.epoch, known.revision) {
            true if self.revision <= known.revision => return None,
            true => known.held.clone(),
            false => self.held_against(known),
        };
        // An order given since counts.
        let named = &self.desired.runs;
        self.held
            .retain(|id, held| named.get(id) == held.stale.as_ref());
        Some(self)
    }

    /// Runs held against a store that has gone back, so that it ends, starts and changes nothing. Only runs
    /// that were made desired since are new.
    fn held_against(&self, known: &Self) -> BTreeMap<RunId, Held> {
        let of_store = &self.desired.runs;
        let goes_on = |(id, desired): (RunId, DesiredRun)| {
            let stale = of_store.get(&id).cloned();
            let is_held = stale.is_some() || desired.phase == Phase::Run;
            is_held.then_some((id, Held { desired, stale }))
        };
        let is_old = |(id, run): &(&RunId, &DesiredRun)| {
            known.get(id).is_none() && run.epoch != self.epoch.id
        };
        let ended = |(id, run): (&RunId, &DesiredRun)| {
            let desired = DesiredRun {
                phase: Phase::Stop,
                ..run.clone()
            };
            let stale = Some(run.clone());
            (id.clone(), Held { desired, stale })
        };
        let old = of_store.iter().filter(is_old).map(ended);
        known
            .runs()
            .into_iter()
            .filter_map(goes_on)
            .chain(old)
            .collect()
    }

    /// The desired state of each run.
    pub fn runs(&self) -> BTreeMap<RunId, DesiredRun> {
        let mut runs = self.desired.runs.clone();
        let held = self.held.iter();
        runs.extend(held.map(|(id, held)| (id.clone(), held.desired.clone())));
        runs
    }

    pub(crate) fn get(&self, run: &str) -> Option<&DesiredRun> {
        let held = self.held.get(run).map(|held| &held.desired);
        held.or_else(|| self.desired.runs.get(run))
    }

    /// Whether a run is desired that the store does not name.
    pub(crate) fn is_orphan(&self, run: &str) -> bool {
        self.held.get(run).is_some_and(|held| held.stale.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(phase: Phase, epoch: u64) -> DesiredRun {
        DesiredRun {
            phase,
            dataflow: "two".to_owned(),
            bundle: String::new(),
            file: String::new(),
            role: String::new(),
            machines: BTreeMap::new(),
            params: Vec::new(),
            variables: Vec::new(),
            is_paused: false,
            epoch,
            programs: BTreeMap::new(),
        }
    }

    fn kept((id, begin): (u64, u64), revision: u64, runs: &[(&str, DesiredRun)]) -> Kept {
        let runs = runs.iter().map(|(id, run)| ((*id).to_owned(), run.clone()));
        Kept {
            epoch: Epoch {
                id,
                begin: Revision(begin),
            },
            revision: Revision(revision),
            desired: Desired {
                runs: runs.collect(),
            },
            held: BTreeMap::new(),
        }
    }

    fn phases(kept: &Kept) -> Vec<(String, Phase)> {
        let runs = kept.runs().into_iter();
        runs.map(|(id, run)| (id, run.phase)).collect()
    }

    #[test]
    fn a_coordinator_that_was_restarted_goes_on_where_it_was() {
        let known = kept((1, 0), 40, &[("a", run(Phase::Run, 1))]);
        assert_eq!(known.clone().after(&known), None);
        let stale = kept((1, 0), 39, &[]);
        assert_eq!(stale.after(&known), None);
        let again = kept((2, 55), 40, &[("a", run(Phase::Run, 1))]);
        assert_eq!(again.after(&known), None);
        let next = kept((2, 55), 56, &[]).after(&known).unwrap();
        assert_eq!(phases(&next), []);
    }

    #[test]
    fn a_store_that_has_gone_back_changes_nothing_until_an_order_is_given() {
        let paused = DesiredRun {
            is_paused: true,
            ..run(Phase::Run, 1)
        };
        let runs = [
            ("new", run(Phase::Run, 1)),
            ("paused", paused.clone()),
            ("ending", run(Phase::Stop, 1)),
        ];
        let known = kept((1, 0), 40, &runs);
        let old = [("gone", run(Phase::Run, 1)), ("paused", run(Phase::Run, 1))];
        let back = kept((2, 17), 15, &old).after(&known).unwrap();
        let held = [
            ("gone".to_owned(), Phase::Stop),
            ("new".to_owned(), Phase::Run),
            ("paused".to_owned(), Phase::Run),
        ];
        assert_eq!(phases(&back), held);
        assert_eq!(back.get("paused"), Some(&paused));
        assert!(back.is_orphan("new") && !back.is_orphan("gone"));

        // Another run is started: the others stay as they are.
        let started = [&old[..], &[("other", run(Phase::Run, 2))]].concat();
        let next = kept((2, 17), 18, &started).after(&back).unwrap();
        assert_eq!(next.get("paused"), Some(&paused));
        assert_eq!(next.get("other").unwrap().phase, Phase::Run);
        assert_eq!(next.get("gone").unwrap().phase, Phase::Stop);
        // An order for one counts, and so does the removal of another.
        let stopped = [("paused", run(Phase::Stop, 1)), started[2].clone()];
        let last = kept((2, 17), 19, &stopped).after(&next).unwrap();
        assert_eq!(last.get("paused").unwrap().phase, Phase::Stop);
        assert_eq!(last.get("gone"), None);
        assert!(last.is_orphan("new"));
        // A store that was emptied ends nothing either.
        let empty = kept((3, 0), 0, &[]).after(&known).unwrap();
        assert_eq!(phases(&empty), [held[1].clone(), held[2].clone()]);
    }
}
