//! Parameters and environment variables of a command line, which override the dataflow file for one
//! run.

use std::path::Path;

use clap::Args;
use clap_complete::ArgValueCandidates;
use nervure_dataflow::{Dataflow, Report, load_for, param_value};
use nervure_protocol::{did_you_mean, params::MAX_NODE_PARAMS_BYTES};

use crate::{
    complete,
    environments::Environments,
    failure::Failure,
    hosts::{BuiltHost, OverriddenHost},
    source,
};

#[derive(Debug, Args, PartialEq)]
pub struct Overrides {
    /// Override parameters of the file, such as `camera.fps=60`. Values are written as in the file.
    #[arg(value_name = "NODE.PARAMETER=VALUE", value_parser = parse_param, add = ArgValueCandidates::new(complete::params_of_file))]
    pub params: Vec<Assignment>,
    /// Set an environment variable of all nodes and for `${NAME}` in the file. May be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub variables: Vec<Assignment>,
}

/// `name=value`
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    pub name: String,
    pub value: String,
}

impl Overrides {
    /// The graph of a dataflow file with these overrides. Programs may not be built yet.
    ///
    /// # Errors
    /// As [`source::read`], and for an unknown parameter or a value that does not fit.
    #[cfg(any(feature = "fleet", feature = "record"))]
    pub fn read(&self, file: &Path) -> Result<Dataflow, Failure> {
        self.apply(source::accept(load_for(file, &self.host()), file)?)
    }

    /// As [`Self::read`], for a command that starts the nodes: a program that is not built yet is
    /// an error.
    pub fn read_to_start(&self, file: &Path) -> Result<Dataflow, Failure> {
        self.accept_to_start(load_for(file, &self.host()), file)
    }

    /// As [`Self::read_to_start`], with the nodes in their Python environments.
    pub fn read_to_start_in(
        &self,
        environments: &Environments,
        file: &Path,
    ) -> Result<Dataflow, Failure> {
        let report = load_for(file, &environments.host(&self.host()));
        let mut dataflow = self.accept_to_start(report, file)?;
        environments.activate(&mut dataflow)?;
        Ok(dataflow)
    }

    fn accept_to_start(&self, mut report: Report, file: &Path) -> Result<Dataflow, Failure> {
        report.require_programs();
        self.apply(source::accept(report, file)?)
    }

    /// As [`Self::read`], before a build that may create any program. Shows no warnings: the file
    /// is read again after the build.
    pub fn read_to_build(&self, file: &Path) -> Result<Dataflow, Failure> {
        let report = load_for(file, &BuiltHost { host: &self.host() });
        self.apply(match report.dataflow {
            Some(dataflow) => dataflow,
            None => source::accept(report, file)?,
        })
    }

    fn host(&self) -> OverriddenHost {
        let variables = self
            .variables
            .iter()
            .map(|one| (one.name.clone(), one.value.clone()))
            .collect();
        OverriddenHost { variables }
    }

    fn apply(&self, mut dataflow: Dataflow) -> Result<Dataflow, Failure> {
        let OverriddenHost { variables } = self.host();
        dataflow.env.extend(variables.clone());
        for node in &mut dataflow.nodes {
            node.settings.env.extend(variables.clone());
        }
        for param in &self.params {
            set_param(&mut dataflow, param)?;
        }
        Ok(dataflow)
    }

    /// The first override of a parameter of this node.
    #[cfg(feature = "record")]
    pub fn param_of(
        &self,
        dataflow: &Dataflow,
        node: &nervure_dataflow::Node,
    ) -> Option<&Assignment> {
        let is_of_node = |one: &&Assignment| matches!(places(dataflow, &one.name).as_slice(), [(index, _)] if dataflow.nodes[*index].id == node.id);
        self.params.iter().find(is_of_node)
    }
}

fn set_param(dataflow: &mut Dataflow, assignment: &Assignment) -> Result<(), Failure> {
    let Assignment { name, value } = assignment;
    let (node, param) = match places(dataflow, name).as_slice() {
        [place] => *place,
        [] => return Err(unknown_param(dataflow, name)),
        [first, second, ..] => {
            let (first, second) = (&dataflow.nodes[first.0].id, &dataflow.nodes[second.0].id);
            let text = format!(
                "`{name}` is ambiguous: node `{first}` and node `{second}` both have such a parameter"
            );
            return Err(Failure::invalid(text).hint("rename one of them in the dataflow file"));
        }
    };
    let node = &mut dataflow.nodes[node];
    let spec = &node.settings.params[param];
    let accepted = spec.accept(param_value(value, spec.kind));
    let accepted =
        accepted.map_err(|error| Failure::invalid(format!("`{name}={value}`: {error}")))?;
    node.settings.params[param].value = accepted;
    let bytes = serde_json::to_vec(&node.settings.params).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_NODE_PARAMS_BYTES {
        let text = format!(
            "`{name}`: the parameters of `{}` then take {bytes} bytes as JSON",
            node.id
        );
        return Err(Failure::invalid(text).hint(format!(
            "the limit is {MAX_NODE_PARAMS_BYTES} bytes: use shorter values"
        )));
    }
    Ok(())
}

/// Indices of the nodes and parameters that `node.parameter` may name. Both names may contain dots.
fn places(dataflow: &Dataflow, name: &str) -> Vec<(usize, usize)> {
    let place = |(dot, _): (usize, &str)| {
        let node = dataflow
            .nodes
            .iter()
            .position(|node| node.id == name[..dot])?;
        let param = dataflow.nodes[node]
            .settings
            .params
            .iter()
            .position(|param| param.name == name[dot + 1..])?;
        Some((node, param))
    };
    name.match_indices('.').filter_map(place).collect()
}

fn unknown_param(dataflow: &Dataflow, name: &str) -> Failure {
    let splits = || {
        name.match_indices('.')
            .map(|(dot, _)| (&name[..dot], &name[dot + 1..]))
    };
    let known = splits().find_map(|(node, param)| Some((dataflow.node(node)?, param)));
    if let Some((node, param)) = known {
        let names = node.settings.params.iter().map(|param| param.name.as_str());
        let hint = match node.settings.params.is_empty() {
            true => {
                "it has no parameters: declare them in `params` of the dataflow file".to_owned()
            }
            false => did_you_mean(param, "its parameters are", names),
        };
        return Failure::invalid(format!("node `{}` has no parameter `{param}`", node.id))
            .hint(hint);
    }
    let (node, _) = name.rsplit_once('.').unwrap_or((name, ""));
    let names = dataflow.nodes.iter().map(|node| node.id.as_str());
    Failure::invalid(format!("`{name}`: the dataflow has no node `{node}`")).hint(did_you_mean(
        node,
        "its nodes are",
        names,
    ))
}

pub fn parse_param(text: &str) -> Result<Assignment, String> {
    let is_param = |(name, _): &(&str, &str)| name.contains('.');
    let (name, value) = text
        .split_once('=')
        .filter(is_param)
        .ok_or("expected `NODE.PARAMETER=VALUE`, such as `camera.fps=60`")?;
    Ok(Assignment {
        name: name.to_owned(),
        value: value.to_owned(),
    })
}

pub fn parse_variable(text: &str) -> Result<Assignment, String> {
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| is_name(name))
        .ok_or(
            "expected `NAME=VALUE`, such as `LOG_LEVEL=debug`; names consist of letters, digits and `_`",
        )?;
    Ok(Assignment {
        name: name.to_owned(),
        value: value.to_owned(),
    })
}
