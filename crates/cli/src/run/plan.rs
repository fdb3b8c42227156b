//! From the graph of a file to the plan of a keeper.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use nervure_dataflow::{self as dataflow, Dataflow};
use nervure_keeper::plan::{
    EdgePlan, LastValuePlan, NodePlan, Plan, Program, RestartPlan, RestartPolicy, Scheduling,
    lease_rows,
};
use nervure_protocol::{
    TOKEN_FILE,
    wiring::{
        self, ClientSpec, InputSpec, LoopDeadline, OutputSpec, Policy, Queue, ServiceClientSpec,
        ServiceSpec, Source,
    },
};

use crate::{failure::Failure, token};

/// The plan of a dataflow. With nodes that join it needs a folder for their token.
pub fn plan(
    dataflow: &Dataflow,
    log_folder: Option<PathBuf>,
    grace: Duration,
    detached: bool,
) -> Result<Plan, Failure> {
    let memory = default_shared_memory()?;
    let edges = dataflow.edges.iter().map(|edge| EdgePlan {
        producer: edge.from.node,
        output: edge.from.output,
        consumer: edge.to.node,
        input: edge.to.input,
        queue: queue(dataflow.input(edge).queue),
    });
    let edges: Vec<_> = edges.collect();
    let token_folder = log_folder
        .as_deref()
        .filter(|_| has_dynamic_nodes(dataflow));
    let join_token = token_folder.map(write_token).transpose()?;
    let nodes = dataflow
        .nodes
        .iter()
        .enumerate()
        .map(|(index, node)| node_plan(dataflow, index, node, &edges, memory));
    Ok(Plan {
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
        nodes: nodes.collect(),
        edges,
    })
}

/// Whether processes can join it.
pub fn has_dynamic_nodes(dataflow: &Dataflow) -> bool {
    dataflow
        .nodes
        .iter()
        .any(|node| node.program == dataflow::Program::Dynamic)
}

/// Makes up the token for nodes with `path: dynamic`, and leaves it where only this user finds it.
fn write_token(log_folder: &Path) -> Result<String, Failure> {
    let path = log_folder.join(TOKEN_FILE);
    let token = token::make()?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    file.and_then(|mut file| file.write_all(token.as_bytes()))
        .map_err(|error| {
            Failure::internal(format!(
                "the token for nodes with `path: dynamic` cannot be written to {}",
                path.display()
            ))
            .because(error)
        })?;
    Ok(token)
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
    let input = |input: &dataflow::Input| InputSpec {
        name: input.name.clone(),
        source: match input.source {
            dataflow::Source::Timer { period_nanos } => Source::Timer { period_nanos },
            dataflow::Source::Output { node, output } => {
                let node = &dataflow.nodes[node];
                Source::Output {
                    topic: wiring::topic(&node.id, &node.outputs[output].name),
                }
            }
        },
        queue: matches!(input.source, dataflow::Source::Output { .. }).then(|| queue(input.queue)),
        type_name: input.type_name.as_ref().map(ToString::to_string),
        expect_every_nanos: input.expect_every.map(nanos),
        history: match input.source {
            dataflow::Source::Timer { .. } => 0,
            dataflow::Source::Output { node, output } => {
                dataflow.nodes[node].outputs[output].history
            }
        },
    };
    NodePlan {
        id: node.id.clone(),
        program: match &node.program {
            dataflow::Program::Python { script } => Program::Python(script.clone()),
            dataflow::Program::Executable { file } => Program::Executable(file.clone()),
            dataflow::Program::Command { name } => Program::Command(name.clone()),
            dataflow::Program::Dynamic => Program::Dynamic,
        },
        args: node.args.clone(),
        env: node.env.clone(),
        manual_ready: node.ready == dataflow::Ready::Manual,
        outputs: node.outputs.iter().enumerate().map(output).collect(),
        inputs: node.inputs.iter().map(input).collect(),
        loop_deadline: node.loop_deadline.map(|deadline| LoopDeadline {
            input: u32::try_from(deadline.input).expect("a node has fewer than 2^32 inputs"),
            finish_within_nanos: nanos(deadline.finish_within),
        }),
        shared_memory_bytes: node.shared_memory.unwrap_or(memory),
        restart: restart(&node.restart),
        startup_timeout: node.startup_timeout,
        health_check_timeout: node.health_check_timeout,
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
        params: node.params.clone(),
        on_failure: node.on_failure.iter().map(last_value).collect(),
        cpu_affinity: node.cpu_affinity.clone(),
        scheduling: match node.scheduling {
            dataflow::Scheduling::Inherited => Scheduling::Inherited,
            dataflow::Scheduling::Other { nice } => Scheduling::Other { nice },
            dataflow::Scheduling::Fifo { priority } => Scheduling::Fifo { priority },
            dataflow::Scheduling::RoundRobin { priority } => Scheduling::RoundRobin { priority },
        },
    }
}

