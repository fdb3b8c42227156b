//! Definitions of types in folders beside a file: `types: [msgs]`.
//!
//! A folder has `NAMESPACE/Name.msg`, or `NAMESPACE/msg/Name.msg` as in packages of ROS, and
//! optionally `Name.toml` beside it. A type is read when an input or output names it, so that a
//! package may have others that cannot be used.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use nervure_protocol::nearest;
use nervure_types::{
    Definition, DefinitionError, Format, Library, Place, STANDARD_NAMESPACE, Sections, humble,
    standard,
};

use super::reader::{Reader, wrong_type};
use crate::diagnostic::{Code, Finding, Findings};
use crate::keys::Shape;
use crate::name::TypeName;
use crate::quote::quoted;
use crate::source::{SourceText, Span};
use crate::surroundings::{Entry, Surroundings};
use crate::tree::{Kind, Text, Value};

/// Limit on the entries of a folder: names beyond it may be missing in `names_in`.
const MAX_ENTRIES: usize = 999;
/// Limit on the definitions of a file, in bytes. Those of all packages of ROS 2 take 200 KB.
const MAX_BYTES: usize = 4 << 20;

/// The definitions of a file, and those of the file that includes it.
#[derive(Default)]
pub(super) struct TypeFolders {
    sections: Sections,
    namespaces: BTreeSet<String>,
    /// By the name that messages show.
    files: HashMap<String, SourceText>,
    outer: Option<Rc<TypeFolders>>,
    /// Types that were looked up; `None` if they have errors, which are reported.
    found: RefCell<HashMap<String, Option<DefinedType>>>,
}

/// A type with a definition of its own.
#[derive(Debug, Clone)]
pub(crate) struct DefinedType {
    pub definition: Arc<Definition>,
    /// The file with the definition, for messages.
    pub file: Arc<str>,
}

/// Reads the folders in `value`, and looks types up in them from here on.
pub(super) fn read_type_folders(
    reader: &mut Reader<'_>,
    value: &Value,
    directory: &Path,
    surroundings: &dyn Surroundings,
) {
    let Kind::List(items) = &value.kind else {
        let finding = wrong_type(value, Shape::Folders.describe());
        reader.report(match &value.kind {
            Kind::Text(text) => finding.hint(format!("write `[{text}]`")),
            _ => finding,
        });
        return;
    };
    let mut loader = Loader {
        surroundings,
        types: TypeFolders {
            outer: Some(reader.types()),
            ..TypeFolders::default()
        },
        bytes: 0,
    };
    for item in items {
        let Some(text) = reader.text(item, Shape::Path) else {
            continue;
        };
        if let Err(problem) = loader.folder(reader, &text, &directory.join(&text.text)) {
            reader.report(problem);
        }
    }
    reader.set_types(Rc::new(loader.types));
}

struct Loader<'s> {
    surroundings: &'s dyn Surroundings,
    types: TypeFolders,
    /// Size of all files so far.
    bytes: usize,
}

