//! `nervure types`: the standard types, the messages of ROS 2, and those of files.

mod find;
mod generate;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use clap_complete::{ArgValueCompleter, PathCompleter};
use nervure_types::{Definition, Field, humble, standard_names, standard_type};
use serde_json::{Value, json};

use crate::{
    failure::Failure,
    output,
    table::{Align, Table},
};

#[derive(Debug, Args)]
pub struct TypesArguments {
    #[command(subcommand)]
    command: TypesCommand,
}

#[derive(Debug, Subcommand)]
enum TypesCommand {
    /// List the standard types, or those of `.msg` files.
    List {
        /// Folders with `NAMESPACE/Name.msg`, and `.msg` files, instead of the standard types.
        #[arg(value_name = "FOLDER|FILE.msg", add = ArgValueCompleter::new(PathCompleter::any()))]
        types: Vec<String>,
        /// Write one JSON value to stdout.
        #[arg(long)]
        json: bool,
    },
    /// Show the fields of a type.
    Show {
        /// A standard type such as `std/Imu@1`, a message of ROS 2 such as `sensor_msgs/Imu`, or a `.msg` file.
        #[arg(value_name = "TYPE|FILE.msg", add = ArgValueCompleter::new(PathCompleter::file()))]
        name: String,
        /// Write one JSON value to stdout.
        #[arg(long)]
        json: bool,
    },
    /// Generate classes or structs for programs from definitions.
    Generate(generate::GenerateArguments),
}

pub fn types(arguments: &TypesArguments) -> Result<ExitCode, Failure> {
    match &arguments.command {
        TypesCommand::List { types, json } => list(types, *json)?,
        TypesCommand::Show { name, json } => show(name, *json)?,
        TypesCommand::Generate(arguments) => generate::run(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(types: &[String], as_json: bool) -> Result<(), Failure> {
    let all = match types.is_empty() {
        true => standard_names()
            .filter_map(|name| Some((name.to_string(), standard_type(&name)?)))
            .collect(),
        false => find::find_all(types, None)?,
    };
    if as_json {
        let types: Vec<Value> = all
            .into_iter()
            .map(|(name, definition)| json!({"name": name, "comment": definition.comment}))
            .collect();
        return output::write(&format!("{}\n", Value::from(types)));
    }
    let mut table = Table::new(&[("type", Align::Left), ("", Align::Left)]);
    for (name, definition) in all {
        table.row(vec![name, first_sentence(&definition.comment).to_owned()]);
    }
    output::write(&table.render(None))
}

fn show(name: &str, as_json: bool) -> Result<(), Failure> {
    let found = find::find_all(&[name.to_owned()], None)?;
    let [(name, definition)] = &found[..] else {
        let text = format!("`{name}` is a folder with {} types", found.len());
        let hint = format!("`nervure types list {name}` lists them");
        return Err(Failure::invalid(text).hint(hint));
    };
    if as_json {
        return output::write(&format!("{}\n", described(name, definition)));
    }
    output::write(&printed(name, definition))
}

fn printed(name: &str, definition: &Definition) -> String {
    let mut text = format!("{name}\n");
    if !definition.comment.is_empty() {
        text += &format!("{}\n", definition.comment);
    }
    text.push('\n');
    let columns = ["field", "type", "unit", ""].map(|column| (column, Align::Left));
    let mut table = Table::new(&columns);
    for field in &definition.fields {
        let mark = if field.is_optional { "?" } else { "" };
        let unit = field.unit().unwrap_or_default().to_owned();
        let note = note(definition, field);
        table.row(vec![
            format!("{}{mark}", field.name),
            field.kind.to_string(),
            unit,
            note,
        ]);
    }
    text += &table.render(None);
    if !definition.constants.is_empty() {
        let mut table = Table::new(&["constant", "value", ""].map(|column| (column, Align::Left)));
        for constant in &definition.constants {
            let comment = constant.comment.replace('\n', " ");
            table.row(vec![
                constant.name.clone(),
                constant.value.to_string(),
                comment,
            ]);
        }
        text += &format!("\n{}", table.render(None));
    }
    let facts = &definition.facts;
    for (whose, message) in [("ROS 2", &facts.ros), ("Foxglove", &facts.foxglove)] {
        if let Some(message) = message {
            text += &format!("\n{whose}: {message}");
        }
    }
    format!("{}\n", text.trim_end())
}

/// The comment of a field, its tensors, and its place unless that is the record.
fn note(definition: &Definition, field: &Field) -> String {
    let mut parts = vec![field.description().replace('\n', " ")];
    parts.extend(
        field
            .default
            .iter()
            .map(|default| format!("{default} by default")),
    );
    parts.extend(field.tensors.iter().map(|rule| format!("tensor: {rule}")));
    match definition.payload() {
        Some(payload) if payload.name == field.name => parts.push("the payload".to_owned()),
        Some(_) => parts.push("in the metadata".to_owned()),
        None => {}
    }
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

fn described(name: &str, definition: &Definition) -> Value {
    let field = |field: &Field| {
        let tensors: Vec<String> = field.tensors.iter().map(ToString::to_string).collect();
        json!({
            "name": field.name,
            "type": field.kind.to_string(),
            "unit": field.unit(),
            "comment": field.description(),
            "optional": field.is_optional,
            "default": field.default.as_ref().map(ToString::to_string),
            "enum": field.enumeration,
            "tensors": tensors,
        })
    };
    let constants = definition.constants.iter().map(|constant| {
        json!({
            "name": constant.name,
            "type": constant.kind,
            "value": constant.value.to_string(),
            "comment": constant.comment,
        })
    });
    json!({
        "name": name,
        "comment": definition.comment,
        "ros": definition.facts.ros,
        "ros_hash": hash_of(definition),
        "foxglove": definition.facts.foxglove,
        "payload": definition.facts.payload,
        "fields": definition.fields.iter().map(field).collect::<Vec<_>>(),
        "constants": constants.collect::<Vec<_>>(),
    })
}

/// The hash by which ROS 2 compares the message of this name: of the type itself, or of the one that it
/// corresponds to.
fn hash_of(definition: &Definition) -> Option<String> {
    let name = definition.facts.ros.as_ref().unwrap_or(&definition.name);
    if !humble().has(name) {
        return None;
    }
    #[cfg(feature = "fleet")]
    return nervure_types::rihs01(
        &*nervure_types::Library::new(&[humble()])
            .definition(name)
            .ok()?,
    );
    #[cfg(not(feature = "fleet"))]
    None
}

fn first_sentence(text: &str) -> &str {
    text.split_once(". ")
        .map_or(text, |(first, _)| first)
        .trim_end_matches('.')
}
