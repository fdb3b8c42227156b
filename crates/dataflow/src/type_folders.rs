//! The lookup of declared types in folders beside a file, and in those of the file that includes it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use nervure_protocol::nearest;
use nervure_types::{Definition, DefinitionError, Place};

use crate::diagnostic::{Code, Finding, Findings, ModuleFindings};
use crate::name::TypeName;
use crate::quote::quoted;
use crate::source::{SourceText, Span};
use crate::tree::Text;
use crate::type_files::{TypeFileError, TypeFiles};

/// The definitions of a file, and those of the file that includes it.
#[derive(Default)]
pub(crate) struct TypeFolders {
    pub files: TypeFiles,
    outer: Option<Rc<TypeFolders>>,
    /// Types that were looked up; `None` if they have errors.
    found: RefCell<HashMap<String, Option<DefinedType>>>,
}

/// A type with a definition of its own.
#[derive(Debug, Clone)]
pub(crate) struct DefinedType {
    pub definition: Arc<Definition>,
    /// The file with the definition, for messages.
    pub file: Arc<str>,
}

/// Why a declared type has no definition that can be used.
pub(crate) enum TypeError {
    /// It is declared wrongly.
    Declared(Box<Finding>),
    /// Its definition has errors.
    Defined(ModuleFindings),
    /// Its definition has errors, which an earlier lookup returned.
    Known,
}

impl TypeFolders {
    /// No definitions but those of the file that includes this one.
    pub fn within(outer: Rc<TypeFolders>) -> Self {
        Self {
            outer: Some(outer),
            ..Self::default()
        }
    }

    /// The definition of a declared type, or `None` for a mere name: a type without a version, or of a
    /// namespace that no folder defines.
    ///
    /// # Errors
    /// If there is no such type, or its definition has errors.
    pub fn find(&self, text: &Text, declared: &TypeName) -> Result<Option<DefinedType>, TypeError> {
        let name = declared.name();
        let namespace = name.split('/').next().unwrap_or_default();
        let Some(version) = declared.version() else {
            return Ok(None);
        };
        if self.files.names_of(namespace).next().is_none() {
            return match &self.outer {
                Some(outer) => outer.find(text, declared),
                None => Ok(None),
            };
        }
        let Some(file) = self.files.file(name) else {
            let finding = self.unknown(text, declared, namespace);
            return Err(TypeError::Declared(Box::new(finding)));
        };
        let known = self.found.borrow().get(name).cloned();
        let found = match known {
            Some(known) => known.ok_or(TypeError::Known)?,
            None => self.define(name, file).map_err(TypeError::Defined)?,
        };
        let has = found.definition.version();
        if has != version {
            let message = format!("{file} defines version {has} of `{name}`");
            let finding = Finding::error(Code::UnknownType, text.span, message);
            let fix = found.definition.versioned_name();
            let finding = finding.nearest(Some(&fix), || None);
            return Err(TypeError::Declared(Box::new(finding)));
        }
        Ok(Some(found))
    }

    fn unknown(&self, text: &Text, declared: &TypeName, namespace: &str) -> Finding {
        let near = nearest(declared.name(), self.files.names_of(namespace));
        let version = declared.version().unwrap_or(1);
        let near = near.map(|near| format!("{near}@{version}"));
        let message = format!("there is no type {}", quoted(&declared.to_string()));
        Finding::error(Code::UnknownType, text.span, message)
            .expected(format!(
                "a type that the folders of `types` define in `{namespace}/`"
            ))
            .nearest(near.as_deref(), || None)
    }

    /// Reads the definition of a type of these files.
    fn define(&self, name: &str, file: &Arc<str>) -> Result<DefinedType, ModuleFindings> {
        let definition = self.files.definition(name, &self.outer_files());
        let found = definition.map(|definition| DefinedType {
            definition,
            file: file.clone(),
        });
        let known = found.as_ref().ok().cloned();
        self.found.borrow_mut().insert(name.to_owned(), known);
        found.map_err(|error| self.findings(&error))
    }

    fn outer_files(&self) -> Vec<&TypeFiles> {
        let outer =
            std::iter::successors(self.outer.as_deref(), |folders| folders.outer.as_deref());
        outer.map(|folders| &folders.files).collect()
    }

    /// An error at its place in the files.
    pub fn findings(&self, error: &TypeFileError) -> ModuleFindings {
        let source = |file: &str| {
            let outer = self.outer_files();
            let mut all = std::iter::once(&self.files).chain(outer);
            all.find_map(|files| files.source(file))
        };
        let empty = SourceText::new(&*error.file, "");
        let (source, finding) = match &error.error {
            DefinitionError::Syntax(error) => {
                let source = source(&error.place.source).unwrap_or(&empty);
                let span = span_of(source.text(), &error.place, &error.found);
                let message = format!("{} does not belong here", quoted(&error.found));
                let mut finding = Finding::error(Code::InvalidType, span, message);
                finding.hint.clone_from(&error.hint);
                (source, finding.expected(&error.expected))
            }
            other => {
                let finding = Finding::without_span(Code::InvalidType, other.to_string());
                (source(&error.file).unwrap_or(&empty), finding)
            }
        };
        let mut findings = Findings::new(source);
        findings.push(finding);
        findings.into_module()
    }
}

/// The place of `found` in a text.
fn span_of(text: &str, place: &Place, found: &str) -> Span {
    let mut lines = text.split_inclusive('\n');
    let before: usize = lines.by_ref().take(place.line - 1).map(str::len).sum();
    let line = lines.next().unwrap_or_default();
    let column = line.char_indices().nth(place.column - 1);
    let start = column.map_or(line.trim_end().len(), |(at, _)| at);
    // A type without its namespace is found with it.
    let written = [found, found.rsplit('/').next().unwrap_or_default()];
    let mut written = written
        .iter()
        .filter(|text| line[start..].starts_with(**text));
    let length = written.next().map_or(0, |text| text.len());
    let start = before + start;
    Span {
        start,
        end: start + length,
    }
}
