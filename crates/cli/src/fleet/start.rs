//! `nervure start`: places a dataflow on machines, and starts it there.

use std::{collections::BTreeMap, path::Path, process::ExitCode};

use nervure_coordinator::{Machine, Role, Standing};
use nervure_daemon::{
    bundle,
    state::{self, Actual, ActualRun, DesiredRun, Phase, RunState, change_desired, random_id},
};
use nervure_dataflow::{Dataflow, Node, Program, Resources};
use nervure_protocol::did_you_mean;
use serde_json::json;

use super::{
    arguments::StartArguments,
    connection::{Fleet, call_failure, store_failure},
    members::{actual, machines},
    progress::Progress,
    stop::desired_runs,
};
use crate::{domain, failure::Failure, format::count, output, overrides::Assignment};

/// Starts a dataflow on its machines: all are prepared before any node starts.
pub fn start(arguments: &StartArguments) -> Result<ExitCode, Failure> {
    let dataflow = arguments.overrides.read(&arguments.file)?;
    let name = arguments
        .name
        .clone()
        .unwrap_or_else(|| dataflow.name.clone());
    nervure_dataflow::check_name(&name)
        .map_err(|error| Failure::invalid(format!("`--name {name}`: {error}")))?;
    if dataflow.machines.is_empty() {
        return Err(
            Failure::invalid("the dataflow has no `machines`, so it runs on one host").hint(
                format!("`nervure run {}` runs it here", arguments.file.display()),
            ),
        );
    }
    let fleet = Fleet::connect()?;
    let placed = place(&fleet, &dataflow, &arguments.bind)?;
    if desired_runs(&fleet)?.iter().any(|run| run.dataflow == name) {
        return Err(
            Failure::invalid(format!("there is a dataflow `{name}` in the fleet")).hint(format!(
                "stop it with `nervure stop -d {name}{}`, or start a second one with `--name NAME`",
                domain::option()
            )),
        );
    }
    let file = arguments.file.canonicalize().map_err(|error| {
        Failure::invalid(format!("cannot find {}", arguments.file.display())).because(error)
    })?;
    let bundle = send_bundle(&fleet, file.parent().unwrap_or(Path::new("/")))?;
    let file_name = file
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let run = random_id()
        .map_err(|error| Failure::internal("cannot make an id for the run").because(error))?;
    let text = |one: &Assignment| format!("{}={}", one.name, one.value);
    for (role, machine) in &placed {
        let desired = DesiredRun {
            phase: Phase::Prepare,
            dataflow: name.clone(),
            bundle: bundle.clone(),
            file: file_name.to_owned(),
            role: role.clone(),
            machines: placed.clone(),
            params: arguments.overrides.params.iter().map(text).collect(),
            variables: arguments.overrides.variables.iter().map(text).collect(),
            is_paused: false,
        };
        change_desired(&fleet.client, machine, |state| {
            state.runs.insert(run.clone(), desired.clone());
        })
        .map_err(store_failure)?;
    }
    let mut progress = Progress::new(&fleet, &run, placed.values().cloned(), arguments.json);
    progress.wait("prepare", |_, run| run.state == RunState::Prepared)?;
    check(&fleet, &progress, &run, &placed, "cannot be prepared")?;
    for machine in placed.values() {
        change_desired(&fleet.client, machine, |state| {
            if let Some(run) = state.runs.get_mut(&run) {
                run.phase = Phase::Run;
            }
        })
        .map_err(store_failure)?;
    }
    progress.wait("run", |machine, run| {
        let is_here = |node: &&Node| {
            let role = node.machine.as_ref();
            role.and_then(|role| placed.get(role))
                .is_some_and(|on| on == machine)
        };
        // A dynamic node starts when a user starts it.
        let nodes = dataflow
            .nodes
            .iter()
            .filter(|node| node.program != Program::Dynamic);
        has_started(run, nodes.filter(is_here).map(|node| node.id.as_str()))
    })?;
    check(&fleet, &progress, &run, &placed, "cannot be started")?;
    output::write(&match arguments.json {
        true => format!(
            "{}\n",
            json!({"message": "started", "dataflow": name, "run": run, "machines": placed})
        ),
        false => format!(
            "{name} runs on {}; stop it with `nervure stop -d {name}{}`\n",
            listed(&placed),
            domain::option()
        ),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a run has started on a machine, as far as it has reported: states of nodes arrive one by one.
fn has_started<'d>(run: &ActualRun, nodes: impl IntoIterator<Item = &'d str>) -> bool {
    match run.state {
        RunState::Running { .. } => nodes
            .into_iter()
            .all(|node| run.nodes.get(node).is_some_and(|state| state != "waiting")),
        RunState::Ended => true,
        _ => false,
    }
}

/// The machine of each role. Everything that cannot be placed is named.
fn place(
    fleet: &Fleet,
    dataflow: &Dataflow,
    bindings: &[(String, String)],
) -> Result<BTreeMap<String, String>, Failure> {
    let known = machines(fleet)?;
    let names = || known.iter().map(|machine| machine.name.as_str());
    let roles = || dataflow.machines.iter().map(String::as_str);
    if let Some((role, _)) = bindings
        .iter()
        .find(|(role, _)| !dataflow.machines.contains(role))
    {
        return Err(Failure::invalid(format!(
            "`--bind {role}=..`: the dataflow has no machine `{role}`"
        ))
        .hint(did_you_mean(role, "its machines are", roles())));
    }
    let mut placed = BTreeMap::new();
    let mut problems = Vec::new();
    // Nothing is to be done on the machine of a role without nodes.
    let used = dataflow.machines.iter().filter_map(|role| {
        let nodes = dataflow.nodes.iter();
        let nodes = nodes.filter(|node| node.machine.as_ref() == Some(role));
        let ids: Vec<_> = nodes.map(|node| node.id.as_str()).collect();
        let what = format!("machine `{role}` with {}", ids.join(", "));
        (!ids.is_empty()).then_some((role, what))
    });
    let none = BTreeMap::new();
    let mut by_needs = Vec::new();
    for (role, what) in used {
        let needs = Needs {
            labels: dataflow.labels.get(role).unwrap_or(&none),
            resources: dataflow.resources.get(role),
        };
        let bound = bindings.iter().find(|(of, _)| of == role);
        let name = bound.map_or(role, |(_, machine)| machine);
        match known.iter().find(|known| known.name == *name) {
            Some(machine) => {
                if let Some(why) = unfit(fleet, machine, &needs, &placed)? {
                    problems.push(format!("{what}: `{name}` {why}"));
                }
                placed.insert(role.clone(), name.clone());
            }
            None if bound.is_none() && needs.any() => by_needs.push((role, what, needs)),
            None => problems.push(format!(
                "{what}: no machine `{name}` has joined; these have: {}",
                names().collect::<Vec<_>>().join(", ")
            )),
        }
    }
    for (role, what, needs) in by_needs {
        let mut reasons = Vec::new();
        for machine in &known {
            match unfit(fleet, machine, &needs, &placed)? {
                None => {
                    placed.insert(role.clone(), machine.name.clone());
                    break;
                }
                Some(why) => reasons.push(format!("`{}` {why}", machine.name)),
            }
        }
        if !placed.contains_key(role) {
            problems.push(format!(
                "{what}: no machine has its {}: {}",
                needs.name(),
                reasons.join("; ")
            ));
        }
    }
    if problems.is_empty() {
        return Ok(placed);
    }
    let failure = Failure::invalid("the dataflow cannot be placed, and nothing was started");
    Err(problems.into_iter().fold(failure, Failure::because).hint(
        "bind each role with `--bind ROLE=MACHINE`; `nervure machine list` lists the machines",
    ))
}

/// What a role needs of its machine.
struct Needs<'d> {
    labels: &'d BTreeMap<String, String>,
    resources: Option<&'d Resources>,
}

impl Needs<'_> {
    fn any(&self) -> bool {
        !self.labels.is_empty() || self.resources.is_some()
    }

    fn name(&self) -> &'static str {
        match (self.labels.is_empty(), self.resources) {
            (_, None) => "labels",
            (true, Some(_)) => "resources",
            (false, Some(_)) => "labels and resources",
        }
    }

    /// What a machine lacks.
    fn lacking(&self, actual: &Actual) -> Option<String> {
        let missing = self.labels.iter().find_map(|(name, text)| {
            let own = actual.labels.get(name);
            match own {
                Some(own) if own == text => None,
                Some(own) => Some(format!("has the label `{name}={own}`, not `{name}={text}`")),
                None => Some(format!("has no label `{name}`")),
            }
        });
        missing.or_else(|| {
            let needed = self.resources?;
            match &actual.resources {
                Some(own) => lacking(needed, own),
                None => Some("has not reported its resources".to_owned()),
            }
        })
    }
}

