//! `nervure start`: places a dataflow on machines, and starts it there.

use std::{collections::BTreeMap, path::Path, process::ExitCode};

use nervure_daemon::{
    bundle,
    state::{DesiredRun, Phase},
};
use nervure_dataflow::Dataflow;
use nervure_fleet::{
    Fleet,
    launch::{Launch, NewRun},
    parts::{self, Parts},
    placement::{Instance, Known, is_instance_of, plan},
    progress::Progress,
    roll::{Limits, roll},
    roll_node::{NewProgram, find_node, roll_node},
    runs::{KnownRun, desired_runs},
};
use nervure_inspect::Fault;
use nervure_launch::Overrides;
use serde_json::json;

use super::{arguments::StartArguments, interrupt::or_give_up, progress::listener};
use crate::{domain, failure::Failure, output, source};

/// Starts a dataflow on its machines, or an instance on each: all are prepared before any node starts.
pub fn start(arguments: &StartArguments) -> Result<ExitCode, Failure> {
    let dataflow = source::read(&arguments.file, &arguments.overrides.overrides())?;
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
    if let Some(node) = &arguments.node {
        return start_program(&fleet, &dataflow, &name, node, arguments);
    }
    let instances = plan(&Known::read(&fleet)?, &dataflow, &name, &arguments.bind)?;
    if !arguments.rolling {
        refuse_running(&fleet, &instances)?;
    }
    let launch = Launch {
        fleet: &fleet,
        dataflow: &dataflow,
        template: template(&fleet, arguments)?,
        listener: listener(arguments.json),
    };
    if arguments.rolling {
        let runs = roll(&launch, instances, limits(arguments))?;
        output::write(&started(&name, &runs, arguments.json))?;
        return Ok(ExitCode::SUCCESS);
    }
    let runs = instances
        .into_iter()
        .map(|instance| launch.run_of(instance));
    let runs = runs.collect::<Result<Vec<_>, _>>()?;
    let all: Parts = runs.iter().flat_map(|run| run.parts.clone()).collect();
    let mut progress = Progress::new(&fleet, all.keys().cloned(), launch.listener);
    let bring_up = || {
        let reasons = launch.prepare(&all, &mut progress)?;
        check(&fleet, &all, reasons, "cannot be prepared")?;
        let reasons = launch.start(&all, &mut progress)?;
        check(&fleet, &all, reasons, "cannot be started")
    };
    or_give_up(bring_up, || match parts::remove(&fleet, all.keys()) {
        Ok(()) => note!("nothing of it is to run"),
        Err(error) => note!(
            "warning: the order is not withdrawn, so the other parts start later: {}",
            error.text_with_causes()
        ),
    })?;
    output::write(&started(&name, &runs, arguments.json))?;
    Ok(ExitCode::SUCCESS)
}

fn limits(arguments: &StartArguments) -> Limits {
    Limits {
        healthy_for: arguments.healthy_for,
        step: arguments.step_timeout,
    }
}

