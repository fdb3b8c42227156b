//! Reads the requests that a node answers and makes: `services` and `clients`.

use crate::diagnostic::{Code, Finding};
use crate::keys::Shape;
use crate::parsed::ParsedClient;
use crate::quote::quoted;
use crate::reader::{Keys, Reader};
use crate::tree::{Kind, Text, Value};

impl Reader<'_> {
    /// The services, and whether they are all that the file wants to have.
    pub fn services(&mut self, node: &Keys<'_>) -> (Vec<Text>, bool) {
        let errors_before = self.findings.errors();
        let mut services: Vec<Text> = Vec::new();
        if let Some(entry) = node.get_some("services") {
            let Kind::List(items) = &entry.value.kind else {
                let finding = self.wrong_type(&entry.value, &Shape::Names.describe());
                self.findings.push(match &entry.value.kind {
                    Kind::Text(name) => finding.hint(format!("write `[{name}]`")),
                    _ => finding,
                });
                return (services, false);
            };
            for item in items {
                let Some(name) = self.name(item, "service") else {
                    continue;
                };
                if let Some(first) = services.iter().find(|other| other.text == name.text) {
                    let message = format!("the service {} is there twice", quoted(&name.text));
                    let finding = Finding::error(Code::DuplicateKey, name.span, message)
                        .hint("remove or rename one of them")
                        .related(first.span, "first here");
                    self.findings.push(finding);
                    continue;
                }
                services.push(name);
            }
        }
        (services, self.findings.errors() == errors_before)
    }

    pub fn clients(&mut self, value: &Value) -> Vec<ParsedClient> {
        let entries = self
            .entries(value, Shape::Clients, Code::DuplicateKey, "client")
            .unwrap_or_default();
        let mut clients = Vec::new();
        for entry in entries {
            let is_named = self.check_name(&entry.key, "client");
            let Some(text) = self.text(&entry.value, Shape::Clients) else {
                continue;
            };
            let part = |text: &str| Text {
                span: entry.value.span,
                text: text.to_owned(),
            };
            match text.text.split_once('/') {
                Some((server, service))
                    if !server.is_empty() && !service.is_empty() && is_named =>
                {
                    let (server, service) = (part(server), part(service));
                    clients.push(ParsedClient {
                        name: entry.key.clone(),
                        server,
                        service,
                    });
                }
                Some((server, service)) if !server.is_empty() && !service.is_empty() => {}
                _ => {
                    let message = format!("{} names no service of a node", quoted(&text.text));
                    let finding = Finding::error(Code::InvalidSource, text.span, message)
                        .expected("`node/service`");
                    self.findings.push(finding);
                }
            }
        }
        clients
    }
}
