//! Parameters and environment variables that override those of a dataflow file for one run.

use std::{fmt, path::Path};

use nervure_dataflow::{Dataflow, Node, Report, load_for, param_value};
use nervure_protocol::{did_you_mean, params::MAX_NODE_PARAMS_BYTES};

use crate::{
    environments::Environments,
    error::Error,
    hosts::{BuiltHost, OverriddenHost},
    limits,
};

/// Overrides of a dataflow file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Parameters of nodes and arguments of the file, as [`Assignment::param`] parses them.
    pub params: Vec<Assignment>,
    /// Environment variables of all nodes, which also replace `${NAME}` in the file, as
    /// [`Assignment::variable`] parses them.
    pub variables: Vec<Assignment>,
}

/// `name=value`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// `node.parameter`, the name of an argument, or that of a variable.
    pub name: String,
    /// A value as in a dataflow file.
    pub value: String,
}

/// A text is no assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignmentError {
    /// It assigns neither a parameter nor an argument.
    #[error(
        "expected `NODE.PARAMETER=VALUE`, such as `camera.fps=60`, or `ARGUMENT=VALUE` for an argument of the file"
    )]
    NoParam,
    /// It assigns no environment variable.
    #[error(
        "expected `NAME=VALUE`, such as `LOG_LEVEL=debug`; names consist of letters, digits and `_`"
    )]
    NoVariable,
}

impl Assignment {
    /// Parses `node.parameter=value`, or `argument=value`.
    ///
    /// # Errors
    /// If the text has no `=`, or nothing before it.
    pub fn param(text: &str) -> Result<Self, AssignmentError> {
        let is_name = |name: &str| !name.is_empty();
        Self::parse(text, is_name).ok_or(AssignmentError::NoParam)
    }

    /// Whether it assigns an argument of the file, not a parameter of a node.
    fn is_argument(&self) -> bool {
        !self.name.contains('.')
    }