/// Replaces the program of one node of a running dataflow, in all its instances or those of `--bind`.
fn start_program(
    fleet: &Fleet,
    dataflow: &Dataflow,
    name: &str,
    node: &str,
    arguments: &StartArguments,
) -> Result<ExitCode, Failure> {
    if arguments.overrides.overrides() != Overrides::default() {
        return Err(Failure::invalid(
            "`--node` replaces a program, and changes no parameters and variables",
        )
        .hint("`nervure param set` changes a parameter of a node that runs"));
    }
    let role = find_node(dataflow, node)?.machine.clone();
    let mut runs = desired_runs(fleet)?;
    runs.retain(|run| run.parts.values().any(|part| part.phase == Phase::Run));
    if arguments.bind.is_empty() {
        let has_it = runs.iter().any(|run| run.dataflow == name);
        runs.retain(|run| match has_it {
            true => run.dataflow == name,
            false => is_instance_of(&run.dataflow, name),
        });
    } else {
        let instances = plan(&Known::read(fleet)?, dataflow, name, &arguments.bind)?;
        let place = |run: &KnownRun| instances.iter().position(|it| it.name == run.dataflow);
        runs.retain(|run| place(run).is_some());
        runs.sort_by_key(|run| place(run));
    }
    if runs.is_empty() {
        return Err(
            Failure::invalid(format!("no dataflow `{name}` runs in the fleet"))
                .hint("`nervure list` shows those that run"),
        );
    }
    let (bundle, file) = send_programs(fleet, &arguments.file)?;
    let program = NewProgram {
        fleet,
        node,
        bundle,
        file,
        listener: listener(arguments.json),
    };
    let role = role.unwrap_or_default();
    let machines = roll_node(&program, &role, &runs, limits(arguments))?;
    for (run, machine) in runs.iter().zip(machines) {
        let dataflow = &run.dataflow;
        output::write(&match arguments.json {
            true => {
                let line = json!({"message": "replaced", "dataflow": dataflow, "node": node, "machine": machine});
                format!("{line}\n")
            }
            false => format!("{dataflow}: `{node}` on {machine} runs the new program\n"),
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The desired state of each part, without its name and its machines. Sends the folder of the file.
fn template(fleet: &Fleet, arguments: &StartArguments) -> Result<DesiredRun, Failure> {
    let (bundle, file) = send_programs(fleet, &arguments.file)?;
    let Overrides { params, variables } = arguments.overrides.overrides();
    Ok(DesiredRun {
        phase: Phase::Prepare,
        dataflow: String::new(),
        bundle,
        file,
        role: String::new(),
        machines: BTreeMap::new(),
        params: params.iter().map(ToString::to_string).collect(),
        variables: variables.iter().map(ToString::to_string).collect(),
        is_paused: false,
        epoch: 0,
        programs: BTreeMap::new(),
    })
}

/// Sends the folder of a dataflow file. Returns the digest of its bundle, and the file in it.
fn send_programs(fleet: &Fleet, file: &Path) -> Result<(String, String), Failure> {
    let file = file.canonicalize().map_err(|error| {
        Failure::invalid(format!("cannot find {}", file.display())).because(error)
    })?;
    let bundle = send_bundle(fleet, file.parent().unwrap_or(Path::new("/")))?;
    let file = file.file_name().and_then(|name| name.to_str());
    Ok((bundle, file.unwrap_or_default().to_owned()))
}

/// Dataflows of the same name run one at a time.
fn refuse_running(fleet: &Fleet, instances: &[Instance]) -> Result<(), Failure> {
    let running = desired_runs(fleet)?;
    let is_new = |name: &String| instances.iter().any(|instance| instance.name == *name);
    let names = running.iter().map(|run| &run.dataflow);
    let names: Vec<_> = names.filter(|name| is_new(name)).cloned().collect();
    let what = match names.as_slice() {
        [] => return Ok(()),
        [name] => format!("there is a dataflow `{name}` in the fleet"),
        names => format!("there are dataflows in the fleet: {}", names.join(", ")),
    };
    Err(Failure::invalid(what).hint(format!(
        "`--rolling` replaces it, `nervure stop -d {}{}` stops it, and `--name NAME` starts a second one",
        names[0],
        domain::option()
    )))
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
    if !fleet.client.has_bundle(&bundle.digest)? {
        note!(
            "sending {} files, {} kB",
            bundle.files,
            bundle.bytes.len().div_ceil(1000)
        );
        fleet.client.put_bundle(&bundle.digest, bundle.bytes)?;
    }
    Ok(bundle.digest)
}

/// After a failure: nothing stays started.
fn check(fleet: &Fleet, all: &Parts, reasons: Vec<String>, what: &str) -> Result<(), Failure> {
    if reasons.is_empty() {
        return Ok(());
    }
    parts::remove(fleet, all.keys())?;
    let failure = Failure::invalid(format!("the dataflow {what}, and nothing of it runs"));
    Err(reasons.into_iter().fold(failure, Failure::because))
}

/// The output for runs that have started.
fn started(name: &str, runs: &[NewRun], json: bool) -> String {
    let of_run = |run: &NewRun| {
        json!({
            "message": "started",
            "dataflow": run.instance.name,
            "run": run.id,
            "machines": run.instance.placed,
        })
    };
    match (runs, json) {
        ([run], true) if run.instance.name == name => format!("{}\n", of_run(run)),
        (runs, true) => {
            let instances: Vec<_> = runs.iter().map(of_run).collect();
            let line = json!({"message": "started", "dataflow": name, "instances": instances});
            format!("{line}\n")
        }
        ([run], false) => format!(
            "{} runs on {}; stop it with `nervure stop -d {}{}`\n",
            run.instance.name,
            listed(&run.instance.placed),
            run.instance.name,
            domain::option()
        ),
        (runs, false) => {
            let line = |run: &NewRun| {
                let Instance { name, placed } = &run.instance;
                format!("{name} runs on {}\n", listed(placed))
            };
            let lines: String = runs.iter().map(line).collect();
            format!(
                "{lines}stop all of them with `nervure stop -d {name}{}`\n",
                domain::option()
            )
        }
    }
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
