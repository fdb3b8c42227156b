//! A parsed dataflow: its values are checked, its names not looked up yet.

use std::collections::BTreeMap;
use std::time::Duration;

use nervure_protocol::graph::{LogForm, NodeSettings, Program, StaticTransform};
use nervure_protocol::wiring::NewGoal;

use crate::graph::{GitSource, InputQueue, Labels, Qos, Resources};
use crate::name::TypeName;
use crate::source::Span;
use crate::tree::Text;
use crate::type_folders::DefinedType;

#[derive(Debug)]
pub(crate) struct ParsedDataflow {
    pub name: Option<Text>,
    pub env: BTreeMap<String, String>,
    pub nodes: Vec<ParsedNode>,
    /// Roles of machines, in the order of the file.
    pub machines: Vec<Text>,
    /// Labels that the machine of a role must have.
    pub labels: Labels,
    /// Minimum resources of the machine of a role.
    pub resources: BTreeMap<String, Resources>,
    /// Whether all of `machines` could be read.
    pub machines_complete: bool,
    /// Poses of frames that never change.
    pub static_transforms: Vec<StaticTransform>,
    /// Whether types by dora's keys must be equal.
    pub strict_types: bool,
}

#[derive(Debug)]
pub(crate) struct ParsedNode {
    /// `None` if it is missing or invalid.
    pub id: Option<Text>,
    /// The whole node.
    pub span: Span,
    /// Role of its machine.
    pub machine: Option<Text>,
    /// The process that it shares with others.
    pub process: Option<Text>,
    /// Where `args` is in the file.
    pub args_span: Option<Span>,
    /// `on_partition: stop`.
    pub stops_on_partition: bool,
    pub name: Option<String>,
    pub description: Option<String>,
    pub program: Option<LocatedProgram>,
    pub settings: NodeSettings,
    pub build: Option<String>,
    pub git: Option<GitSource>,
    pub inputs: Vec<ParsedInput>,
    /// Whether all of `inputs` could be read.
    pub inputs_complete: bool,
    pub outputs: Vec<ParsedOutput>,
    /// Outputs that carry the node's lines on stdout and stderr; not among `outputs`.
    pub log_outputs: Vec<ParsedLogOutput>,
    /// Whether all of `outputs` could be read. If not, an unknown output may be one of the others.
    pub outputs_complete: bool,
    /// Services and actions.
    pub services: Vec<ParsedService>,
    /// Whether all of `services` could be read.
    pub services_complete: bool,
    pub clients: Vec<ParsedClient>,
    pub shared_memory: Option<u64>,
    /// The id of the only operator of a node with `operator`: sources may leave it out.
    pub single_operator: Option<String>,
}

impl ParsedNode {
    /// The name by which sources can refer to an output: without the id of a single operator.
    pub fn source_name<'o>(&self, output: &'o ParsedOutput) -> &'o str {
        let own = |operator: &String| output.name.text.strip_prefix(operator)?.strip_prefix('/');
        let short = self.single_operator.as_ref().and_then(own);
        short.unwrap_or(&output.name.text)
    }
}

#[derive(Debug)]
pub(crate) struct ParsedInput {
    pub name: Text,
    pub source: ParsedSource,
    pub queue: InputQueue,
    pub type_name: Option<DeclaredType>,
    pub expect_every: Option<Duration>,
    pub qos: Qos,
    /// The span of the policy, or of the source if there is none.
    pub policy_span: Span,
}

#[derive(Debug)]
pub(crate) struct ParsedService {
    pub name: Text,
    /// For an action, its handling of a goal during another one.
    pub action: Option<NewGoal>,
}

#[derive(Debug)]
pub(crate) struct ParsedClient {
    pub name: Text,
    /// The node that answers.
    pub server: Text,
    pub service: Text,
}

#[derive(Debug, Clone)]
pub(crate) enum ParsedSource {
    Timer {
        period_nanos: u64,
    },
    Output {
        node: Text,
        output: Text,
    },
    /// A node without the name of an output: an error, whose hint needs the outputs of the node.
    Node {
        node: Text,
    },
    /// The lines of other nodes.
    Logs {
        min_level: Option<&'static str>,
        node: Option<Text>,
    },
    /// Already reported.
    Invalid,
}

/// An output that carries the lines of its node.
#[derive(Debug)]
pub(crate) struct ParsedLogOutput {
    pub output: ParsedOutput,
    pub form: LogForm,
    pub min_level: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) struct ParsedOutput {
    pub name: Text,
    pub history: u32,
    pub type_name: Option<DeclaredType>,
}

/// The type of an input or output.
#[derive(Debug, Clone)]
pub(crate) struct DeclaredType {
    pub span: Span,
    pub value: TypeName,
    /// Whether it is declared by `type`. Types by dora's keys may differ between the two ends.
    pub is_strict: bool,
    /// Its definition in a folder of `types`.
    pub defined: Option<DefinedType>,
}

/// A program, and whether it exists yet.
#[derive(Debug)]
pub(crate) struct LocatedProgram {
    pub program: Program,
    /// False if the node's `build` has yet to make it.
    pub is_built: bool,
}

impl LocatedProgram {
    pub fn built(program: Program) -> Self {
        Self {
            program,
            is_built: true,
        }
    }
}
