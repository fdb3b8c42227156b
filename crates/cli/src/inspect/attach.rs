//! `nervure attach`: runs a program in the place of a node.

use std::{
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitCode, ExitStatus},
    time::{Duration, Instant},
};

use nervure_inspect::{
    State,
    places::{Place, split_name},
    state::NodeState,
};
use nervure_node::running::{Connection, ConnectionError};
use nervure_protocol::{
    CONTROL_FD_VARIABLE, DATAFLOW_VARIABLE, NODE_VARIABLE, TOKEN_VARIABLE, cli_to_keeper,
    graph::Program,
    keeper_to_cli::{Attached, Message},
    report::EndCause,
};
use rustix::process::{Pid, Signal};
use serde_json::json;
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    iterator::Signals,
};

use super::arguments::AttachArguments;
use crate::{failure::Failure, output};

/// Interval between messages about waiting.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Stops the node, runs the command in its place, and lets the keeper start the node again.
pub fn attach(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    let (dataflow, node) = split_name(&arguments.node, arguments.dataflow.as_deref())?;
    let mut state = State::find(dataflow, "attach", true)?;
    let address = match state.place_of_named(node)? {
        Place::Here(address) => address.clone(),
        Place::There { machine, .. } => {
            let text = format!("node `{node}` runs on {machine}");
            return Err(Failure::invalid(text)
                .hint("the command would run in its place: run `nervure attach` on that machine"));
        }
    };
    // The keeper holds the node's place while this connection is open, even if this process is
    // killed.
    let mut place = Connection::open(&address, "attach")?;
    let token = nervure_launch::make_token()?;
    let request = cli_to_keeper::Attach {
        node: node.to_owned(),
        token: token.clone(),
        leave_stopped: arguments.leave_stopped,
    };
    let attached = match place.ask(&cli_to_keeper::Message::Attach(request))? {
        Message::Attached(attached) => attached,
        other => return Err(ConnectionError::Unexpected(format!("{other:?}")).into()),
    };
    let mut signals = Signals::new([SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT])
        .map_err(|error| Failure::internal("cannot watch for signals").because(error))?;
    wait_until(&mut state, node, "end", |state| {
        state.node(node).is_none_or(|node| node.pid().is_none())
    })?;
    if signals.pending().any(|signal| signal != SIGCHLD) {
        return Err(Failure::internal(
            "interrupted before the command was started",
        ));
    }
    let environment = [
        (DATAFLOW_VARIABLE, address.keeper.to_string()),
        (NODE_VARIABLE, node.to_owned()),
        (TOKEN_VARIABLE, token),
    ];
    let ended = run(
        &mut command(&attached, &arguments.command)?,
        &environment,
        &mut signals,
    )?;
    // The last process of the node may be the command's.
    let is_over = !state.follow_until(Instant::now())?;
    let before = state.node(node).and_then(NodeState::incarnation);
    drop(place);
    let is_given_back =
        !arguments.leave_stopped && !is_over && wait_for_restart(&mut state, node, before)?;
    if is_given_back {
        note!("node `{node}` runs its own program again");
    }
    let code = ended
        .code()
        .or_else(|| Some(128 + ended.signal()?))
        .unwrap_or(1);
    if arguments.json {
        let dataflow = &state.welcome().dataflow;
        let result = json!({"dataflow": dataflow, "node": node, "exit_code": code, "is_given_back": is_given_back});
        output::write(&format!("{result}\n"))?;
    }
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// The command, with `{}` replaced by the node's own program and its arguments; by default that
/// program.
fn command(attached: &Attached, words: &[String]) -> Result<Command, Failure> {
    let mut own = match &attached.program {
        Program::Dynamic | Program::Remote { .. } => vec![attached.program.to_string()],
        program => {
            let words = nervure_keeper::program_words(program, &attached.env);
            let words = words.map_err(Failure::invalid)?;
            words
                .iter()
                .map(|word| word.display().to_string())
                .collect()
        }
    };
    own.extend(attached.args.iter().cloned());
    let words = match words {
        [] => own,
        words => words
            .iter()
            .flat_map(|word| {
                if word == "{}" {
                    own.clone()
                } else {
                    vec![word.clone()]
                }
            })
            .collect(),
    };
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .current_dir(&attached.folder)
        .envs(&attached.env)
        .envs(attached.program.environment());
    command.env_remove(CONTROL_FD_VARIABLE);
    if let Some(path) = nervure_keeper::python_path(&attached.env) {
        command.env("PYTHONPATH", path);
    }
    nervure_keeper::hang_up_with_parent(&mut command);
    Ok(command)
}

/// Runs the command in this terminal. Ctrl-C goes to the command alone; SIGTERM and SIGHUP are
/// forwarded.
fn run(
    command: &mut Command,
    environment: &[(&str, String)],
    signals: &mut Signals,
) -> Result<ExitStatus, Failure> {
    let failed = |what: String| move |error: std::io::Error| Failure::invalid(what).because(error);
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child: Child = command
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .spawn()
        .map_err(failed(format!("cannot start `{name}`")))?;
    loop {
        if let Some(status) = child
            .try_wait()
            .map_err(failed(format!("cannot wait for `{name}`")))?
        {
            return Ok(status);
        }
        for signal in signals.wait() {
            // The terminal sends SIGINT and SIGQUIT to both.
            let passed_on = match signal {
                SIGTERM => Signal::TERM,
                SIGHUP => Signal::HUP,
                _ => continue,
            };
            let _ = rustix::process::kill_process(Pid::from_child(&child), passed_on);
        }
    }
}

/// Waits until the node's own program is started again. False if the dataflow has ended.
///
/// # Errors
/// If the program cannot be started.
fn wait_for_restart(state: &mut State, node: &str, before: Option<u32>) -> Result<bool, Failure> {
    loop {
        let Some(found) = state.node(node) else {
            return Ok(false);
        };
        if found.incarnation() != before {
            return Ok(true);
        }
        let ended = found
            .ended
            .as_ref()
            .filter(|ended| ended.cause == EndCause::NotStarted);
        if let Some(ended) = ended {
            return Err(Failure::internal(format!("node `{node}` {}", ended.reason)));
        }
        if state.is_finished
            || state
                .follow_one(Instant::now() + REPORT_INTERVAL)?
                .is_none()
        {
            return Ok(false);
        }
    }
}

/// Follows the dataflow until `holds` is true.
fn wait_until(
    state: &mut State,
    node: &str,
    what: &str,
    mut holds: impl FnMut(&State) -> bool,
) -> Result<(), Failure> {
    while !holds(state) {
        match state.follow_one(Instant::now() + REPORT_INTERVAL)? {
            Some(true) => {}
            Some(false) => note!("waiting for node `{node}` to {what}"),
            None => return Err(Failure::internal("the dataflow has ended")),
        }
    }
    Ok(())
}
