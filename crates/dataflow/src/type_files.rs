//! Reads definitions of types: `.msg` files in folders, with optional `.toml` files beside them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use nervure_types::{
    Definition, DefinitionError, Format, Library, STANDARD_NAMESPACE, Sections, humble, standard,
};

use crate::quote::{quoted, visible};
use crate::source::SourceText;
use crate::surroundings::{Entry, Surroundings};

/// Limit on the entries of a folder: names beyond it may be missing in `names_in`.
const MAX_ENTRIES: usize = 999;
/// Limit on the definitions together, in bytes. Those of all packages of ROS 2 take 200 KB.
const MAX_BYTES: usize = 4 << 20;
/// The grammar of namespaces and names, for messages.
const WORD: &str = "letters, digits and `_`, with a letter first";

/// Definitions of types in files. A line that is no field is an error of the types that use it, so that a
/// package may have others that cannot be used.
///
/// ```no_run
/// use nervure_dataflow::{Host, TypeFiles};
/// use std::path::Path;
///
/// let mut files = TypeFiles::default();
/// let names = files.add_folder(&Host, Path::new("/robot/msgs"), Path::new("msgs"))?;
/// assert_eq!(names, ["my/Pose"]);
/// println!("{:?}", files.definition("my/Pose", &[]));
/// # Ok::<(), nervure_dataflow::TypeFilesError>(())
/// ```
#[derive(Debug, Default)]
pub struct TypeFiles {
    sections: Sections,
    /// The file of each type, by the name that messages show.
    files: BTreeMap<String, Arc<str>>,
    sources: HashMap<Arc<str>, SourceText>,
    errors: Vec<TypeFileError>,
    /// Size of all files.
    bytes: usize,
}

/// An error in the content of a file.
#[derive(Debug, Clone)]
pub struct TypeFileError {
    /// The file, by the name that messages show.
    pub file: Arc<str>,
    /// The error.
    pub error: DefinitionError,
}

/// Why a folder with definitions cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeFilesError {
    /// A file that must be there is not, or is no regular file.
    #[error("{} is no file", visible(.0))]
    NoFile(String),
    /// A file cannot be read.
    #[error("{} cannot be read: {reason}", visible(file))]
    Unreadable {
        /// The file.
        file: String,
        /// The reason of the system.
        reason: String,
    },
    /// A folder of a package is where a folder of packages belongs.
    #[error(
        "{} has no namespace: expected the folder around it, with `NAMESPACE/Name.msg` or `NAMESPACE/msg/Name.msg`",
        visible(.0)
    )]
    NoNamespace(String),
    /// A namespace that no type can have.
    #[error(
        "the namespace of {} is {}, expected {WORD}",
        visible(file),
        quoted(found)
    )]
    Namespace {
        /// The file.
        file: String,
        /// The namespace.
        found: String,
    },
    /// A name that no type can have.
    #[error("the name of {} is {}, expected {WORD}", visible(file), quoted(found))]
    Name {
        /// The file.
        file: String,
        /// The name.
        found: String,
    },
    /// The namespace of Nervure's types.
    #[error("the namespace of {} is `std`, which is that of Nervure's types", visible(.0))]
    Standard(String),
    /// A folder has too many entries.
    #[error("the folder {} has too many entries, expected at most {MAX_ENTRIES}", visible(.0))]
    TooMany(String),
    /// The files have too many bytes.
    #[error("the definitions up to {} are too large, expected at most {} MiB", visible(.0), MAX_BYTES >> 20)]
    TooLarge(String),
}

/// A folder or a file, and its name in messages.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a Path,
    shown: &'a Path,
}

struct Content {
    /// The file, by the name that messages show.
    file: Arc<str>,
    bytes: Vec<u8>,
}

impl TypeFiles {
    /// Reads the definitions in a folder, `NAMESPACE/Name.msg` or `NAMESPACE/msg/Name.msg`, and returns
    /// their names. Messages name the folder as `shown`.
    ///
    /// # Errors
    /// [`TypeFilesError`]. Errors in the content of files are in [`TypeFiles::errors`].
    pub fn add_folder(
        &mut self,
        surroundings: &dyn Surroundings,
        folder: &Path,
        shown: &Path,
    ) -> Result<Vec<String>, TypeFilesError> {
        let mut added = Vec::new();
        for namespace in names_in(surroundings, folder, shown)? {
            let (inside, shown) = (folder.join(&namespace), shown.join(&namespace));
            if namespace.ends_with(".msg") || namespace == "msg" {
                return Err(TypeFilesError::NoNamespace(shown.display().to_string()));
            }
            if surroundings.entry(&inside) != Entry::Folder {
                continue;
            }
            for within in ["", "msg"] {
                let (inside, shown) = (inside.join(within), shown.join(within));
                added.extend(self.add_package(surroundings, &namespace, &inside, &shown)?);
            }
        }
        Ok(added)
    }

    /// Reads the definitions in the folder of one package, and returns their names.
    ///
    /// # Errors
    /// As [`TypeFiles::add_folder`].
    pub fn add_package(
        &mut self,
        surroundings: &dyn Surroundings,
        namespace: &str,
        folder: &Path,
        shown: &Path,
    ) -> Result<Vec<String>, TypeFilesError> {
        let mut added = Vec::new();
        for entry in names_in(surroundings, folder, shown)? {
            let Some(name) = entry.strip_suffix(".msg") else {
                continue;
            };
            let (path, shown) = (folder.join(&entry), shown.join(&entry));
            let name = type_name(namespace, name, &shown)?;
            let place = Place {
                path: &path,
                shown: &shown,
            };
            self.add(surroundings, &name, place)?;
            added.push(name);
        }
        Ok(added)
    }

