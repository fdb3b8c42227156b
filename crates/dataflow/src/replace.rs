//! Replaces several nodes by one.
//!
//! Nodes name each other by index, in several structures. [`Renumbering`] destructures each of them
//! without `..`: a new field does not compile until its indices, if it has any, are renumbered.

use std::collections::{BTreeMap, BTreeSet};

use nervure_protocol::wiring;

use crate::graph::{
    Client, Dataflow, Edge, Input, InputIndex, Node, Output, OutputIndex, Service, ServiceClient,
    Source,
};

/// Index of the node that stands in for others.
const STAND_IN: usize = 0;

/// A remaining node is the client of a replaced service: its requests would have no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredClient {
    /// Id of the node that makes requests.
    pub client: String,
    /// Id of the node that answers them, which is to be replaced.
    pub server: String,
    /// Name of the service.
    pub service: String,
}

impl Dataflow {
    /// Replaces the nodes with the indices `replaced` by `stand_in`, which becomes the first node;
    /// the others keep their order. After its own outputs it gets the outputs of the replaced nodes, which
    /// keep their topics, and the requests of replaced clients come from it.
    ///
    /// # Errors
    /// [`UnansweredClient`] if a remaining node is the client of a replaced one.
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
            mut edges,
            machines,
            labels,
            resources,
            static_transforms,
        } = self;
        edges.retain(|edge| !replaced.contains(&edge.to.node));
        for edge in &mut edges {
            renumbering.renumber_edge(edge);
        }
        let mut all = vec![stand_in];
        for (index, mut node) in nodes.into_iter().enumerate() {
            if !replaced.contains(&index) {
                renumbering.renumber_node(&mut node);
                all.push(node);
            }
        }
        Ok(Dataflow {
            name,
            directory,
            env,
            nodes: all,
            edges,
            machines,
            labels,
            resources,
            static_transforms,
        })
    }

    fn check_servers(&self, replaced: &BTreeSet<usize>) -> Result<(), UnansweredClient> {
        for &index in replaced {
            let server = &self.nodes[index];
            for service in &server.services {
                let is_kept = |client: &&ServiceClient| !replaced.contains(&client.node);
                if let Some(client) = service.clients.iter().find(is_kept) {
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
    /// New indices of the outputs of replaced nodes; other nodes' outputs keep theirs.
    outputs: BTreeMap<OutputIndex, usize>,
}

impl Renumbering {
    /// Adds the outputs of the replaced nodes to the stand-in.
    fn new(dataflow: &Dataflow, replaced: &BTreeSet<usize>, stand_in: &mut Node) -> Self {
        let mut outputs = BTreeMap::new();
        let mut nodes = Vec::new();
        let mut last_kept = STAND_IN;
        for (node, old) in dataflow.nodes.iter().enumerate() {
            if !replaced.contains(&node) {
                last_kept += 1;
                nodes.push(last_kept);
                continue;
            }
            nodes.push(STAND_IN);
            for (output, spec) in old.outputs.iter().enumerate() {
                outputs.insert(OutputIndex { node, output }, stand_in.outputs.len());
                let name = wiring::absolute_output(&wiring::topic(&old.id, &spec.name));
                stand_in.outputs.push(Output {
                    name,
                    ..spec.clone()
                });
            }
        }
        Self { nodes, outputs }
    }

    fn renumber_output(&self, node: &mut usize, output: &mut usize) {
        let old = OutputIndex {
            node: *node,
            output: *output,
        };
        if let Some(&new) = self.outputs.get(&old) {
            *output = new;
        }
        *node = self.nodes[old.node];
    }

    fn renumber_edge(&self, edge: &mut Edge) {
        let Edge {
            from: OutputIndex { node, output },
            to: InputIndex {
                node: consumer,
                input: _,
            },
        } = edge;
        self.renumber_output(node, output);
        *consumer = self.nodes[*consumer];
    }

    /// A remaining node. Indices of its own inputs and outputs do not change.
    fn renumber_node(&self, node: &mut Node) {
        let Node {
            inputs,
            services,
            clients,
            id: _,
            machine: _,
            stops_on_partition: _,
            name: _,
            description: _,
            program: _,
            is_built: _,
            settings: _,
            build: _,
            git: _,
            outputs: _,
            types: _,
            shared_memory: _,
            line: _,
        } = node;
        for input in inputs {
            self.renumber_input(input);
        }
        for Service {
            name: _,
            clients,
            tools: _,
            action: _,
        } in services
        {
            for client in clients {
                let ServiceClient {
                    node,
                    input: _,
                    output: _,
                    feedback: _,
                } = client;
                *node = self.nodes[*node];
            }
        }
        for client in clients {
            let Client {
                name: _,
                server,
                service: _,
                output: _,
                input: _,
                feedback: _,
            } = client;
            *server = self.nodes[*server];
        }
    }

    fn renumber_input(&self, input: &mut Input) {
        let Input {
            source,
            name: _,
            queue: _,
            type_name: _,
            expect_every: _,
            qos: _,
            line: _,
        } = input;
        match source {
            Source::Timer { period_nanos: _ } => {}
            Source::Output { node, output } => self.renumber_output(node, output),
        }
    }
}
