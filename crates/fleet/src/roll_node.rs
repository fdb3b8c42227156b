//! Rolling of the program of one node, in one instance after the other.

use nervure_daemon::state::{ActualRun, DesiredProgram, ProgramState, RunState};
use nervure_dataflow::{Dataflow, Node, Program};
use nervure_inspect::Fault;
use nervure_protocol::{daemon_to_cli::NodeState, did_you_mean};

use crate::{
    Error, Fleet,
    launch::{is_troubled, new_id},
    parts::{self, Part},
    progress::{Event, Listener, Progress},
    roll::Limits,
    runs::KnownRun,
    stopped::{Roll, Stopped},
};

/// The program that a node is to run.
pub struct NewProgram<'f> {
    /// The fleet.
    pub fleet: &'f Fleet,
    /// The node.
    pub node: &'f str,
    /// Digest of the bundle.
    pub bundle: String,
    /// The dataflow file in it.
    pub file: String,
    /// Shows what happens meanwhile.
    pub listener: Listener<'f>,
}

/// The node of a file whose program replaces the program of a running dataflow.
pub fn find_node<'d>(dataflow: &'d Dataflow, id: &str) -> Result<&'d Node, Error> {
    let known = || dataflow.nodes.iter().map(|node| node.id.as_str());
    match dataflow.node(id) {
        Some(node) if node.program == Program::Dynamic => Err(Error::Node {
            text: format!("node `{id}` has `path: dynamic`: it is whatever joins"),
            hint: None,
        }),
        Some(node) => Ok(node),
        None => Err(Error::Node {
            text: format!("the dataflow has no node `{id}`"),
            hint: Some(did_you_mean(id, "its nodes are", known())),
        }),
    }
}

/// Replaces the program in one instance after the other. The first failure ends the roll, and names the
/// programs that run. Returns the machine of the node in each instance.
pub fn roll_node(
    program: &NewProgram<'_>,
    role: &str,
    runs: &[KnownRun],
    limits: Limits,
) -> Result<Vec<String>, Error> {
    let names: Vec<String> = runs.iter().map(|run| run.dataflow.clone()).collect();
    let mut machines = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let name = &names[index];
        if runs.len() > 1 {
            let replacing = Event::Replacing {
                name,
                number: index + 1,
                of: runs.len(),
            };
            (program.listener)(replacing).map_err(Error::Listener)?;
        }
        let found = run.parts.iter().find(|(_, part)| part.role == role);
        let replaced = match found {
            Some((part, desired)) => program.replace(part, desired.program(program.node), limits),
            None => Err(Stopped::new(
                format!("no machine has the role `{role}`"),
                "goes on as before",
            )),
        };
        match replaced {
            Ok(machine) => machines.push(machine),
            Err(stop) => {
                return Err(Error::Roll(Box::new(Roll {
                    what: format!("`{}` of {name}", program.node),
                    name: name.clone(),
                    stop,
                    new: names[..index].to_vec(),
                    old: names[index + 1..].to_vec(),
                    absent: Vec::new(),
                })));
            }
        }
    }
    Ok(machines)
}

impl NewProgram<'_> {
    fn replace(
        &self,
        part: &Part,
        before: DesiredProgram,
        limits: Limits,
    ) -> Result<String, Stopped> {
        let text = |error: Error| error.text_with_causes();
        let untouched = |error: Error| Stopped::new(text(error), "goes on as before");
        let new = DesiredProgram {
            version: new_id().map_err(untouched)?,
            bundle: self.bundle.clone(),
            file: self.file.clone(),
        };
        let mut progress = Progress::new(self.fleet, [part.clone()], self.listener);
        progress = progress.with_limit(limits.step);
        let replaced = self
            .set(part, &new)
            .and_then(|()| self.await_program(&new, "run the new program", &mut progress))
            .map_err(text)
            .and_then(|state| failure_of(&state))
            .and_then(|()| self.watch(&mut progress, limits));
        let Err(why) = replaced else {
            return Ok(part.machine.clone());
        };
        let why = format!("{}: {why}", part.machine);
        let back = self
            .set(part, &before)
            .and_then(|()| self.await_program(&before, "run the program of before", &mut progress))
            .map_err(text)
            .and_then(|state| failure_of(&state));
        Err(Stopped::new(
            why,
            match back {
                Ok(()) => "the program of before runs again".to_owned(),
                Err(why) => format!("the program of before may not run again: {why}"),
            },
        ))
    }

    fn set(&self, part: &Part, program: &DesiredProgram) -> Result<(), Error> {
        parts::change_existing(self.fleet, [part], |run| {
            run.programs.insert(self.node.to_owned(), program.clone());
        })
    }

    /// Waits until a program runs, or has failed.
    fn await_program(
        &self,
        program: &DesiredProgram,
        what: &str,
        progress: &mut Progress<'_>,
    ) -> Result<ProgramState, Error> {
        let state = |run: &ActualRun| {
            let known = run.programs.get(self.node);
            let known = known.filter(|known| known.version == program.version);
            known.map(|known| known.state.clone())
        };
        let is_decided = |run: &ActualRun| match state(run) {
            _ if run.state == RunState::Ended => true,
            Some(ProgramState::InPlace) => is_up(run, self.node),
            Some(ProgramState::Failed { .. }) => true,
            Some(ProgramState::Preparing) | None => false,
        };
        progress.wait(what, |_, run| is_decided(run))?;
        let run = progress.parts.values().flatten().next();
        let run = run.filter(|run| run.state != RunState::Ended);
        Ok(run.and_then(state).unwrap_or(ProgramState::Preparing))
    }

    /// Waits for the time in which the node may not fail.
    fn watch(&self, progress: &mut Progress<'_>, limits: Limits) -> Result<(), String> {
        let trouble = |run: &ActualRun| {
            let state = run.nodes.get(self.node)?;
            is_troubled(state).then(|| format!("{} {state}", self.node))
        };
        let watched = progress.watch(limits.healthy_for, trouble);
        match watched.map_err(|error| error.text_with_causes())? {
            Some((_, trouble)) => Err(trouble),
            None => Ok(()),
        }
    }
}

/// The reports of the program and of its process arrive one by one.
fn is_up(run: &ActualRun, node: &str) -> bool {
    let state = run.nodes.get(node);
    state.is_some_and(|state| !matches!(state, NodeState::Waiting | NodeState::Restarts { .. }))
}

fn failure_of(state: &ProgramState) -> Result<(), String> {
    match state {
        ProgramState::InPlace => Ok(()),
        ProgramState::Failed { reason, .. } => Err(reason.clone()),
        ProgramState::Preparing => Err("its part of the dataflow has ended, or failed".to_owned()),
    }
}
