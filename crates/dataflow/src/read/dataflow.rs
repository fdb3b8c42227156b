//! Reads the keys of the dataflow itself.

use std::collections::BTreeMap;
use std::path::Path;

use super::environment::read_environment;
use super::log_outputs::add_log_outputs;
use super::machines::{Machines, read_machines};
use super::map::read_keys;
use super::module::{node_list, read_nodes};
use super::node::Host;
use super::program::ProgramLocator;
use super::reader::Reader;
use super::transforms::read_static_transforms;
use super::type_folders::read_type_folders;
use super::variables::Variables;
use crate::diagnostic::{Code, Finding};
use crate::keys::{DATAFLOW, FORMAT_VERSION};
use crate::parsed::ParsedDataflow;
use crate::surroundings::Surroundings;
use crate::tree::{Kind, Value};

/// The dataflow in `tree`, or `None` if it is not even a map. `directory` is the folder of the
/// file.
pub(crate) fn read_dataflow(
    reader: &mut Reader<'_>,
    tree: &Value,
    directory: &Path,
    surroundings: &dyn Surroundings,
) -> Option<ParsedDataflow> {
    let hint = match tree.kind {
        Kind::List(_) => Some("write `nodes:` above the list of nodes"),
        _ => Some("a dataflow file begins with `nodes:`"),
    };
    let keys = read_keys(reader, tree, &DATAFLOW, hint)?;
    if let Some(version) = keys.value("nervure") {
        check_format_version(reader, version);
    }
    let name = keys
        .value("name")
        .and_then(|value| reader.name(value, "name of the dataflow"));
    if let Some(value) = keys.value("types") {
        read_type_folders(reader, value, directory, surroundings);
    }
    let nodes = keys
        .value("nodes")
        .map_or(&[][..], |value| node_list(reader, value));
    let host = Host {
        variables: Variables {
            surroundings,
            params: BTreeMap::new(),
        },
        programs: ProgramLocator {
            directory: directory.into(),
            surroundings,
            builder: nodes.iter().find_map(id_of_builder),
        },
    };
    let env = keys
        .value_if_any("env")
        .map(|value| read_environment(reader, &host.variables, value))
        .unwrap_or_default();
    let mut nodes = read_nodes(reader, &host, nodes, 0).nodes;
    add_log_outputs(reader, &mut nodes);
    let errors_before = reader.errors();
    let Machines {
        roles: machines,
        labels,
        resources,
    } = keys
        .value("machines")
        .map(|value| read_machines(reader, value))
        .unwrap_or_default();
    let machines_complete = reader.errors() == errors_before;
    let static_transforms = keys
        .value_if_any("static_transforms")
        .map(|value| read_static_transforms(reader, value))
        .unwrap_or_default();
    let strict_types = keys
        .value("strict_types")
        .and_then(|value| reader.boolean(value));
    Some(ParsedDataflow {
        name,
        env,
        nodes,
        machines,
        labels,
        resources,
        machines_complete,
        static_transforms,
        strict_types: strict_types.unwrap_or(false),
    })
}

fn check_format_version(reader: &mut Reader<'_>, value: &Value) {
    let finding = match value.kind {
        Kind::Integer(FORMAT_VERSION, _) => return,
        Kind::Integer(version, _) if version > FORMAT_VERSION => {
            let message = format!("the file is written for version {version} of the format");
            Finding::error(Code::UnsupportedVersion, value.span, message)
                .hint("a newer Nervure reads it; this one reads version 1")
        }
        _ => {
            let message = "there is no such version of the format";
            Finding::error(Code::UnsupportedVersion, value.span, message)
                .hint("write `nervure: 1`, or leave the key out")
        }
    };
    reader.report(finding.expected(FORMAT_VERSION.to_string()));
}

/// The id of `node`, if it has a `build`.
fn id_of_builder(node: &Value) -> Option<String> {
    let Kind::Map(entries) = &node.kind else {
        return None;
    };
    let value = |key: &str| {
        entries
            .iter()
            .find(|entry| entry.key.text == key)
            .map(|entry| &entry.value.kind)
    };
    match (value("build")?, value("id")?) {
        (Kind::Text(_), Kind::Text(id)) => Some(id.clone()),
        _ => None,
    }
}
