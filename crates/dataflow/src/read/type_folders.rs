//! Reads folders with definitions of types: `types: [msgs]`.
//!
//! A folder has `NAMESPACE/Name.msg`, or `NAMESPACE/msg/Name.msg` as in packages of ROS, and
//! optionally `Name.toml` beside it. A type is read when an input or output names it, so that a
//! package may have others that cannot be used.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use nervure_types::{DefinitionError, Format, STANDARD_NAMESPACE};

use super::reader::{Reader, wrong_type};
use crate::diagnostic::{Code, Finding};
use crate::keys::Shape;
use crate::quote::quoted;
use crate::source::SourceText;
use crate::surroundings::{Entry, Surroundings};
use crate::tree::{Kind, Text, Value};
use crate::type_folders::TypeFolders;

/// Limit on the entries of a folder: names beyond it may be missing in `names_in`.
const MAX_ENTRIES: usize = 999;
/// Limit on the definitions of a file, in bytes. Those of all packages of ROS 2 take 200 KB.
const MAX_BYTES: usize = 4 << 20;

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
        types: TypeFolders::within(reader.types()),
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
            reader.absorb(self.types.findings(&shown, &error));
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
            reader.absorb(self.types.findings(&shown, &error));
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

