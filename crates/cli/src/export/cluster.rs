//! Containers of a dataflow and their requirements, for both Kubernetes and Nomad.

use std::collections::BTreeMap;

use clap::Args;
use nervure_coordinator::check_machine_name;
use nervure_dataflow::{Dataflow, Node};
use nervure_protocol::{did_you_mean, graph::Scheduling};

use super::exported::{Exported, domain_variable};
use crate::{failure::Failure, option_values::parse_size};

#[derive(Debug, Args)]
pub struct ClusterArguments {
    #[command(flatten)]
    pub(super) exported: Exported,
    /// Run this image. It has `nervure`, and for a file without `machines` the folder of the file as
    /// its working directory.
    #[arg(long, value_name = "IMAGE", required = true, value_parser = parse_image)]
    pub(super) image: String,
    /// Run the machine of a role on this node of the cluster, under the name of the node; again for
    /// each role. Default: wherever there is room, under the name of the role.
    #[arg(long, value_name = "ROLE=NODE", value_parser = parse_binding)]
    bind: Vec<(String, String)>,
    /// Write this role only; again for each role. Default: all.
    #[arg(long, value_name = "ROLE")]
    role: Vec<String>,
    /// Reserve this many processors for each container, such as `2` or `0.5`.
    #[arg(long, value_name = "NUMBER", value_parser = parse_cpus)]
    cpus: Option<u32>,
    /// Reserve this much memory for each container, and allow no more. Samples are part of it.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
}

/// A container to run.
pub struct Container {
    /// Role of the machine that it is; `None` for a dataflow of one host.
    pub role: Option<Role>,
    /// Arguments of `nervure`.
    pub arguments: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Thousandths of a processor.
    pub cpu_millis: Option<u32>,
    pub memory: Option<u64>,
    /// Sum of the `shared_memory` of the nodes, in bytes: memory that the outputs may take.
    pub samples: u64,
    /// Linux capabilities that nodes need.
    pub capabilities: Vec<&'static str>,
}

pub struct Role {
    pub name: String,
    /// The node of the cluster that it is bound to.
    pub node: Option<String>,
}

/// Path in the container with the state of a machine: its key and its runs.
pub const STATE: &str = "/var/lib/nervure";

/// Path in the container with the log files of nodes.
pub const LOGS: &str = "/var/log/nervure";

/// The containers of a dataflow.
pub fn containers(
    arguments: &ClusterArguments,
    dataflow: &Dataflow,
) -> Result<Vec<Container>, Failure> {
    if dataflow.machines.is_empty() {
        let named = arguments.bind.iter().map(|(role, _)| role);
        if let Some(role) = named.chain(&arguments.role).next() {
            return Err(
                Failure::invalid(format!("the dataflow has no machine `{role}`"))
                    .hint("it has no `machines`, and runs in one container"),
            );
        }
        let command = arguments.exported.run()?;
        return Ok(vec![container(arguments, dataflow, None, command)?]);
    }
    arguments.exported.refuse_overrides()?;
    let named = arguments.bind.iter().map(|(role, _)| role);
    for role in named.chain(&arguments.role) {
        if !dataflow.machines.contains(role) {
            let roles = dataflow.machines.iter().map(String::as_str);
            return Err(
                Failure::invalid(format!("the dataflow has no machine `{role}`"))
                    .hint(did_you_mean(role, "its machines are", roles)),
            );
        }
    }
    for (number, (role, node)) in arguments.bind.iter().enumerate() {
        let before = &arguments.bind[..number];
        if let Some((other, _)) = before.iter().find(|(of, on)| of == role || on == node) {
            return Err(Failure::invalid(format!(
                "`--bind {role}={node}`: `{other}` is bound already, and a machine has one role"
            )));
        }
    }
    let is_asked = |role: &&String| arguments.role.is_empty() || arguments.role.contains(role);
    let roles = dataflow.machines.iter().filter(is_asked);
    roles
        .map(|role| {
            let bound = arguments.bind.iter().find(|(of, _)| of == role);
            let node = bound.map(|(_, node)| node.clone());
            let mut command = vec!["join".to_owned()];
            command.push(format!("--name={}", node.as_ref().unwrap_or(role)));
            let labels = dataflow.labels.get(role).into_iter().flatten();
            command.extend(labels.map(|(name, text)| format!("--label={name}={text}")));
            let role = Role {
                name: role.clone(),
                node,
            };
            container(arguments, dataflow, Some(role), command)
        })
        .collect()
}

fn container(
    arguments: &ClusterArguments,
    dataflow: &Dataflow,
    role: Option<Role>,
    command: Vec<String>,
) -> Result<Container, Failure> {
    let of_role = role.as_ref().map(|role| &role.name);
    let nodes = || {
        let nodes = dataflow.nodes.iter();
        nodes.filter(move |node| of_role.is_none() || node.machine.as_ref() == of_role)
    };
    let samples = nodes().filter_map(|node| node.shared_memory).sum();
    if let Some(memory) = arguments.memory
        && memory <= samples
    {
        let text = format!(
            "`--memory` is {memory} bytes, and the outputs{} may take {samples} of them: the sum of `shared_memory`",
            of_role
                .map(|role| format!(" of `{role}`"))
                .unwrap_or_default()
        );
        return Err(Failure::invalid(text)
            .hint("reserve more, for the programs too, or set smaller limits in the file"));
    }
    let mut env = BTreeMap::from([("NERVURE_LOG_DIR".to_owned(), LOGS.to_owned())]);
    env.extend(domain_variable().map(|(name, value)| (name.to_owned(), value)));
    if role.is_some() {
        env.insert("NERVURE_STATE".to_owned(), STATE.to_owned());
    }
    let capabilities = capabilities(nodes());
    Ok(Container {
        role,
        arguments: command,
        env,
        cpu_millis: arguments.cpus,
        memory: arguments.memory,
        samples,
        capabilities,
    })
}

/// Linux capabilities that the settings of nodes need.
fn capabilities<'n>(nodes: impl Iterator<Item = &'n Node> + Clone) -> Vec<&'static str> {
    let has_priority = |node: &Node| {
        !matches!(
            node.settings.scheduling,
            Scheduling::Inherited | Scheduling::Other { nice: 0.. }
        )
    };
    let mut capabilities = Vec::new();
    if nodes.clone().any(has_priority) {
        capabilities.push("SYS_NICE");
    }
    if nodes.clone().any(|node| node.settings.memory_lock) {
        capabilities.push("IPC_LOCK");
    }
    capabilities
}

fn parse_binding(text: &str) -> Result<(String, String), String> {
    let (role, node) = text
        .split_once('=')
        .ok_or("expected `ROLE=NODE`, such as `edge=ws3`")?;
    check_machine_name(node)?;
    Ok((role.to_owned(), node.to_owned()))
}

fn parse_image(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        true => Err("expected the name of an image, such as `registry.lan/robot:7`".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Thousandths of a processor.
fn parse_cpus(text: &str) -> Result<u32, String> {
    let millis = text.parse::<f64>().ok().map(|cpus| cpus * 1000.0);
    match millis {
        Some(millis) if (1.0..=1e6).contains(&millis) && millis.fract() == 0.0 => Ok(millis as u32),
        _ => Err("expected a number from 0.001 to 1000 with at most three decimals".to_owned()),
    }
}