    /// Errors in the content of files: text that is not UTF-8, and `.toml` files.
    #[must_use]
    pub fn errors(&self) -> &[TypeFileError] {
        &self.errors
    }

    /// The definition of a type in these files. Its fields may have types of these files, of `outer`, of the
    /// standard set and of ROS 2.
    ///
    /// # Errors
    /// If the type cannot be used.
    pub fn definition(
        &self,
        name: &str,
        outer: &[&TypeFiles],
    ) -> Result<Arc<Definition>, TypeFileError> {
        let failed = |error| TypeFileError {
            file: self.file(name).cloned().unwrap_or_else(|| name.into()),
            error,
        };
        // Constants too, which do not matter to reading a message.
        if let Some(error) = self.sections.errors(name).next() {
            return Err(failed(error.clone().into()));
        }
        let mut sources = vec![&self.sections];
        sources.extend(outer.iter().map(|files| &files.sections));
        sources.extend([standard(), humble()]);
        Library::new(&sources).definition(name).map_err(failed)
    }

    /// The file of a type, by the name that messages show.
    pub(crate) fn file(&self, name: &str) -> Option<&Arc<str>> {
        self.files.get(name)
    }

    /// The types of a namespace.
    pub(crate) fn names_of<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a str> {
        let prefix = format!("{namespace}/");
        let known = self.files.range(prefix.clone()..);
        let names = known.map(|(name, _)| name.as_str());
        names.take_while(move |name| name.starts_with(&prefix))
    }

    /// The text of a file, by the name that messages show.
    pub(crate) fn source(&self, file: &str) -> Option<&SourceText> {
        self.sources.get(file)
    }

    /// Reads a file, and the one beside it with what `.msg` cannot say.
    fn add(
        &mut self,
        surroundings: &dyn Surroundings,
        name: &str,
        place: Place<'_>,
    ) -> Result<(), TypeFilesError> {
        let Content { file, bytes } = self
            .read(surroundings, place)?
            .ok_or_else(|| TypeFilesError::NoFile(place.shown.display().to_string()))?;
        let sections = &mut self.sections;
        if let Err(error) = sections.add_file(Format::Message, name, &file, &bytes) {
            self.errors.push(TypeFileError { file, error });
            return Ok(());
        }
        self.files.insert(name.to_owned(), file);
        let beside = Place {
            path: &place.path.with_extension("toml"),
            shown: &place.shown.with_extension("toml"),
        };
        let Some(Content { file, bytes }) = self.read(surroundings, beside)? else {
            return Ok(());
        };
        let added = match std::str::from_utf8(&bytes) {
            Ok(text) => self.sections.add_sidecar(name, &file, text),
            Err(_) => Err(DefinitionError::NotText),
        };
        if let Err(error) = added {
            self.errors.push(TypeFileError { file, error });
        }
        Ok(())
    }

    /// The content of a file; `None` if there is no regular file.
    fn read(
        &mut self,
        surroundings: &dyn Surroundings,
        place: Place<'_>,
    ) -> Result<Option<Content>, TypeFilesError> {
        let Entry::File { .. } = surroundings.entry(place.path) else {
            return Ok(None);
        };
        let file = place.shown.display().to_string();
        let bytes = match surroundings.read(place.path) {
            Ok(bytes) => bytes,
            Err(reason) => return Err(TypeFilesError::Unreadable { file, reason }),
        };
        self.bytes += bytes.len();
        if self.bytes > MAX_BYTES {
            return Err(TypeFilesError::TooLarge(file));
        }
        let source = SourceText::new(&*file, String::from_utf8_lossy(&bytes));
        let file: Arc<str> = file.into();
        self.sources.insert(file.clone(), source);
        Ok(Some(Content { file, bytes }))
    }
}

/// The names in a folder, sorted.
fn names_in(
    surroundings: &dyn Surroundings,
    folder: &Path,
    shown: &Path,
) -> Result<Vec<String>, TypeFilesError> {
    let mut names = surroundings.names_in(folder);
    if names.len() > MAX_ENTRIES {
        return Err(TypeFilesError::TooMany(shown.display().to_string()));
    }
    names.sort_unstable();
    Ok(names)
}

/// The name of the type in a file.
fn type_name(namespace: &str, name: &str, file: &Path) -> Result<String, TypeFilesError> {
    let is_word = |word: &str| {
        word.starts_with(|first: char| first.is_ascii_alphabetic())
            && word
                .chars()
                .all(|each| each.is_ascii_alphanumeric() || each == '_')
    };
    let file = file.display().to_string();
    if namespace == STANDARD_NAMESPACE {
        return Err(TypeFilesError::Standard(file));
    }
    if !is_word(namespace) {
        let found = namespace.to_owned();
        return Err(TypeFilesError::Namespace { file, found });
    }
    if !is_word(name) {
        let found = name.to_owned();
        return Err(TypeFilesError::Name { file, found });
    }
    Ok(format!("{namespace}/{name}"))
}

impl fmt::Display for TypeFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            // It has the file, the line and the column.
            DefinitionError::Syntax(error) => error.fmt(f),
            other => write!(f, "{}: {other}", self.file),
        }
    }
}
