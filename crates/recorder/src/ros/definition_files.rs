//! Definitions of ROS messages from files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nervure_types::{DefinitionError, Format, Sections};

/// Limit on the nesting of folders. Links are followed, as `colcon build --symlink-install` makes
/// them, so a folder may contain itself.
const MAX_DEPTH: usize = 12;
/// Limit on the entries of all folders.
const MAX_ENTRIES: usize = 200_000;

/// Definitions of ROS messages from `.msg`, `.srv` and `.action` files. They take precedence over a
/// recording's.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    pub(crate) sections: Sections,
    files: usize,
    entries: usize,
}

/// Why definitions cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionsError {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Path of the file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file is no definition, or another file defines the same type differently.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The defect.
        source: DefinitionError,
    },
    /// The folder has no definitions.
    #[error("{} has no .msg, .srv or .action files", path.display())]
    Nothing {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The folder has too many files.
    #[error("{} has more than {MAX_ENTRIES} files", path.display())]
    TooMany {
        /// Path of the folder.
        path: PathBuf,
    },
}

impl Definitions {
    /// Adds the definitions in a folder and the folders in it. The package of a file is the name of
    /// its folder, or of the folder above if that is called `msg`, `srv` or `action`.
    ///
    /// # Errors
    /// [`DefinitionsError`].
    pub fn add_folder(&mut self, folder: &Path) -> Result<(), DefinitionsError> {
        let io = |source| DefinitionsError::Io {
            path: folder.to_owned(),
            source,
        };
        // The folder may be a package, given as `.`.
        let whole = folder.canonicalize().map_err(io)?;
        let before = self.files;
        self.add_entries(&whole, MAX_DEPTH)?;
        match self.files > before {
            true => Ok(()),
            false => Err(DefinitionsError::Nothing {
                path: folder.to_owned(),
            }),
        }
    }

    fn add_entries(&mut self, folder: &Path, depth: usize) -> Result<(), DefinitionsError> {
        let io = |source| DefinitionsError::Io {
            path: folder.to_owned(),
            source,
        };
        for entry in fs::read_dir(folder).map_err(io)? {
            let entry = entry.map_err(io)?;
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(DefinitionsError::TooMany {
                    path: folder.to_owned(),
                });
            }
            let path = entry.path();
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if is_hidden {
                continue;
            }
            if path.is_dir() {
                if depth > 0 {
                    self.add_entries(&path, depth - 1)?;
                }
            } else if let Some((format, name)) = named(&path) {
                let text = fs::read(&path).map_err(|source| DefinitionsError::Io {
                    path: path.clone(),
                    source,
                })?;
                self.sections
                    .add_file(format, &name, &path.to_string_lossy(), &text)
                    .map_err(|source| DefinitionsError::File { path, source })?;
                self.files += 1;
            }
        }
        Ok(())
    }
}

/// The format and the name of the definition in a file; `None` for other files.
fn named(path: &Path) -> Option<(Format, String)> {
    let (format, kind) = match path.extension()?.to_str()? {
        "msg" => (Format::Message, "msg"),
        "srv" => (Format::Service, "srv"),
        "action" => (Format::Action, "action"),
        _ => return None,
    };
    let name = path.file_stem()?.to_str()?;
    let folder = path.parent()?;
    let package = match folder.file_name()?.to_str()? {
        "msg" | "srv" | "action" => folder.parent()?.file_name()?.to_str()?,
        package => package,
    };
    Some((format, format!("{package}/{kind}/{name}")))
}
