//! `nervure service`: lists services, and sends requests to them.

use std::{process::ExitCode, time::Duration};

use nervure_dataflow::plain_value;
use nervure_inspect::{
    State,
    answers::{self, ListedService, Services},
    services::{Call, Kind},
};
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
    output::write(&table("service", listed.services).render(None))?;
    Ok(exit_code(&state))
}

/// A table of services or actions.
pub fn table(noun: &str, listed: Vec<ListedService>) -> Table {
    let has_policy = listed.iter().any(|service| service.new_goal.is_some());
    let mut columns = vec![(noun, Align::Left), ("node", Align::Left)];
    columns.extend(has_policy.then_some(("new goal", Align::Left)));
    columns.push(("clients", Align::Left));
    let mut table = Table::new(&columns);
    for service in listed {
        let clients = match service.clients.is_empty() {
            true => "-".to_owned(),
            false => service.clients.join(", "),
        };
        let policy = service.new_goal.map(str::to_owned);
        let cells = [service.service, service.state].into_iter();
        table.row(cells.chain(policy).chain([clients]).collect());
    }
    table
}

fn call(
    service: &str,
    value: Option<&str>,
    target: &Target,
    timeout: Duration,
) -> Result<ExitCode, Failure> {
    let value = sendable(value)?;
    let dataflow = target.dataflow.as_deref();
    let mut call = Call::send(Kind::Service, service, dataflow, value, None, "service")?;
    let answer = call.answer(timeout)?;
    output::write(&shown(service, &answer, target.json)?)?;
    Ok(ExitCode::SUCCESS)
}

/// A value of a command line that can be a request; null without one.
pub fn sendable(text: Option<&str>) -> Result<Value, Failure> {
    let value = text.map_or(Ok(Value::Null), read_value)?;
    JsonSample::new(&value)
        .map_err(|error| Failure::invalid("the value cannot be sent").because(error))?;
    Ok(value)
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