impl Loader<'_> {
    fn folder(&mut self, reader: &mut Reader<'_>, text: &Text, path: &Path) -> Result<(), Finding> {
        if self.surroundings.entry(path) == Entry::Missing {
            let message = format!("there is no folder {}", quoted(&text.text));
            return Err(Finding::error(Code::MissingFile, text.span, message));
        }
        let shown = Path::new(reader.file_name()).with_file_name(&text.text);
        let mut files = 0;
        for namespace in self.names(path, text)? {
            let inside = path.join(&namespace);
            if namespace.ends_with(".msg") || namespace == "msg" {
                let message = format!("{namespace:?} in {} has no namespace", quoted(&text.text));
                let finding = Finding::error(Code::InvalidType, text.span, message);
                return Err(finding.expected("`NAMESPACE/Name.msg`, or `NAMESPACE/msg/Name.msg`"));
            }
            if self.surroundings.entry(&inside) != Entry::Folder {
                continue;
            }
            for within in ["", "msg"] {
                let names = self.names(&inside.join(within), text)?;
                for name in names.iter().filter_map(|name| name.strip_suffix(".msg")) {
                    let relative = Path::new(&namespace).join(within).join(name);
                    let file = TypeFile {
                        type_name: format!("{namespace}/{name}"),
                        path: path.join(&relative),
                        shown: shown.join(&relative),
                    };
                    self.file(reader, text, &file)?;
                    self.types.namespaces.insert(namespace.clone());
                    files += 1;
                }
            }
        }
        if files == 0 {
            let message = format!("the folder {} has no definitions", quoted(&text.text));
            let finding = Finding::warning(Code::InvalidType, text.span, message);
            reader.report(finding.expected("`NAMESPACE/Name.msg` in it"));
        }
        Ok(())
    }

    /// The names in a folder, sorted.
    fn names(&self, folder: &Path, text: &Text) -> Result<Vec<String>, Finding> {
        let mut names = self.surroundings.names_in(folder);
        names.sort_unstable();
        if names.len() <= MAX_ENTRIES {
            return Ok(names);
        }
        let message = format!("a folder in {} has too many files", quoted(&text.text));
        Err(Finding::error(Code::OutOfRange, text.span, message)
            .expected(format!("at most {MAX_ENTRIES}")))
    }

    fn file(
        &mut self,
        reader: &mut Reader<'_>,
        text: &Text,
        file: &TypeFile,
    ) -> Result<(), Finding> {
        if file.type_name.split('/').next() == Some(STANDARD_NAMESPACE) {
            let message = format!(
                "{} has types of the namespace `std`, which are those of Nervure",
                quoted(&text.text)
            );
            let finding = Finding::error(Code::InvalidType, text.span, message);
            return Err(finding.expected("a namespace of your own"));
        }
        let Some((shown, bytes)) = self.read(text, file, "msg")? else {
            let message = format!("{} is no file", file.shown("msg"));
            return Err(Finding::error(Code::MissingFile, text.span, message));
        };
        let name = &file.type_name;
        let source = SourceText::new(&shown, String::from_utf8_lossy(&bytes));
        self.types.files.insert(shown.clone(), source);
        let sections = &mut self.types.sections;
        if let Err(error) = sections.add_file(Format::Message, name, &shown, &bytes) {
            self.types.report(reader, &shown, &error);
            return Ok(());
        }
        let Some((shown, bytes)) = self.read(text, file, "toml")? else {
            return Ok(());
        };
        let sidecar = String::from_utf8_lossy(&bytes).into_owned();
        let added = match std::str::from_utf8(&bytes) {
            Ok(text) => self.types.sections.add_sidecar(name, &shown, text),
            Err(_) => Err(DefinitionError::NotText),
        };
        let source = SourceText::new(&shown, sidecar);
        self.types.files.insert(shown.clone(), source);
        if let Err(error) = added {
            self.types.report(reader, &shown, &error);
        }
        Ok(())
    }

    /// The name to show and the content of a file; `None` if there is no regular file.
    fn read(
        &mut self,
        text: &Text,
        file: &TypeFile,
        extension: &str,
    ) -> Result<Option<(String, Vec<u8>)>, Finding> {
        let path = PathBuf::from(format!("{}.{extension}", file.path.display()));
        let Entry::File { .. } = self.surroundings.entry(&path) else {
            return Ok(None);
        };
        let shown = file.shown(extension);
        let bytes = self.surroundings.read(&path).map_err(|reason| {
            let message = format!("{shown} cannot be read: {reason}");
            Finding::error(Code::MissingFile, text.span, message)
        })?;
        self.bytes += bytes.len();
        if self.bytes > MAX_BYTES {
            let message = format!("the definitions up to {shown} are too large");
            return Err(Finding::error(Code::OutOfRange, text.span, message)
                .expected(format!("at most {} MiB", MAX_BYTES >> 20)));
        }
        Ok(Some((shown, bytes)))
    }
}

/// A definition in a folder; its paths lack the extension.
struct TypeFile {
    type_name: String,
    path: PathBuf,
    shown: PathBuf,
}

impl TypeFile {
    fn shown(&self, extension: &str) -> String {
        format!("{}.{extension}", self.shown.display())
    }
}

impl TypeFolders {
    /// The definition of a declared type, or `None` for a mere name: a type without a version, or of a
    /// namespace that no folder defines.
    ///
    /// # Errors
    /// If there is no such type, or its definition has errors. They are reported.
    pub fn find(
        &self,
        reader: &mut Reader<'_>,
        text: &Text,
        declared: &TypeName,
    ) -> Result<Option<DefinedType>, ()> {
        let namespace = declared.name().split('/').next().unwrap_or_default();
        let Some(version) = declared.version() else {
            return Ok(None);
        };
        if !self.namespaces.contains(namespace) {
            return match &self.outer {
                Some(outer) => outer.find(reader, text, declared),
                None => Ok(None),
            };
        }
        let name = declared.name();
        if !self.sections.has(name) {
            reader.report(self.unknown(text, declared, namespace));
            return Err(());
        }
        let found = self.found.borrow().get(name).cloned();
        let found = found.unwrap_or_else(|| {
            let resolved = self.resolve(reader, name);
            let resolved = resolved.map(|definition| DefinedType {
                file: self.file_of(name).into(),
                definition,
            });
            let mut known = self.found.borrow_mut();
            known.insert(name.to_owned(), resolved.clone());
            resolved
        });
        let found = found.ok_or(())?;
        let has = found.definition.version();
        if has != version {
            let message = format!("{} defines version {has} of `{name}`", found.file);
            let finding = Finding::error(Code::UnknownType, text.span, message);
            let fix = format!("{name}@{has}");
            reader.report(finding.nearest(Some(&fix), || None));
            return Err(());
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

    fn resolve(&self, reader: &mut Reader<'_>, name: &str) -> Option<Arc<Definition>> {
        let mut sources = vec![&self.sections];
        let mut outer = self.outer.as_deref();
        while let Some(folders) = outer {
            sources.push(&folders.sections);
            outer = folders.outer.as_deref();
        }
        sources.extend([standard(), humble()]);
        let resolved = Library::new(&sources).definition(name);
        resolved
            .map_err(|error| self.report(reader, &self.file_of(name), &error))
            .ok()
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

    /// Reports an error at its place; one without a place in the file `shown`.
    fn report(&self, reader: &mut Reader<'_>, shown: &str, error: &DefinitionError) {
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
        reader.absorb(findings.into_module());
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
