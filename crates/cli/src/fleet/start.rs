//! `nervure start`: places a dataflow on machines, and starts it there.

use std::{collections::BTreeMap, path::Path, process::ExitCode};

use nervure_daemon::{
    bundle,
    state::{DesiredRun, Phase},
};
use serde_json::json;

use super::{
    arguments::StartArguments,
    connection::{Fleet, call_failure},
    launch::{Launch, NewRun},
    parts::{self, Parts},
    placement::{Instance, Known, plan},
    progress::Progress,
    roll::{Limits, roll},
    stop::desired_runs,
};
use crate::{domain, failure::Failure, output, overrides::Assignment};

/// Starts a dataflow on its machines, or an instance on each: all are prepared before any node starts.
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
    let instances = plan(&Known::read(&fleet)?, &dataflow, &name, &arguments.bind)?;
    if !arguments.rolling {
        refuse_running(&fleet, &instances)?;
    }
    let launch = Launch {
        fleet: &fleet,
        dataflow: &dataflow,
        template: template(&fleet, arguments)?,
        json: arguments.json,
    };
    if arguments.rolling {
        let limits = Limits {
            healthy_for: arguments.healthy_for,
            step: arguments.step_timeout,
        };
        let runs = roll(&launch, instances, limits)?;
        output::write(&started(&name, &runs, arguments.json))?;
        return Ok(ExitCode::SUCCESS);
    }
    let runs = instances
        .into_iter()
        .map(|instance| launch.run_of(instance));
    let runs = runs.collect::<Result<Vec<_>, _>>()?;
    let all: Parts = runs.iter().flat_map(|run| run.parts.clone()).collect();
    let mut progress = Progress::new(&fleet, all.keys().cloned(), arguments.json);
    let reasons = launch.prepare(&all, &mut progress)?;
    check(&fleet, &all, reasons, "cannot be prepared")?;
    let reasons = launch.start(&all, &mut progress)?;
    check(&fleet, &all, reasons, "cannot be started")?;
    output::write(&started(&name, &runs, arguments.json))?;
    Ok(ExitCode::SUCCESS)
}

/// What is desired of each part, but for its name and its machines. Sends the folder of the file.
fn template(fleet: &Fleet, arguments: &StartArguments) -> Result<DesiredRun, Failure> {
    let file = arguments.file.canonicalize().map_err(|error| {
        Failure::invalid(format!("cannot find {}", arguments.file.display())).because(error)
    })?;
    let bundle = send_bundle(fleet, file.parent().unwrap_or(Path::new("/")))?;
    let file = file.file_name().and_then(|name| name.to_str());
    let text = |one: &Assignment| format!("{}={}", one.name, one.value);
    Ok(DesiredRun {
        phase: Phase::Prepare,
        dataflow: String::new(),
        bundle,
        file: file.unwrap_or_default().to_owned(),
        role: String::new(),
        machines: BTreeMap::new(),
        params: arguments.overrides.params.iter().map(text).collect(),
        variables: arguments.overrides.variables.iter().map(text).collect(),
        is_paused: false,
    })
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
