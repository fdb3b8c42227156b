//! Source code of types for programs: classes of Python, structs of Rust and C++.
//!
//! A type comes after the types of its fields. Each is named by the last part of its name, so that
//! `std/Imu@1` is `Imu`.

mod cpp;
mod names;
mod python;
mod rust;
mod text;

use std::sync::Arc;

pub use self::names::GenerateError;

use self::names::{Imports, simple_name};
use crate::definition::{Definition, Kind};
use crate::standard::standard;

/// A language for which code is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Dataclasses.
    Python,
    /// Structs with serde.
    Rust,
    /// Structs of C++17 that `nervure.hpp` reads and writes.
    Cpp,
}

/// Generates code for types and the types of their fields. Standard types are imported, unless all
/// given types are standard ones.
///
/// # Errors
/// [`GenerateError`].
pub fn generate(language: Language, types: &[Arc<Definition>]) -> Result<String, GenerateError> {
    let mut all = Vec::new();
    for definition in types {
        add(&mut all, definition);
    }
    for (at, second) in all.iter().enumerate() {
        let is_same = |first: &&&Arc<Definition>| simple_name(first) == simple_name(second);
        if let Some(first) = all[..at].iter().find(is_same) {
            return Err(GenerateError::SameName {
                first: first.name.clone(),
                second: second.name.clone(),
                name: simple_name(second).to_owned(),
            });
        }
    }
    let (standard, own): (Vec<_>, Vec<_>) = all.into_iter().partition(|known| is_standard(known));
    let (own, imported) = match own.is_empty() {
        true => (standard, Vec::new()),
        false => (own, standard),
    };
    let imports = Imports(imported);
    match language {
        Language::Python => python::module(&own, &imports),
        Language::Rust => Ok(rust::module(&own, &imports)),
        Language::Cpp => cpp::header(&own, &imports),
    }
}

/// Adds a type after the types of its fields.
fn add<'a>(all: &mut Vec<&'a Arc<Definition>>, definition: &'a Arc<Definition>) {
    if all.iter().any(|known| known.name == definition.name) {
        return;
    }
    for field in &definition.fields {
        if let Some(message) = message_of(&field.kind) {
            add(all, message);
        }
    }
    all.push(definition);
}

/// The message in a field, alone or in lists.
fn message_of(kind: &Kind) -> Option<&Arc<Definition>> {
    match kind {
        Kind::Message(message) => Some(message),
        Kind::Array(item, _) | Kind::Sequence(item, _) => message_of(item),
        Kind::Bool | Kind::Number(_) | Kind::Text(_) => None,
    }
}

fn is_standard(definition: &Definition) -> bool {
    standard().has(&definition.name)
}

#[cfg(test)]
mod tests;
