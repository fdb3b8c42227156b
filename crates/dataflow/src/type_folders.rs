//! Definitions of types in folders beside a file, and the lookup of declared types in them.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use nervure_protocol::nearest;
use nervure_types::{Definition, DefinitionError, Library, Place, Sections, humble, standard};

use crate::diagnostic::{Code, Finding, Findings, ModuleFindings};
use crate::name::TypeName;
use crate::quote::quoted;
use crate::source::{SourceText, Span};
use crate::tree::Text;

/// The definitions of a file, and those of the file that includes it.
#[derive(Default)]
pub(crate) struct TypeFolders {
    pub sections: Sections,
    pub namespaces: BTreeSet<String>,
    /// By the name that messages show.
    pub files: HashMap<String, SourceText>,
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
    Declared(Finding),
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
        let namespace = declared.name().split('/').next().unwrap_or_default();
        let Some(version) = declared.version() else {
            return Ok(None);
        };
        if !self.namespaces.contains(namespace) {
            return match &self.outer {
                Some(outer) => outer.find(text, declared),
                None => Ok(None),
            };
        }
        let name = declared.name();
        if !self.sections.has(name) {
            return Err(TypeError::Declared(self.unknown(text, declared, namespace)));
        }
        let known = self.found.borrow().get(name).cloned();
        let found = match known {
            Some(known) => known.ok_or(TypeError::Known)?,
            None => self.define(name).map_err(TypeError::Defined)?,
        };
        let has = found.definition.version();
        if has != version {
            let message = format!("{} defines version {has} of `{name}`", found.file);
            let finding = Finding::error(Code::UnknownType, text.span, message);
            let fix = format!("{name}@{has}");
            return Err(TypeError::Declared(finding.nearest(Some(&fix), || None)));
        }
        Ok(Some(found))
    }

    fn unknown(&self, text: &Text, declared: &TypeName, namespace: &str) -> Finding {
        let prefix = format!("{namespace}/");
        let names = self.sections.names();
        let names: Vec<&str> = names
            .into_iter()
            .filter_map(|name| name.strip_prefix(&prefix))
            .collect();
        let word = declared.name().strip_prefix(&prefix).unwrap_or_default();
        let near = nearest(word, names.iter().copied());
        let version = declared.version().unwrap_or(1);
        let near = near.map(|near| format!("{prefix}{near}@{version}"));
        let message = format!("there is no type {}", quoted(&declared.to_string()));
        Finding::error(Code::UnknownType, text.span, message)
            .expected(format!(
                "a type that the folders of `types` define in `{prefix}`"
            ))
            .nearest(near.as_deref(), || None)
    }

    /// Reads the definition of a type of `sections`.
    fn define(&self, name: &str) -> Result<DefinedType, ModuleFindings> {
        let mut sources = vec![&self.sections];
        let mut outer = self.outer.as_deref();
        while let Some(folders) = outer {
            sources.push(&folders.sections);
            outer = folders.outer.as_deref();
        }
        sources.extend([standard(), humble()]);
        let file = self.file_of(name);
        let found = match Library::new(&sources).definition(name) {
            Ok(definition) => Ok(DefinedType {
                file: file.into(),
                definition,
            }),
            Err(error) => Err(self.findings(&file, &error)),
        };
        let known = found.as_ref().ok().cloned();
        self.found.borrow_mut().insert(name.to_owned(), known);
        found
    }

    /// The file of a type, by the name that messages show.
    fn file_of(&self, name: &str) -> String {
        let (namespace, name) = name.split_once('/').unwrap_or_default();
        let ends = [
            Path::new(namespace).join(format!("{name}.msg")),
            Path::new(namespace).join(format!("msg/{name}.msg")),
        ];
        let is_of = |file: &&String| ends.iter().any(|end| Path::new(file).ends_with(end));
        self.files
            .keys()
            .filter(is_of)
            .min()
            .cloned()
            .unwrap_or_default()
    }

    fn source(&self, file: &str) -> Option<&SourceText> {
        let outer = || self.outer.as_ref()?.source(file);
        self.files.get(file).or_else(outer)
    }

    /// An error at its place; one without a place in the file `shown`.
    pub fn findings(&self, shown: &str, error: &DefinitionError) -> ModuleFindings {
        let empty = SourceText::new(shown, "");
        let (source, finding) = match error {
            DefinitionError::Syntax(error) => {
                let source = self.source(&error.place.source).unwrap_or(&empty);
                let span = span_of(source.text(), &error.place, &error.found);
                let message = format!("{} does not belong here", quoted(&error.found));
                let mut finding = Finding::error(Code::InvalidType, span, message);
                finding.hint.clone_from(&error.hint);
                (source, finding.expected(&error.expected))
            }
            other => {
                let source = self.source(shown).unwrap_or(&empty);
                (
                    source,
                    Finding::without_span(Code::InvalidType, other.to_string()),
                )
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
