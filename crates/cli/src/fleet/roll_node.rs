//! `nervure start --rolling --node`: the program of one node, in one instance after the other.

use nervure_daemon::state::{ActualRun, DesiredProgram, ProgramState, RunState};
use nervure_dataflow::{Dataflow, Node, Program};
use nervure_protocol::{daemon_to_cli::NodeState, did_you_mean};

use super::{
    connection::Fleet,
    launch::{is_troubled, new_id},
    parts::{self, Part},
    progress::Progress,
    roll::{Limits, Stopped, stopped},
    stop::KnownRun,
};
use crate::failure::Failure;

/// The program that a node is to run.
pub struct NewProgram<'f> {
    pub fleet: &'f Fleet,
    pub node: &'f str,
    /// Digest of the bundle.
    pub bundle: String,
    /// The dataflow file in it.
    pub file: String,
    pub json: bool,
}

/// The node of a file whose program replaces the program of a running dataflow.
pub fn find_node<'d>(dataflow: &'d Dataflow, id: &str) -> Result<&'d Node, Failure> {
    let known = || dataflow.nodes.iter().map(|node| node.id.as_str());
    match dataflow.node(id) {
        Some(node) if node.program == Program::Dynamic => Err(Failure::invalid(format!(
            "node `{id}` has `path: dynamic`: it is whatever joins"
        ))),
        Some(node) => Ok(node),
        None => Err(Failure::invalid(format!("the dataflow has no node `{id}`"))
            .hint(did_you_mean(id, "its nodes are", known()))),
    }
}

/// Replaces the program in one instance after the other. The first failure ends the roll, and names the
/// programs that run. Returns the machine of the node in each instance.
pub fn roll_node(
    program: &NewProgram<'_>,
    role: &str,
    runs: &[KnownRun],
    limits: Limits,
) -> Result<Vec<String>, Failure> {
    let names: Vec<String> = runs.iter().map(|run| run.dataflow.clone()).collect();
    let mut machines = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let name = &names[index];
        if runs.len() > 1 {
            note!("{name}: {} of {}", index + 1, runs.len());
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
                let (new, rest) = (&names[..index], &names[index + 1..]);
                let what = format!("`{}` of {name}", program.node);
                return Err(stopped(&what, name, &stop, new, (rest, &[])));
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
        let text = |failure: Failure| failure.to_string();
        let untouched = |failure: Failure| Stopped::new(text(failure), "goes on as before");
        let new = DesiredProgram {
            version: new_id().map_err(untouched)?,
            bundle: self.bundle.clone(),
            file: self.file.clone(),
        };
        let mut progress = Progress::new(self.fleet, [part.clone()], self.json);
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

    fn set(&self, part: &Part, program: &DesiredProgram) -> Result<(), Failure> {
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
    ) -> Result<ProgramState, Failure> {
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
        match watched.map_err(|failure| failure.to_string())? {
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
