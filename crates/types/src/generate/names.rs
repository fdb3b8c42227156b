//! The names of types in generated code, and their errors.

use std::sync::Arc;

use crate::definition::Definition;

/// Why no code can be generated for a type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// Two types would have one name.
    #[error("`{first}` and `{second}` would both be named `{name}`: generate them into two files")]
    SameName {
        /// The first type.
        first: String,
        /// The second type.
        second: String,
        /// The name of both.
        name: String,
    },
    /// A field or constant has a name that the language reserves.
    #[error(
        "{type_name}: `{name}` is a word of {language}, and cannot be the name of a field or constant"
    )]
    Reserved {
        /// The type.
        type_name: String,
        /// The name.
        name: String,
        /// The language.
        language: &'static str,
    },
}

/// Standard types that other types contain: Nervure has the code of these.
pub(super) struct Imports<'a>(pub(super) Vec<&'a Arc<Definition>>);

impl Imports<'_> {
    /// The names, sorted.
    pub(super) fn names(&self) -> String {
        let mut names: Vec<&str> = self.0.iter().map(|known| simple_name(known)).collect();
        names.sort_unstable();
        names.join(", ")
    }
}

/// The name without its namespace.
pub(super) fn simple_name(definition: &Definition) -> &str {
    definition.name.rsplit('/').next().unwrap_or_default()
}

/// Refuses names of fields and constants that a language reserves.
pub(super) fn refuse_reserved(
    definition: &Definition,
    language: &'static str,
    reserved: &[&str],
) -> Result<(), GenerateError> {
    let fields = definition.fields.iter().map(|field| &field.name);
    let constants = definition.constants.iter().map(|constant| &constant.name);
    match fields
        .chain(constants)
        .find(|name| reserved.contains(&name.as_str()))
    {
        None => Ok(()),
        Some(name) => Err(GenerateError::Reserved {
            type_name: definition.name.clone(),
            name: name.clone(),
            language,
        }),
    }
}
