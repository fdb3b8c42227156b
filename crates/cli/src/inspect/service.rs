//! `nervure service`: lists services, and sends requests to them.

use std::{process::ExitCode, time::Duration};

use nervure_dataflow::plain_value;
use nervure_inspect::{State, answers, answers::Services, services::Call};
use nervure_node::{Sample, message::JsonSample};
use serde_json::{Value, json};

use super::{
    arguments::{ServiceAction, ServiceArguments, Target},
    exit_code,
    value::{self, Limits},
};
use crate::{
    failure::Failure,
    output::{self, plain_text},
    table::{Align, Table},
};

/// Runs a subcommand of `nervure service`.
pub fn service(arguments: &ServiceArguments) -> Result<ExitCode, Failure> {
    match &arguments.action {
        ServiceAction::List(target) => list(target),
        ServiceAction::Call {
            service,
            value,
            target,
            timeout,
        } => call(service, value.as_deref(), target, *timeout),
    }
}

fn list(target: &Target) -> Result<ExitCode, Failure> {
    let state = State::find(target.dataflow.as_deref(), "service-list", false)?;
    let listed = Services::of(&state);
    if target.json {
        output::write(&answers::line(&listed))?;
        return Ok(exit_code(&state));
    }
    if listed.services.is_empty() {
        note!("no node has services; declare them in `services` of the dataflow file");
        return Ok(exit_code(&state));
    }
    let mut table = Table::new(&[
        ("service", Align::Left),
        ("node", Align::Left),
        ("clients", Align::Left),
    ]);
    for service in listed.services {
        let clients = match service.clients.is_empty() {
            true => "-".to_owned(),
            false => service.clients.join(", "),
        };
        table.row(vec![service.service, service.state, clients]);
    }
    output::write(&table.render(None))?;
    Ok(exit_code(&state))
}

fn call(
    service: &str,
    value: Option<&str>,
    target: &Target,
    timeout: Duration,
) -> Result<ExitCode, Failure> {
    let value = value.map_or(Ok(Value::Null), read_value)?;
    JsonSample::new(&value)
        .map_err(|error| Failure::invalid("the value cannot be sent").because(error))?;
    let mut call = Call::send(service, target.dataflow.as_deref(), value, "service")?;
    let answer = call.answer(Some(timeout))?;
    output::write(&shown(service, &answer, target.json)?)?;
    Ok(ExitCode::SUCCESS)
}

/// A value of a command line.
pub fn read_value(text: &str) -> Result<Value, Failure> {
    plain_value(text).ok_or_else(|| {
        let text = format!("the value `{text}` is not valid YAML");
        Failure::invalid(text).hint("quote text: `'\"..\"'`")
    })
}

/// An answer as a line of text, or of JSON.
fn shown(service: &str, answer: &Sample, as_json: bool) -> Result<String, Failure> {
    let value = value::shown(answer, Limits::NONE)
        .map_err(|error| Failure::internal("the answer cannot be read").because(error))?;
    Ok(match as_json {
        true => answers::line(&json!({"service": service, "value": value.json()})),
        false => format!("{}\n", plain_text(&value.to_string())),
    })
}
