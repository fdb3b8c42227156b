//! Definitions that arguments of the command line stand for.

use std::{fs, path::Path, sync::Arc};

use nervure_dataflow::{Host, TypeFiles, TypeFilesError};
use nervure_types::{Definition, Library, humble, plain_name, standard_names, standard_type};

use crate::failure::Failure;

/// A type, by the name that a dataflow file uses.
pub(super) type Named = (String, Arc<Definition>);

/// The types of names, `.msg` files, and folders with `NAMESPACE/Name.msg`. `package` is the namespace of the
/// files, instead of the name of their folder.
pub(super) fn find_all(arguments: &[String], package: Option<&str>) -> Result<Vec<Named>, Failure> {
    let mut files = TypeFiles::default();
    let mut wanted = Vec::new();
    for argument in arguments {
        let path = Path::new(argument);
        if path.extension().is_some_and(|ending| ending == "msg") {
            wanted.push(Wanted::Own(add_file(&mut files, path, package)?));
        } else if path.is_dir() {
            let added = add_folder(&mut files, path)?;
            wanted.extend(added.into_iter().map(Wanted::Own));
        } else {
            wanted.push(Wanted::Known(find(argument)?));
        }
    }
    if let Some(error) = files.errors().first() {
        return Err(Failure::invalid(error.to_string()));
    }
    // Now, because a message may contain those of another package.
    let found = wanted.into_iter().map(|wanted| match wanted {
        Wanted::Known(found) => Ok(found),
        Wanted::Own(name) => {
            let definition = files.definition(&name, &[]);
            let definition = definition.map_err(|error| Failure::invalid(error.to_string()))?;
            Ok((definition.versioned_name(), definition))
        }
    });
    found.collect()
}

enum Wanted {
    /// A type of Nervure or ROS 2.
    Known(Named),
    /// The name of a type in a file.
    Own(String),
}

/// A standard type, also without its version; or a message of ROS 2.
fn find(name: &str) -> Result<Named, Failure> {
    let standard = |wanted: &str| {
        let known = wanted.parse().ok()?;
        Some((wanted.to_owned(), standard_type(&known)?))
    };
    let found = standard(name).or_else(|| standard(&format!("{name}@1")));
    if let Some(found) = found {
        return Ok(found);
    }
    let plain = plain_name(name);
    if humble().has(&plain) {
        let definition = Library::new(&[humble()]).definition(&plain);
        let definition = definition.map_err(|error| Failure::internal(error.to_string()))?;
        return Ok((plain, definition));
    }
    let standard: Vec<String> = standard_names().map(|name| name.to_string()).collect();
    let all = standard.iter().map(String::as_str).chain(humble().names());
    let hint = match nervure_protocol::nearest(name, all) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            "`nervure types list` lists the standard types; name the `.msg` file of another one"
                .to_owned()
        }
    };
    Err(Failure::invalid(format!("there is no type `{name}`")).hint(hint))
}

/// Reads a file, and those beside it, which its messages may contain. Returns the name of its type.
fn add_file(files: &mut TypeFiles, file: &Path, package: Option<&str>) -> Result<String, Failure> {
    let full = fs::canonicalize(file).map_err(|error| {
        Failure::invalid(format!("{} cannot be read", file.display())).because(error)
    })?;
    let folder = full.parent().unwrap_or(Path::new("/"));
    let package = match package {
        Some(package) => package.to_owned(),
        None => package_of(folder),
    };
    let shown = file.parent().unwrap_or(Path::new(""));
    let added = files.add_package(&Host, &package, folder, shown);
    added.map_err(|error| {
        let failure = Failure::invalid(error.to_string());
        match error {
            TypeFilesError::Standard(_) | TypeFilesError::Namespace { .. } => {
                failure.hint("`--package NAME` gives another one")
            }
            _ => failure,
        }
    })?;
    let name = full.file_stem().unwrap_or_default().to_string_lossy();
    Ok(format!("{package}/{name}"))
}

fn add_folder(files: &mut TypeFiles, folder: &Path) -> Result<Vec<String>, Failure> {
    let added = files.add_folder(&Host, folder, folder);
    let added = added.map_err(|error| Failure::invalid(error.to_string()))?;
    if added.is_empty() {
        let text = format!("the folder {} has no definitions", folder.display());
        return Err(Failure::invalid(text).hint("it has them as `NAMESPACE/Name.msg`"));
    }
    Ok(added)
}

/// The package of the files in a folder, which ROS puts into `PACKAGE/msg`.
fn package_of(folder: &Path) -> String {
    let name = match folder.parent() {
        Some(above) if folder.ends_with("msg") => above.file_name(),
        _ => folder.file_name(),
    };
    name.unwrap_or_default().to_string_lossy().into_owned()
}
