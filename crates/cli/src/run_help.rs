//! `nervure run FILE --help`: the arguments of the file.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::Command;
use nervure_dataflow::ParamSpec;

use crate::{
    inspect::param::takes,
    table::{Align, Table},
};

/// Adds the arguments of the file to the help, if the command line asks for help on it.
pub fn add_arguments_of_file(command: Command) -> Command {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match asked_file(&words) {
        Some(file) => {
            let help = describe(&file, &nervure_dataflow::load(&file).args);
            command.mut_subcommand("run", |run| run.after_help(help))
        }
        None => command,
    }
}

/// The file of `run FILE --help`.
fn asked_file(words: &[OsString]) -> Option<PathBuf> {
    let asks = words.iter().any(|word| word == "--help" || word == "-h");
    let behind = words.iter().skip_while(|word| *word != "run").skip(1);
    let is_dataflow = |path: &&Path| {
        let extension = path.extension();
        extension.is_some_and(|it| it == "yml" || it == "yaml") && path.is_file()
    };
    let file = behind.map(Path::new).find(is_dataflow);
    file.filter(|_| asks).map(Path::to_owned)
}

fn describe(file: &Path, arguments: &[ParamSpec]) -> String {
    let file = file.display();
    if arguments.is_empty() {
        return format!("{file} has no arguments: its key `args` would declare them.");
    }
    let mut table = Table::new(&[
        ("argument", Align::Left),
        ("value", Align::Left),
        ("type", Align::Left),
        ("takes", Align::Left),
        ("description", Align::Left),
    ]);
    for spec in arguments {
        table.row(vec![
            spec.name.clone(),
            spec.value.to_string(),
            spec.kind.as_str().to_owned(),
            takes(spec),
            spec.description.clone().unwrap_or_default(),
        ]);
    }
    let table = table.render(None);
    format!("Arguments of {file}, to be given as ARGUMENT=VALUE:\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_that_of_a_file_only_if_the_command_line_names_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yml");
        std::fs::write(&file, "").unwrap();
        let asked = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            asked_file(&words)
        };
        let name = file.to_str().unwrap();
        assert_eq!(asked(&["run", name, "--help"]), Some(file.clone()));
        assert_eq!(asked(&["run", "-h", name]), Some(file.clone()));
        assert_eq!(asked(&["run", name]), None);
        assert_eq!(asked(&["run", "missing.yml", "-h"]), None);
        assert_eq!(asked(&["validate", name, "-h"]), None);
    }
}
