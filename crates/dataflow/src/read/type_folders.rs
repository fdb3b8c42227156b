//! Reads folders with definitions of types: `types: [msgs]`.

use std::path::Path;
use std::rc::Rc;

use super::reader::{Reader, wrong_type};
use crate::diagnostic::{Code, Finding};
use crate::keys::Shape;
use crate::quote::quoted;
use crate::surroundings::{Entry, Surroundings};
use crate::tree::{Kind, Value};
use crate::type_files::TypeFilesError;
use crate::type_folders::TypeFolders;

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
    let mut types = TypeFolders::within(reader.types());
    for item in items {
        let Some(text) = reader.text(item, Shape::Path) else {
            continue;
        };
        let folder = directory.join(&text.text);
        if surroundings.entry(&folder) == Entry::Missing {
            let message = format!("there is no folder {}", quoted(&text.text));
            reader.report(Finding::error(Code::MissingFile, text.span, message));
            continue;
        }
        let shown = Path::new(reader.file_name()).with_file_name(&text.text);
        match types.files.add_folder(surroundings, &folder, &shown) {
            Ok(added) if added.is_empty() => {
                let message = format!("the folder {} has no definitions", quoted(&text.text));
                let finding = Finding::warning(Code::InvalidType, text.span, message);
                reader.report(finding.expected("`NAMESPACE/Name.msg` in it"));
            }
            Ok(_) => {}
            Err(error) => {
                let message = error.to_string();
                reader.report(Finding::error(code_of(&error), text.span, message));
            }
        }
    }
    for error in types.files.errors() {
        reader.absorb(types.findings(error));
    }
    reader.set_types(Rc::new(types));
}

fn code_of(error: &TypeFilesError) -> Code {
    match error {
        TypeFilesError::NoFile(_) | TypeFilesError::Unreadable { .. } => Code::MissingFile,
        TypeFilesError::NoNamespace(_)
        | TypeFilesError::Namespace { .. }
        | TypeFilesError::Name { .. }
        | TypeFilesError::Standard(_) => Code::InvalidType,
        TypeFilesError::TooMany(_) | TypeFilesError::TooLarge(_) => Code::OutOfRange,
    }
}
