//! Reads the requests that a node answers and makes: `services` and `clients`.

use super::map::{Keys, duplicate_name, read_entries};
use super::reader::{Reader, wrong_type};
use crate::diagnostic::{Code, Finding};
use crate::keys::Shape;
use crate::parsed::ParsedClient;
use crate::quote::quoted;
use crate::tree::{Kind, Text, Value};

/// The services, and whether all of them could be read.
pub(super) fn read_services(reader: &mut Reader<'_>, node: &Keys<'_>) -> (Vec<Text>, bool) {
    let errors_before = reader.errors();
    let mut services: Vec<Text> = Vec::new();
    let Some(value) = node.value_if_any("services") else {
        return (services, true);
    };
    let Kind::List(items) = &value.kind else {
        let finding = wrong_type(value, Shape::Names.describe());
        reader.report(match &value.kind {
            Kind::Text(name) => finding.hint(format!("write `[{name}]`")),
            _ => finding,
        });
        return (services, false);
    };
    for item in items {
        let Some(name) = reader.name(item, "service") else {
            continue;
        };
        match services.iter().find(|other| other.text == name.text) {
            Some(first) => {
                let (code, first) = (Code::DuplicateKey, first.span);
                reader.report(duplicate_name(code, "service", &name, first));
            }
            None => services.push(name),
        }
    }
    (services, reader.errors() == errors_before)
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
