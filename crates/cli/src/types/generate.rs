//! `nervure types generate`: code of types for programs.

use std::{fs, path::PathBuf};

use clap::{Args, ValueEnum};
use clap_complete::{ArgValueCompleter, PathCompleter};
use nervure_types::{
    generate::{self, generate},
    standard_names, standard_type,
};

use super::find::find_all;
use crate::{failure::Failure, output};

#[derive(Debug, Args)]
pub struct GenerateArguments {
    /// Standard types (`std/Imu@1`), messages of ROS 2 (`sensor_msgs/Imu`), `.msg` files, and folders with
    /// `NAMESPACE/Name.msg`; without any, all standard types.
    #[arg(value_name = "TYPE|FILE.msg|FOLDER", add = ArgValueCompleter::new(PathCompleter::any()))]
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
    let types: Vec<_> = match arguments.types.is_empty() {
        true => standard_names()
            .filter_map(|name| standard_type(&name))
            .collect(),
        false => {
            let found = find_all(&arguments.types, arguments.package.as_deref())?;
            found
                .into_iter()
                .map(|(_, definition)| definition)
                .collect()
        }
    };
    let code = generate(language, &types).map_err(|error| Failure::invalid(error.to_string()))?;
    match &arguments.output {
        None => output::write(&code),
        Some(path) => fs::write(path, code).map_err(|error| {
            Failure::invalid(format!("{} cannot be written", path.display())).because(error)
        }),
    }
}