    /// Parses `NAME=value`.
    ///
    /// # Errors
    /// If the text has no `=`, or no valid name before it.
    pub fn variable(text: &str) -> Result<Self, AssignmentError> {
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.starts_with(|first: char| first.is_ascii_digit())
                && name
                    .chars()
                    .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        };
        Self::parse(text, is_name).ok_or(AssignmentError::NoVariable)
    }

    fn parse(text: &str, is_name: impl Fn(&str) -> bool) -> Option<Self> {
        let (name, value) = text.split_once('=').filter(|(name, _)| is_name(name))?;
        Some(Self {
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }
}

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl Overrides {
    /// Reads a dataflow file whose programs may not be built yet.
    #[must_use]
    pub fn load(&self, file: &Path) -> Report {
        checked(load_for(file, &self.host()))
    }

    /// Reads a dataflow file to start it: a program that is not built is an error.
    #[must_use]
    pub fn load_to_start(&self, file: &Path) -> Report {
        startable(load_for(file, &self.host()))
    }

    /// As [`Self::load_to_start`], where commands may be in Python environments of the nodes:
    /// [`Environments::activate`] lets the nodes run in them.
    #[must_use]
    pub fn load_to_start_in(&self, environments: &Environments, file: &Path) -> Report {
        startable(load_for(file, &environments.host(&self.host())))
    }

    /// Reads a dataflow file before a build that may create any program.
    #[must_use]
    pub fn load_to_build(&self, file: &Path) -> Report {
        load_for(file, &BuiltHost { host: &self.host() })
    }

    /// The graph of a report of these overrides, with their values.
    ///
    /// # Errors
    /// If the file has errors, and for an unknown parameter or argument, or a value that does not fit.
    pub fn apply(&self, report: Report) -> Result<Dataflow, Error> {
        let (arguments, params): (Vec<_>, Vec<_>) =
            self.params.iter().partition(|one| one.is_argument());
        for argument in arguments {
            check_argument(&report, &argument.name)?;
        }
        let mut dataflow = graph(report)?;
        let OverriddenHost { variables, .. } = self.host();
        dataflow.env.extend(variables.clone());
        for node in &mut dataflow.nodes {
            node.settings.env.extend(variables.clone());
        }
        for param in params {
            set_param(&mut dataflow, param)?;
        }
        Ok(dataflow)
    }

    fn host(&self) -> OverriddenHost {
        let pair = |one: &Assignment| (one.name.clone(), one.value.clone());
        let arguments = self.params.iter().filter(|one| one.is_argument());
        OverriddenHost {
            variables: self.variables.iter().map(pair).collect(),
            arguments: arguments.map(pair).collect(),
        }
    }

    /// These overrides for another file, of which one node is taken: its parameters, the arguments that the
    /// file declares, and all variables.
    #[must_use]
    pub fn of_node(&self, node: &str, file: &Path) -> Self {
        let declared = self.load(file).args;
        let is_taken = |one: &&Assignment| match one.is_argument() {
            true => declared.iter().any(|argument| argument.name == one.name),
            false => one.name.starts_with(&format!("{node}.")),
        };
        Self {
            params: self.params.iter().filter(is_taken).cloned().collect(),
            variables: self.variables.clone(),
        }
    }

    /// The first override of a parameter of this node.
    #[must_use]
    pub fn param_of(&self, dataflow: &Dataflow, node: &Node) -> Option<&Assignment> {
        let is_of_node = |one: &&Assignment| matches!(places(dataflow, &one.name).as_slice(), [(index, _)] if dataflow.nodes[*index].id == node.id);
        self.params.iter().find(is_of_node)
    }
}

/// The graph of a report.
///
/// # Errors
/// If the file has errors.
pub fn graph(report: Report) -> Result<Dataflow, Error> {
    let summary = report.summary();
    let Report {
        dataflow,
        diagnostics,
        source,
        ..
    } = report;
    dataflow.ok_or_else(|| {
        let summary = summary.as_deref().unwrap_or("it has errors");
        Error {
            findings: diagnostics,
            ..Error::invalid(format!("`{}` cannot be used: {summary}", source.name()))
        }
    })
}

fn startable(mut report: Report) -> Report {
    report.require_programs();
    checked(report)
}

fn checked(mut report: Report) -> Report {
    limits::check(&mut report);
    report
}

fn check_argument(report: &Report, name: &str) -> Result<(), Error> {
    if report.args.iter().any(|argument| argument.name == name) {
        return Ok(());
    }
    let nodes = report.dataflow.iter().flat_map(|dataflow| &dataflow.nodes);
    let has_param = |node: &&Node| node.settings.params.iter().any(|it| it.name == name);
    let names = report.args.iter().map(|argument| argument.name.as_str());
    let hint = match nodes.clone().find(has_param) {
        Some(node) => format!(
            "did you mean `{}.{name}`, the parameter of a node?",
            node.id
        ),
        None if report.args.is_empty() => {
            format!("declare it in the file: `args: {{{name}: ..}}`")
        }
        None => did_you_mean(name, "its arguments are", names),
    };
    Err(Error::invalid(format!("the dataflow has no argument `{name}`")).hint(hint))
}

fn set_param(dataflow: &mut Dataflow, assignment: &Assignment) -> Result<(), Error> {
    let Assignment { name, value } = assignment;
    let (node, param) = match places(dataflow, name).as_slice() {
        [place] => *place,
        [] => return Err(unknown_param(dataflow, name)),
        [first, second, ..] => {
            let (first, second) = (&dataflow.nodes[first.0].id, &dataflow.nodes[second.0].id);
            let text = format!(
                "`{name}` is ambiguous: node `{first}` and node `{second}` both have such a parameter"
            );
            return Err(Error::invalid(text).hint("rename one of them in the dataflow file"));
        }
    };
    let node = &mut dataflow.nodes[node];
    let spec = &node.settings.params[param];
    let accepted = spec.accept(param_value(value, spec.kind));
    let accepted =
        accepted.map_err(|error| Error::invalid(format!("`{name}={value}`: {error}")))?;
    node.settings.params[param].value = accepted;
    let bytes = serde_json::to_vec(&node.settings.params).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_NODE_PARAMS_BYTES {
        let text = format!(
            "`{name}`: the parameters of `{}` then take {bytes} bytes as JSON",
            node.id
        );
        return Err(Error::invalid(text).hint(format!(
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

fn unknown_param(dataflow: &Dataflow, name: &str) -> Error {
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
        return Error::invalid(format!("node `{}` has no parameter `{param}`", node.id)).hint(hint);
    }
    let (node, _) = name.rsplit_once('.').unwrap_or((name, ""));
    let names = dataflow.nodes.iter().map(|node| node.id.as_str());
    Error::invalid(format!("`{name}`: the dataflow has no node `{node}`")).hint(did_you_mean(
        node,
        "its nodes are",
        names,
    ))
}
