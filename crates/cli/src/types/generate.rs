//! `nervure types generate`: code of types for programs.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, ValueEnum};
use clap_complete::{ArgValueCompleter, PathCompleter};
use nervure_types::{
    Definition, DefinitionError, Format, Library, Sections,
    generate::{self, generate},
    humble, standard, standard_names, standard_type,
};

use super::find::find;
use crate::{failure::Failure, output};

#[derive(Debug, Args)]
pub struct GenerateArguments {
    /// Standard types (`std/Imu@1`), messages of ROS 2 (`sensor_msgs/Imu`), and `.msg` files; without any, all
    /// standard types.
    #[arg(value_name = "TYPE|FILE.msg", add = ArgValueCompleter::new(PathCompleter::file()))]
    types: Vec<String>,
    /// The language of the code.
    #[arg(short, long)]
    language: Language,
    /// Write to this file instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The package of the `.msg` files; by default the name of their folder, or of the folder around `msg`.
    #[arg(long, value_name = "NAME", requires = "types")]
    package: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Language {
    Python,
    Rust,
    #[value(name = "c++")]
    Cpp,
}

pub fn run(arguments: &GenerateArguments) -> Result<(), Failure> {
    let language = match arguments.language {
        Language::Python => generate::Language::Python,
        Language::Rust => generate::Language::Rust,
        Language::Cpp => generate::Language::Cpp,
    };
    let types = match arguments.types.is_empty() {
        true => standard_names()
            .filter_map(|name| standard_type(&name))
            .collect(),
        false => named(&arguments.types, arguments.package.as_deref())?,
    };
    let code = generate(language, &types).map_err(|error| Failure::invalid(error.to_string()))?;
    match &arguments.output {
        None => output::write(&code),
        Some(path) => fs::write(path, code).map_err(|error| {
            Failure::invalid(format!("{} cannot be written", path.display())).because(error)
        }),
    }
}

/// The definitions of types and of files.
fn named(names: &[String], package: Option<&str>) -> Result<Vec<Arc<Definition>>, Failure> {
    let mut files = Files {
        sections: Sections::default(),
        known: BTreeSet::new(),
        package,
    };
    let mut wanted = Vec::new();
    for name in names {
        let is_file = Path::new(name)
            .extension()
            .is_some_and(|ending| ending == "msg");
        wanted.push(match is_file {
            true => files.add(Path::new(name))?,
            false => find(name)?.1.name.clone(),
        });
    }
    let sources = [&files.sections, standard(), humble()];
    let mut library = Library::new(&sources);
    let mut definitions = Vec::new();
    for name in wanted {
        // Errors that do not matter to reading a message, such as those of constants.
        if let Some(error) = files.sections.errors(&name).next() {
            return Err(Failure::invalid(error.to_string()));
        }
        let definition = library.definition(&name);
        definitions.push(definition.map_err(|error| Failure::invalid(error.to_string()))?);
    }
    Ok(definitions)
}

/// The definitions in the folders of the files, so that a message may contain its neighbours.
struct Files<'a> {
    sections: Sections,
    /// The files that were read, by their full paths.
    known: BTreeSet<PathBuf>,
    package: Option<&'a str>,
}

impl Files<'_> {
    /// Adds a file and its neighbours, and returns the name of its type.
    fn add(&mut self, file: &Path) -> Result<String, Failure> {
        let unreadable =
            |error| Failure::invalid(format!("{} cannot be read", file.display())).because(error);
        let full = fs::canonicalize(file).map_err(unreadable)?;
        let folder = full.parent().unwrap_or(Path::new("/"));
        let package = match self.package {
            Some(package) => package.to_owned(),
            None => package_of(folder),
        };
        let name = name_of(&package, file)?;
        let shown = file.parent().unwrap_or(Path::new(""));
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let is_message = path.extension().is_some_and(|ending| ending == "msg");
            let Some(file) = path.file_name().filter(|_| is_message) else {
                continue;
            };
            self.read(&package, &path, &shown.join(file))?;
        }
        Ok(name)
    }

    /// Reads a file, and the file beside it with what `.msg` cannot say.
    fn read(&mut self, package: &str, path: &Path, shown: &Path) -> Result<(), Failure> {
        if !self.known.insert(path.to_owned()) {
            return Ok(());
        }
        let name = name_of(package, shown)?;
        let unreadable =
            |error| Failure::invalid(format!("{} cannot be read", shown.display())).because(error);
        let wrong = |shown: &Path, error: DefinitionError| match error {
            DefinitionError::Syntax(error) => Failure::invalid(error.to_string()),
            error => Failure::invalid(format!("{}: {error}", shown.display())),
        };
        let text = fs::read(path).map_err(unreadable)?;
        let added = self
            .sections
            .add_file(Format::Message, &name, &shown.to_string_lossy(), &text);
        added.map_err(|error| wrong(shown, error))?;
        let (path, shown) = (path.with_extension("toml"), shown.with_extension("toml"));
        if !path.exists() {
            return Ok(());
        }
        let text = fs::read_to_string(path).map_err(unreadable)?;
        let added = self
            .sections
            .add_sidecar(&name, &shown.to_string_lossy(), &text);
        added.map_err(|error| wrong(&shown, error))
    }
}

/// The package of the files in a folder, which ROS puts into `PACKAGE/msg`.
fn package_of(folder: &Path) -> String {
    let last = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let name = match folder.parent() {
        Some(above) if folder.ends_with("msg") => last(above),
        _ => last(folder),
    };
    name.unwrap_or_default()
}

/// The name of the type in a file.
fn name_of(package: &str, file: &Path) -> Result<String, Failure> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let is_word = |word: &str| {
        let first = word.chars().next();
        first.is_some_and(|first| first.is_ascii_alphabetic())
            && word
                .chars()
                .all(|each| each.is_ascii_alphanumeric() || each == '_')
    };
    let wrong = |what: &str, word: &str| {
        let expected = "letters, digits and `_`, with a letter first";
        Failure::invalid(format!(
            "{}: the {what} is `{word}`, expected {expected}",
            file.display()
        ))
    };
    if !is_word(package) {
        return Err(wrong("package", package).hint("`--package NAME` gives another one"));
    }
    if !is_word(&stem) {
        return Err(wrong("name of the file", &stem));
    }
    if package == "std" {
        let text = format!(
            "{}: the package `std` is that of Nervure's types",
            file.display()
        );
        return Err(Failure::invalid(text).hint("`--package NAME` gives another one"));
    }
    Ok(format!("{package}/{stem}"))
}