/// A file cannot ask for more than a year.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn queue(queue: dataflow::Queue) -> Queue {
    let policy = match queue.policy {
        dataflow::QueuePolicy::DropOldest | dataflow::QueuePolicy::Latest => Policy::DropOldest,
        dataflow::QueuePolicy::DropNewest => Policy::DropNewest,
        dataflow::QueuePolicy::Block => Policy::Block,
    };
    Queue {
        policy,
        depth: queue.depth,
        max_held: queue.max_held,
    }
}

fn service_spec(dataflow: &Dataflow, service: &dataflow::Service) -> ServiceSpec {
    let client = |client: &dataflow::ServiceClient| ServiceClientSpec {
        node: dataflow.nodes[client.node].id.clone(),
        input: index(client.input),
        output: index(client.output),
    };
    ServiceSpec {
        name: service.name.clone(),
        clients: service.clients.iter().map(client).collect(),
    }
}

fn client_spec(dataflow: &Dataflow, client: &dataflow::Client) -> ClientSpec {
    let server = &dataflow.nodes[client.server];
    ClientSpec {
        name: client.name.clone(),
        service: format!("{}/{}", server.id, server.services[client.service].name),
        output: index(client.output),
        input: index(client.input),
    }
}

fn index(index: usize) -> u32 {
    u32::try_from(index).expect("a file has fewer than 2^32 of anything")
}

fn last_value(last: &dataflow::LastValue) -> LastValuePlan {
    LastValuePlan {
        output: last.output,
        value: last.value.clone(),
    }
}

fn restart(restart: &dataflow::Restart) -> RestartPlan {
    RestartPlan {
        policy: match restart.policy {
            dataflow::RestartPolicy::Never => RestartPolicy::Never,
            dataflow::RestartPolicy::OnFailure => RestartPolicy::OnFailure,
            dataflow::RestartPolicy::Always => RestartPolicy::Always,
        },
        delay: restart.delay,
        max_delay: restart.max_delay,
        max_restarts: restart.max_restarts,
        window: restart.window,
    }
}

/// Half of what this machine, or the container, has.
fn default_shared_memory() -> Result<u64, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::internal("cannot read how much memory there is").because(error)
    };
    let meminfo = fs::read_to_string("/proc/meminfo").map_err(unreadable)?;
    let kibibytes = meminfo.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?
            .trim()
            .strip_suffix("kB")?
            .trim()
            .parse::<u64>()
            .ok()
    });
    let physical = kibibytes
        .ok_or_else(|| unreadable(std::io::Error::other("no MemTotal in /proc/meminfo")))?
        * 1024;
    Ok(cgroup_limit().unwrap_or(u64::MAX).min(physical) / 2)
}

/// The lowest limit of the control groups (version 2) that this process is in; `None` when there is none.
fn cgroup_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let leaf = PathBuf::from("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    let limit = |folder: &std::path::Path| {
        fs::read_to_string(folder.join("memory.max"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    leaf.ancestors()
        .take_while(|folder| folder.starts_with("/sys/fs/cgroup"))
        .filter_map(limit)
        .min()
}