fn lacking(needed: &Resources, own: &state::Resources) -> Option<String> {
    let counted = |number: u32, what| count(number as usize, what);
    let mebibytes = |bytes: u64| format!("{} MiB of memory", bytes >> 20);
    let is_less = |needed: Option<u32>, own: u32| needed.filter(|needed| own < *needed);
    if let Some(cpus) = is_less(needed.cpus, own.cpus) {
        let own = counted(own.cpus, "processor");
        return Some(format!("has {own}, not {cpus}"));
    }
    if let Some(memory) = needed.memory.filter(|memory| own.memory < *memory) {
        let own = mebibytes(own.memory);
        return Some(format!("has {own}, not {}", memory.div_ceil(1 << 20)));
    }
    let gpus = is_less(needed.gpus, own.gpus)?;
    let own = counted(own.gpus, "GPU");
    Some(format!("has {own}, not {gpus}"))
}

/// Why a role with these needs cannot be placed on a machine.
fn unfit(
    fleet: &Fleet,
    machine: &Machine,
    needs: &Needs<'_>,
    placed: &BTreeMap<String, String>,
) -> Result<Option<String>, Failure> {
    if let Some(why) = cannot_run(machine) {
        return Ok(Some(why.to_owned()));
    }
    let Some(actual) = actual(fleet, &machine.name)? else {
        return Ok(Some("has not reported yet".to_owned()));
    };
    if let Some((other, _)) = placed.iter().find(|(_, taken)| **taken == machine.name) {
        return Ok(Some(format!("is bound to `{other}` already")));
    }
    Ok(needs.lacking(&actual))
}

