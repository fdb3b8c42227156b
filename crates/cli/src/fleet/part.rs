//! `nervure __part`: checks or starts the part of a dataflow on this machine, for the daemon.

use std::{io::Read, path::Path, process::ExitCode, time::Duration};

use nervure_daemon::{PartSpec, StandIns};
use nervure_dataflow::Dataflow;
use nervure_fleet::placement::check_instance_name;
use nervure_launch::{Assignment, AssignmentError, Launch, Options, Overrides};
use nervure_protocol::cli_to_keeper::Replace;
use rustix::fd::OwnedFd;

use super::program::take_program;
use crate::{
    failure::{Failure, IMPERFECT},
    source,
};

/// The largest description of a part.
const MAX_SPEC_BYTES: u64 = 4 << 20;

pub fn run_part() -> Result<ExitCode, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(MAX_SPEC_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::internal("cannot read the part").because(error))?;
    let spec: PartSpec = serde_json::from_slice(&bytes)
        .map_err(|error| Failure::invalid(format!("this is no part: {error}")))?;
    let lock = spec.inherited_lock().map_err(|error| {
        Failure::internal("the daemon has not handed down the lock of the part").because(error)
    })?;
    let overrides = Overrides {
        params: parsed(&spec.params, Assignment::param)?,
        variables: parsed(&spec.variables, Assignment::variable)?,
    };
    check_instance_name(&spec.dataflow)
        .map_err(|error| Failure::invalid(format!("`{}`: {error}", spec.dataflow)))?;
    let mut dataflow = source::read_to_start(&spec.file, &overrides)?;
    dataflow.name.clone_from(&spec.dataflow);
    for (node, program) in &spec.programs {
        let overrides = overrides.of_node(node, &program.file);
        let other = source::read_to_start(&program.file, &overrides)?;
        take_program(&mut dataflow, &other, node, program)?;
    }
    let name_of = |role: &str| {
        spec.machines
            .get(role)
            .cloned()
            .unwrap_or_else(|| role.to_owned())
    };
    let mut part = dataflow.part(&spec.role, name_of);
    // A daemon starts them when the machine holds its lease, even if it is started later.
    for node in &mut part.dataflow.nodes {
        node.settings.held = node.stops_on_partition;
    }
    if spec.check {
        return write_requests(&spec, &dataflow);
    }
    // Behind the lock of this process: a stop by hand that finds no keeper waits for this process.
    if spec.has_ended() {
        return Ok(ExitCode::SUCCESS);
    }
    let stand_ins = StandIns {
        outgoing: part.outgoing,
        incoming: part.incoming,
        stop_on_partition: part.stop_on_partition,
    };
    spec.write_stand_ins(&stand_ins).map_err(|error| {
        Failure::internal("cannot write the stand-ins of the part").because(error)
    })?;
    start(&part.dataflow, spec, lock)
}

fn parsed(
    texts: &[String],
    parse: fn(&str) -> Result<Assignment, AssignmentError>,
) -> Result<Vec<Assignment>, Failure> {
    let parsed: Result<_, _> = texts.iter().map(|text| parse(text)).collect();
    parsed.map_err(|error| Failure::invalid(error.to_string()))
}

/// Starts the keeper, which then has the lock. Returns when every node is ready: failures before that are
/// in the output of this process.
fn start(dataflow: &Dataflow, spec: PartSpec, lock: OwnedFd) -> Result<ExitCode, Failure> {
    let options = Options {
        end_note: Some(spec.end_note()),
        file: Some(spec.file),
        is_detached: true,
        lock: Some(lock),
        ..Options::default()
    };
    let launch = Launch::prepare(dataflow, options, &mut |warning| note!("{warning}"))?;
    let mut running = launch.run(Path::new("/proc/self/exe"))?;
    if running.wait_ready(Duration::MAX)? {
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = running.wait(Duration::MAX)?;
    let failed = outcome.map_or(&[][..], |outcome| &outcome.failed);
    for ended in failed {
        note!("node `{}` failed: {}", ended.id, ended.reason);
    }
    Ok(match failed {
        [] => ExitCode::SUCCESS,
        _ => ExitCode::from(IMPERFECT),
    })
}

/// Writes the keeper's request for each checked program.
fn write_requests(spec: &PartSpec, dataflow: &Dataflow) -> Result<ExitCode, Failure> {
    for id in spec.programs.keys() {
        let Some(node) = dataflow.node(id) else {
            continue;
        };
        let request = Replace {
            node: id.clone(),
            program: node.program.clone(),
            args: Some(node.settings.args.clone()),
            folder: node.settings.folder.clone(),
            version: Some(node.settings.version.clone()),
        };
        spec.write_request(&request).map_err(|error| {
            Failure::internal("cannot write the request for the keeper").because(error)
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
