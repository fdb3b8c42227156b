//! Parameters and environment variables of a command line.

use clap::Args;
use clap_complete::ArgValueCandidates;
use nervure_launch::{Assignment, Overrides};

use crate::complete;

#[derive(Debug, Args)]
pub struct OverrideArguments {
    /// Give arguments of the file, such as `rate=60`, and parameters of its nodes, such as `camera.fps=60`. Values are
    /// written as in the file; `nervure run FILE --help` lists its arguments.
    #[arg(value_name = "ARGUMENT=VALUE|NODE.PARAMETER=VALUE", value_parser = Assignment::param, add = ArgValueCandidates::new(complete::params_of_file))]
    params: Vec<Assignment>,
    /// Set an environment variable of all nodes and for `${NAME}` in the file. May be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = Assignment::variable)]
    variables: Vec<Assignment>,
}

impl OverrideArguments {
    /// The overrides of the dataflow file.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            params: self.params.clone(),
            variables: self.variables.clone(),
        }
    }
}