/// Why nodes cannot run on a machine of the fleet.
fn cannot_run(machine: &Machine) -> Option<&'static str> {
    match (machine.standing, machine.role) {
        (Standing::Waiting, _) => Some("waits for approval"),
        (Standing::Revoked, _) => Some("was revoked"),
        (Standing::Paired, Role::Observer) => Some("is an observer, which runs no nodes"),
        (Standing::Paired, Role::Operator | Role::Robot) => None,
    }
}

/// Gives the coordinator the bundle, unless it has it. Returns its digest.
fn send_bundle(fleet: &Fleet, folder: &Path) -> Result<String, Failure> {
    let bundle = bundle::pack(folder).map_err(|error| {
        Failure::invalid(format!("the programs cannot be sent: {error}"))
            .hint("leave large files out with `.nervureignore`, which is written like `.gitignore`")
    })?;
    for path in &bundle.left_out {
        note!("not sent: {}, which is no regular file", path.display());
    }
    if !fleet
        .client
        .has_bundle(&bundle.digest)
        .map_err(call_failure)?
    {
        note!(
            "sending {} files, {} kB",
            bundle.files,
            bundle.bytes.len().div_ceil(1000)
        );
        fleet
            .client
            .put_bundle(&bundle.digest, bundle.bytes)
            .map_err(call_failure)?;
    }
    Ok(bundle.digest)
}

/// After a failure: nothing stays started.
fn check(
    fleet: &Fleet,
    progress: &Progress<'_>,
    run: &str,
    placed: &BTreeMap<String, String>,
    what: &str,
) -> Result<(), Failure> {
    let failures = progress.failures();
    if failures.is_empty() {
        return Ok(());
    }
    let mut failure = Failure::invalid(format!("the dataflow {what}, and nothing of it runs"));
    for (machine, reason) in failures {
        failure = failure.because(format!("{machine}: {reason}"));
    }
    for machine in placed.values() {
        change_desired(&fleet.client, machine, |state| drop(state.runs.remove(run)))
            .map_err(store_failure)?;
    }
    Err(failure)
}

fn listed(placed: &BTreeMap<String, String>) -> String {
    let all: Vec<_> = placed
        .iter()
        .map(|(role, machine)| match role == machine {
            true => machine.clone(),
            false => format!("{machine} ({role})"),
        })
        .collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_started_when_each_of_its_nodes_is_reported_as_started() {
        let mut run = ActualRun {
            dataflow: "two".to_owned(),
            state: RunState::Running { keeper: 1 },
            is_paused: false,
            nodes: BTreeMap::new(),
            streams: Vec::new(),
        };
        let mut report = |node: &str, state: &str| {
            run.nodes.insert(node.to_owned(), state.to_owned());
            has_started(&run, ["camera", "motor"])
        };
        assert!(!report("camera", "running"), "motor is not declared yet");
        assert!(!report("motor", "waiting"));
        assert!(report("motor", "failed: exit code 1"));
        assert!(report("viewer", "waiting"), "another node does not matter");
    }
}
