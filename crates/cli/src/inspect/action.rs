//! `nervure action`: lists actions, and sends goals to them.

use std::{
    io,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nervure_inspect::{
    Error, State,
    answers::{self, Actions},
    services::{Call, Kind, Progress},
};
use nervure_node::{GoalState, Sample};
use serde_json::{Value, json};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

use super::{
    arguments::{ActionArguments, ActionOrder, Target},
    exit_code,
    service::{sendable, table},
    value::{self, Limits},
};
use crate::{
    failure::{Failure, IMPERFECT},
    output::{self, plain_text},
};

/// Time for the node to end a goal that was cancelled because of its time limit.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// Interval between looks for Ctrl-C.
const INTERRUPT_CHECK: Duration = Duration::from_millis(100);

/// Runs a subcommand of `nervure action`.
pub fn action(arguments: &ActionArguments) -> Result<ExitCode, Failure> {
    match &arguments.order {
        ActionOrder::List(target) => list(target),
        ActionOrder::Send {
            action,
            goal,
            target,
            timeout,
        } => send(action, goal.as_deref(), target, *timeout),
    }
}

fn list(target: &Target) -> Result<ExitCode, Failure> {
    let state = State::find(target.dataflow.as_deref(), "action-list", false)?;
    let listed = Actions::of(&state);
    if target.json {
        output::write(&answers::line(&listed))?;
        return Ok(exit_code(&state));
    }
    if listed.actions.is_empty() {
        note!("no node has actions; declare them in `actions` of the dataflow file");
        return Ok(exit_code(&state));
    }
    output::write(&table("action", listed.actions).render(None))?;
    Ok(exit_code(&state))
}

fn send(
    action: &str,
    goal: Option<&str>,
    target: &Target,
    timeout: Option<Duration>,
) -> Result<ExitCode, Failure> {
    let goal = sendable(goal)?;
    let is_interrupted = watch_for_interrupts()
        .map_err(|error| Failure::internal("cannot watch for Ctrl-C").because(error))?;
    let dataflow = target.dataflow.as_deref();
    let mut call = Call::send(Kind::Action, action, dataflow, goal, timeout, "action")?;
    let deadline = timeout.map(|timeout| Instant::now() + timeout + CANCEL_GRACE);
    let show = |state: GoalState, sample: Option<&Sample>| {
        output::write_or_end(&shown(action, state, sample, target.json)?)
    };
    let mut was_cancelled = false;
    loop {
        if is_interrupted.load(Ordering::SeqCst) && !was_cancelled {
            was_cancelled = true;
            note!("cancelling the goal; a second Ctrl-C ends this command");
            call.cancel()?;
        }
        match call.next_until(Instant::now() + INTERRUPT_CHECK) {
            Ok(Some(Progress::State(state))) => show(state, None)?,
            Ok(Some(Progress::Feedback(sample))) => show(GoalState::Executing, Some(&sample))?,
            Ok(Some(Progress::Answer(sample))) => {
                show(GoalState::Succeeded, Some(&sample))?;
                return Ok(ExitCode::SUCCESS);
            }
            Ok(None) => {}
            Err(Error::GoalCanceled { .. }) => {
                show(GoalState::Canceled, None)?;
                return Ok(ExitCode::from(IMPERFECT));
            }
            Err(error) => {
                if let Error::ServiceFailed { .. } = error {
                    show(GoalState::Aborted, None)?;
                }
                return Err(error.into());
            }
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Error::NoAnswer {
                service: action.to_owned(),
                timeout: timeout.unwrap_or_default() + CANCEL_GRACE,
            }
            .into());
        }
    }
}

/// Set by the first Ctrl-C or SIGTERM. The second ends the process.
fn watch_for_interrupts() -> io::Result<Arc<AtomicBool>> {
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 128 + signal, is_interrupted.clone())?;
        flag::register(signal, is_interrupted.clone())?;
    }
    Ok(is_interrupted)
}

/// A change of state, feedback or the result, as a line of text, or of JSON.
fn shown(
    action: &str,
    state: GoalState,
    sample: Option<&Sample>,
    as_json: bool,
) -> Result<String, Failure> {
    let value = sample.map(|sample| value::shown(sample, Limits::NONE));
    let value = value
        .transpose()
        .map_err(|error| Failure::internal("the answer cannot be read").because(error))?;
    Ok(match (as_json, value) {
        (true, value) => {
            let value = value.map_or(Value::Null, |value| value.json());
            let status = state as u8;
            answers::line(
                &json!({"action": action, "state": state.name(), "status": status, "value": value}),
            )
        }
        (false, Some(value)) => format!("{state} {}\n", plain_text(&value.to_string())),
        (false, None) => format!("{state}\n"),
    })
}
