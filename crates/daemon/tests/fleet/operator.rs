//! The command `nervure start`, as it calls the coordinator.

use std::collections::BTreeMap;
use std::time::Duration;

use nervure_coordinator::ACTUAL;
use nervure_daemon::state::{
    Actual, Desired, DesiredRun, Phase, RunState, actual_key, desired_key, parse,
};
use nervure_protocol::daemon_to_cli::NodeState;
use nervure_store::{Entry, Epoch, Expected, Revision};

use crate::client::{Answer, Call, Line};
use crate::desired::desired_run;
use crate::world::Traffic;

#[derive(Default)]
pub struct Operator {
    pub traffic: Traffic,
    pub prepared_at: Option<Duration>,
    pub started_at: Option<Duration>,
    line: Line,
    run: String,
    first: usize,
    machines: Vec<String>,
    nodes: usize,
    phase: Option<Phase>,
    /// Number of machines whose state is written.
    written: usize,
    /// The state of the next, as it was read.
    read: Option<(Expected, Desired)>,
    from: Option<(Epoch, Revision)>,
    reports: BTreeMap<String, Actual>,
}

impl Operator {
    pub fn begin(&mut self, run: &str, first: usize, machines: Vec<String>, nodes: usize) {
        run.clone_into(&mut self.run);
        (self.first, self.machines, self.nodes) = (first, machines, nodes);
        self.phase = Some(Phase::Prepare);
    }

    pub fn run(&self) -> &str {
        &self.run
    }

    /// The machine that is given the order to run it now.
    pub fn intends(&self) -> Option<usize> {
        let writes = self.phase == Some(Phase::Run) && self.written < self.machines.len();
        writes.then_some(self.first + self.written)
    }

    /// The next call.
    pub fn call(&mut self, now: Duration) -> Option<(u64, Call)> {
        if self.written == self.machines.len() {
            let is_done = |machine: &String| self.is_done(machine);
            if self.machines.iter().all(is_done) {
                match self.phase? {
                    Phase::Prepare => {
                        self.prepared_at = Some(now);
                        (self.phase, self.written) = (Some(Phase::Run), 0);
                    }
                    _ => {
                        self.started_at = Some(now);
                        self.phase = None;
                    }
                }
            }
        }
        let phase = self.phase?;
        let call = match (self.machines.get(self.written), self.read.take()) {
            (Some(machine), None) => Call::Get(desired_key(machine)),
            (Some(machine), Some((expected, mut desired))) => {
                let machines = self.machines.iter();
                let run = DesiredRun {
                    machines: machines
                        .map(|it| (format!("role-{it}"), it.clone()))
                        .collect(),
                    ..desired_run(phase)
                };
                desired.runs.insert(self.run.clone(), run);
                let json = serde_json::to_vec(&desired).unwrap();
                Call::Set(desired_key(machine), expected, json)
            }
            (None, _) => match self.from {
                None => Call::List(ACTUAL.to_owned()),
                Some((_, after)) => Call::Watch(ACTUAL.to_owned(), after),
            },
        };
        self.line.is_free(now).then(|| self.line.begin(call, now))
    }

    pub fn answer(&mut self, number: u64, answer: Answer, now: Duration) {
        assert!(self.line.end(number, &answer, now), "one call at a time");
        match answer {
            Answer::Entry(None) => self.read = Some((Expected::Absent, Desired::default())),
            Answer::Entry(Some(entry)) => {
                let expected = Expected::Revision(entry.revision);
                self.read = Some((expected, parse(&entry.key, &entry.value).unwrap()));
            }
            Answer::Set(_) => self.written += 1,
            Answer::Listing(state, entries) => {
                self.from = Some(state);
                entries.iter().for_each(|entry| self.note(entry));
            }
            Answer::Changes(state, changes) => {
                self.from = Some(state);
                let entries = changes.iter().filter_map(|it| it.entry.as_ref());
                entries.for_each(|entry| self.note(entry));
            }
            other => panic!("{other:?}"),
        }
    }

    fn note(&mut self, entry: &Entry) {
        let actual = parse(&entry.key, &entry.value).unwrap();
        self.reports.insert(entry.key.clone(), actual);
    }

    fn is_done(&self, machine: &str) -> bool {
        let report = self.reports.get(&actual_key(machine));
        let Some(run) = report.and_then(|it| it.runs.get(&self.run)) else {
            return false;
        };
        match (self.phase, &run.state) {
            (Some(Phase::Prepare), state) => *state == RunState::Prepared,
            (_, RunState::Running { .. }) => {
                run.nodes.len() == self.nodes
                    && run.nodes.values().all(|state| *state != NodeState::Waiting)
            }
            _ => false,
        }
    }
}
