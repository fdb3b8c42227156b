//! Reads the requests that a node answers and makes: `services`, `actions` and `clients`.

use nervure_protocol::wiring::NewGoal;

use super::map::{Keys, duplicate_name, read_entries, read_keys};
use super::reader::{Reader, wrong_type};
use crate::diagnostic::{Code, Finding};
use crate::keys::{ACTION, NEW_GOAL, Shape};
use crate::parsed::{ParsedClient, ParsedService};
use crate::quote::quoted;
use crate::tree::{Entry, Kind, Text, Value};

/// The services and actions, and whether all of them could be read.
pub(super) fn read_services(
    reader: &mut Reader<'_>,
    node: &Keys<'_>,
) -> (Vec<ParsedService>, bool) {
    let errors_before = reader.errors();
    let mut services = Vec::new();
    if let Some(value) = node.value_if_any("services") {
        for name in read_names(reader, value, "service", Shape::Names) {
            add(reader, &mut services, ParsedService { name, action: None });
        }
    }
    if let Some(value) = node.value_if_any("actions") {
        for action in read_actions(reader, value) {
            add(reader, &mut services, action);
        }
    }
    (services, reader.errors() == errors_before)
}

fn add(reader: &mut Reader<'_>, services: &mut Vec<ParsedService>, new: ParsedService) {
    let is_same = |known: &&ParsedService| known.name.text == new.name.text;
    match services.iter().find(is_same) {
        Some(first) => {
            let (code, first) = (Code::DuplicateKey, first.name.span);
            let noun = match new.action {
                Some(_) => "action",
                None => "service",
            };
            reader.report(duplicate_name(code, noun, &new.name, first));
        }
        None => services.push(new),
    }
}

fn read_names(reader: &mut Reader<'_>, value: &Value, noun: &str, shape: Shape) -> Vec<Text> {
    let Kind::List(items) = &value.kind else {
        let finding = wrong_type(value, shape.describe());
        reader.report(match &value.kind {
            Kind::Text(name) => finding.hint(format!("write `[{name}]`")),
            _ => finding,
        });
        return Vec::new();
    };
    let names = items.iter().filter_map(|item| reader.name(item, noun));
    names.collect()
}

fn read_actions(reader: &mut Reader<'_>, value: &Value) -> Vec<ParsedService> {
    let Kind::Map(_) = value.kind else {
        let names = read_names(reader, value, "action", Shape::Actions);
        let action = Some(NewGoal::default());
        let actions = names.into_iter().map(|name| ParsedService { name, action });
        return actions.collect();
    };
    let code = Code::DuplicateKey;
    let entries = read_entries(reader, value, Shape::Actions, code, "action").unwrap_or_default();
    let mut actions = Vec::new();
    for Entry { key, value } in entries {
        let is_named = reader.check_name(key, "action");
        let new_goal = match value.kind {
            Kind::Null => Some(NewGoal::default()),
            _ => read_new_goal(reader, value),
        };
        if let (true, Some(new_goal)) = (is_named, new_goal) {
            actions.push(ParsedService {
                name: key.clone(),
                action: Some(new_goal),
            });
        }
    }
    actions
}

fn read_new_goal(reader: &mut Reader<'_>, value: &Value) -> Option<NewGoal> {
    let hint = "write `{new_goal: preempt}`, or `{}` for the default";
    let keys = read_keys(reader, value, &ACTION, Some(hint))?;
    let word = keys
        .value("new_goal")
        .and_then(|value| reader.one_of(value, NEW_GOAL));
    let mut all = NewGoal::ALL.into_iter();
    Some(
        all.find(|known| Some(known.name()) == word)
            .unwrap_or_default(),
    )
}

pub(super) fn read_clients(reader: &mut Reader<'_>, value: &Value) -> Vec<ParsedClient> {
    let entries = read_entries(reader, value, Shape::Clients, Code::DuplicateKey, "client")
        .unwrap_or_default();
    let mut clients = Vec::new();
    for entry in entries {
        let is_named = reader.check_name(&entry.key, "client");
        let Some(text) = reader.text(&entry.value, Shape::Clients) else {
            continue;
        };
        let Some((server, service)) = server_and_service(&text) else {
            let message = format!("{} names no service of a node", quoted(&text.text));
            let finding = Finding::error(Code::InvalidSource, text.span, message);
            reader.report(finding.expected("`node/service`"));
            continue;
        };
        if is_named {
            clients.push(ParsedClient {
                name: entry.key.clone(),
                server,
                service,
            });
        }
    }
    clients
}

/// The two parts of `node/service`.
fn server_and_service(text: &Text) -> Option<(Text, Text)> {
    let part = |part: &str| {
        (!part.is_empty()).then(|| Text {
            span: text.span,
            text: part.to_owned(),
        })
    };
    let (server, service) = text.text.split_once('/')?;
    Some((part(server)?, part(service)?))
}
