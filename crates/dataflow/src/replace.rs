//! One node in the place of others.
//!
//! Nodes name each other by index, in many places. [`Renumbering`] takes every structure of the graph apart without `..`,
//! so that a new field that holds an index cannot be forgotten: it does not compile.

use std::collections::{BTreeMap, BTreeSet};

use nervure_protocol::wiring;

use crate::graph::{
    Client, Dataflow, Edge, Input, InputIndex, Node, Output, OutputIndex, Service, ServiceClient,
    Source,
};

/// Index of the node that stands in for others.
const STAND_IN: usize = 0;

/// A node that stays asks for a service of a node that is to be replaced, and would wait for its answers in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredClient {
    /// Id of the node that asks.
    pub client: String,
    /// Id of the node that answers, which is to be replaced.
    pub server: String,
    /// Name of the service.
    pub service: String,
}

impl Dataflow {
    /// Puts a node in the place of those with the indices `replaced`. It becomes the first node; the others keep their
    /// order. Behind its own outputs it gets those of the replaced nodes, named `node/output`. Requests of replaced clients
    /// come from it.
    ///
    /// # Errors
    /// [`UnansweredClient`] if a node that stays asks for a service of a replaced one.
    ///
    /// # Panics
    /// If `stand_in` has inputs, services or clients, which would have no edges.
    pub fn replace(
        self,
        replaced: &BTreeSet<usize>,
        mut stand_in: Node,
    ) -> Result<Dataflow, UnansweredClient> {
        assert!(
            stand_in.inputs.is_empty()
                && stand_in.services.is_empty()
                && stand_in.clients.is_empty()
        );
        self.check_servers(replaced)?;
        let renumbering = Renumbering::new(&self, replaced, &mut stand_in);
        let Dataflow {
            name,
            directory,
            env,
            nodes,
            edges,
        } = self;
        let edges = edges
            .into_iter()
            .filter(|edge| !replaced.contains(&edge.to.node));
        let edges = edges.map(|edge| renumbering.edge(edge)).collect();
        let kept = nodes
            .into_iter()
            .enumerate()
            .filter(|(index, _)| !replaced.contains(index));
        let kept = kept.map(|(_, node)| renumbering.node(node));
        let nodes = std::iter::once(stand_in).chain(kept).collect();
        Ok(Dataflow {
            name,
            directory,
            env,
            nodes,
            edges,
        })
    }

    fn check_servers(&self, replaced: &BTreeSet<usize>) -> Result<(), UnansweredClient> {
        for &index in replaced {
            let server = &self.nodes[index];
            for service in &server.services {
                if let Some(client) = service
                    .clients
                    .iter()
                    .find(|client| !replaced.contains(&client.node))
                {
                    return Err(UnansweredClient {
                        client: self.nodes[client.node].id.clone(),
                        server: server.id.clone(),
                        service: service.name.clone(),
                    });
                }
            }
        }
        Ok(())
    }
}

/// New indices by old ones.
struct Renumbering {
    nodes: Vec<usize>,
    /// Of replaced nodes.
    outputs: BTreeMap<OutputIndex, usize>,
}

impl Renumbering {
    /// Adds the outputs of the replaced nodes to the stand-in.
    fn new(dataflow: &Dataflow, replaced: &BTreeSet<usize>, stand_in: &mut Node) -> Self {
        let mut outputs = BTreeMap::new();
        let mut nodes = Vec::new();
        let mut kept = STAND_IN;
        for (node, old) in dataflow.nodes.iter().enumerate() {
            if !replaced.contains(&node) {
                kept += 1;
                nodes.push(kept);
                continue;
            }
            nodes.push(STAND_IN);
            for (output, spec) in old.outputs.iter().enumerate() {
                outputs.insert(OutputIndex { node, output }, stand_in.outputs.len());
                let name = wiring::topic(&old.id, &spec.name);
                stand_in.outputs.push(Output {
                    name,
                    ..spec.clone()
                });
            }
        }
        Self { nodes, outputs }
    }

    fn output(&self, old: OutputIndex) -> OutputIndex {
        let output = self.outputs.get(&old).copied().unwrap_or(old.output);
        OutputIndex {
            node: self.nodes[old.node],
            output,
        }
    }

    fn edge(&self, edge: Edge) -> Edge {
        let Edge {
            from,
            to: InputIndex { node, input },
        } = edge;
        Edge {
            from: self.output(from),
            to: InputIndex {
                node: self.nodes[node],
                input,
            },
        }
    }

    /// A node that stays. Indices of its own inputs and outputs stay with it.
    fn node(&self, node: Node) -> Node {
        let Node {
            id,
            name,
            description,
            program,
            is_built,
            args,
            env,
            build,
            inputs,
            outputs,
            restart,
            startup_timeout,
            health_check_timeout,
            services,
            clients,
            params,
            on_failure,
            cpu_affinity,
            scheduling,
            ready,
            loop_deadline,
            shared_memory,
            line,
        } = node;
        Node {
            id,
            name,
            description,
            program,
            is_built,
            args,
            env,
            build,
            inputs: inputs.into_iter().map(|input| self.input(input)).collect(),
            outputs,
            restart,
            startup_timeout,
            health_check_timeout,
            services: services
                .into_iter()
                .map(|service| self.service(service))
                .collect(),
            clients: clients
                .into_iter()
                .map(|client| self.client(client))
                .collect(),
            params,
            on_failure,
            cpu_affinity,
            scheduling,
            ready,
            loop_deadline,
            shared_memory,
            line,
        }
    }

    fn input(&self, input: Input) -> Input {
        let Input {
            name,
            source,
            queue,
            type_name,
            expect_every,
            line,
        } = input;
        let source = match source {
            Source::Timer { period_nanos } => Source::Timer { period_nanos },
            Source::Output { node, output } => {
                let OutputIndex { node, output } = self.output(OutputIndex { node, output });
                Source::Output { node, output }
            }
        };
        Input {
            name,
            source,
            queue,
            type_name,
            expect_every,
            line,
        }
    }

    fn service(&self, service: Service) -> Service {
        let Service { name, clients } = service;
        let client = |ServiceClient {
                          node,
                          input,
                          output,
                      }| ServiceClient {
            node: self.nodes[node],
            input,
            output,
        };
        Service {
            name,
            clients: clients.into_iter().map(client).collect(),
        }
    }

    fn client(&self, client: Client) -> Client {
        let Client {
            name,
            server,
            service,
            output,
            input,
        } = client;
        Client {
            name,
            server: self.nodes[server],
            service,
            output,
            input,
        }
    }
}
