//! Makes the plan of a keeper from the graph of a file: gives each node its own view of its inputs
//! and outputs.

use std::{
    fs::{self, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use nervure_dataflow::{self as dataflow, Dataflow};
use nervure_keeper::plan::{EdgePlan, NodePlan, Plan, lease_rows};
use nervure_protocol::{
    TOKEN_FILE,
    nanos::nanos,
    wiring::{self, ClientSpec, InputSpec, OutputSpec, ServiceClientSpec, ServiceSpec, Source},
};

use crate::{error::Error, memory::default_shared_memory};

/// The plan of a dataflow. Nodes that join need a folder for their token.
pub(crate) fn plan(
    dataflow: &Dataflow,
    log_folder: Option<PathBuf>,
    grace: Duration,
    detached: bool,
) -> Result<Plan, Error> {
    let memory = default_shared_memory()
        .map_err(|error| Error::internal("cannot read how much memory there is").because(error))?;
    let NodePlans { nodes, edges } = plan_nodes(dataflow, memory);
    let token_folder = log_folder
        .as_deref()
        .filter(|_| has_dynamic_nodes(dataflow));
    let join_token = token_folder.map(write_token).transpose()?;
    Ok(Plan {
        end_note: None,
        dataflow: dataflow.name.clone(),
        folder: dataflow.directory.clone(),
        file: None,
        log_folder,
        log_limit: None,
        started_utc_nanos: nervure_shm::utc_nanos(),
        detached,
        clock: None,
        grace,
        join_token,
        static_transforms: dataflow.static_transforms.clone(),
        nodes,
        edges,
    })
}

/// The nodes and edges of a plan.
pub(crate) struct NodePlans {
    pub nodes: Vec<NodePlan>,
    pub edges: Vec<EdgePlan>,
}

/// Plans the nodes and edges of a dataflow. `memory` is the default limit on a node's shared memory,
/// in bytes.
pub(crate) fn plan_nodes(dataflow: &Dataflow, memory: u64) -> NodePlans {
    let edges = dataflow.edges.iter().map(|edge| EdgePlan {
        producer: edge.from.node,
        output: edge.from.output,
        consumer: edge.to.node,
        input: edge.to.input,
        queue: dataflow.input(edge).queue.into(),
    });
    let edges: Vec<_> = edges.collect();
    let nodes = dataflow
        .nodes
        .iter()
        .enumerate()
        .map(|(index, node)| node_plan(dataflow, index, node, &edges, memory));
    NodePlans {
        nodes: nodes.collect(),
        edges,
    }
}

/// Whether processes can join the dataflow.
pub(crate) fn has_dynamic_nodes(dataflow: &Dataflow) -> bool {
    dataflow.nodes.iter().any(|node| node.program.is_joined())
}

/// A token that admits a process as a node: 128 random bits in hexadecimal.
///
/// # Errors
/// If the system gives no random bits.
pub fn make_token() -> Result<String, Error> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(|error| Error::internal("cannot make a token from /dev/urandom").because(error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Makes the token for nodes with `path: dynamic`, in a file that only this user can read.
fn write_token(log_folder: &Path) -> Result<String, Error> {
    let path = log_folder.join(TOKEN_FILE);
    let token = make_token()?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    file.and_then(|mut file| file.write_all(token.as_bytes()))
        .map_err(|error| {
            Error::internal(format!(
                "the token for nodes with `path: dynamic` cannot be written to {}",
                path.display()
            ))
            .because(error)
        })?;
    Ok(token)
}

/// An input without a type of its own has the one of its output.
fn input_spec(dataflow: &Dataflow, input: &dataflow::Input) -> InputSpec {
    let (source, output) = match input.source {
        dataflow::Source::Timer { period_nanos } => (Source::Timer { period_nanos }, None),
        dataflow::Source::Output { node, output } => {
            let node = &dataflow.nodes[node];
            let output = &node.outputs[output];
            let topic = wiring::topic(&node.id, &output.name);
            (Source::Output { topic }, Some(output))
        }
    };
    let of_output = output.and_then(|output| output.type_name.as_ref());
    let type_name = input.type_name.as_ref().or(of_output);
    InputSpec {
        name: input.name.clone(),
        source,
        queue: output.map(|_| input.queue.into()),
        type_name: type_name.map(ToString::to_string),
        expect_every_nanos: input.expect_every.map(nanos),
        history: output.map_or(0, |output| output.history),
    }
}

fn node_plan(
    dataflow: &Dataflow,
    index: usize,
    node: &dataflow::Node,
    edges: &[EdgePlan],
    memory: u64,
) -> NodePlan {
    let output = |(output, spec): (usize, &dataflow::Output)| {
        let queues = edges
            .iter()
            .filter(|edge| (edge.producer, edge.output) == (index, output));
        OutputSpec {
            name: spec.name.clone(),
            history: spec.history,
            blocks: lease_rows(queues.map(|edge| edge.queue), spec.history),
            type_name: spec.type_name.as_ref().map(ToString::to_string),
        }
    };
    NodePlan {
        id: node.id.clone(),
        program: node.program.clone(),
        settings: node.settings.clone(),
        outputs: node.outputs.iter().enumerate().map(output).collect(),
        types: node.portable_types(),
        inputs: node
            .inputs
            .iter()
            .map(|input| input_spec(dataflow, input))
            .collect(),
        shared_memory_bytes: node.shared_memory.unwrap_or(memory),
        services: node
            .services
            .iter()
            .map(|service| service_spec(dataflow, service))
            .collect(),
        clients: node
            .clients
            .iter()
            .map(|client| client_spec(dataflow, client))
            .collect(),
    }
}

fn service_spec(dataflow: &Dataflow, service: &dataflow::Service) -> ServiceSpec {
    let client = |client: &dataflow::ServiceClient| ServiceClientSpec {
        node: dataflow.nodes[client.node].id.clone(),
        input: index(client.input),
        output: index(client.output),
        feedback: client.feedback.map(index),
    };
    ServiceSpec {
        name: service.name.clone(),
        clients: service.clients.iter().map(client).collect(),
        tools: service.tools.map(index),
        action: service.action,
    }
}

fn client_spec(dataflow: &Dataflow, client: &dataflow::Client) -> ClientSpec {
    let server = &dataflow.nodes[client.server];
    ClientSpec {
        name: client.name.clone(),
        service: format!("{}/{}", server.id, server.services[client.service].name),
        output: index(client.output),
        input: index(client.input),
        feedback: client.feedback.map(index),
    }
}

fn index(index: usize) -> u32 {
    u32::try_from(index).expect("a file has fewer than 2^32 of anything")
}
