//! What clients of the public socket ask for: who they are, what the dataflow looks like, and orders.
//!
//! A command that has nothing to do with observing is one arm of [`Machine::obey`].

use std::{collections::BTreeMap, time::Duration};

use nervure_protocol::{
    VERSIONS,
    cli_to_keeper::{Hello, Message, Watch},
    keeper_to_cli::{self, DataflowState, NodeDeclared, Refused, Welcome},
    keeper_to_run::{self, Level},
};

use super::{Action, Descriptor, Machine, index, stop::Phase};

/// The connections that said Hello.
#[derive(Debug, Default)]
pub(super) struct Clients(BTreeMap<usize, Client>);

#[derive(Debug)]
struct Client {
    /// `top@4711`, for people.
    name: String,
    /// The guest, or the node that joined, that it is.
    guest: Option<usize>,
}

/// Why a client is not obeyed.
pub(super) fn refused(reason: impl Into<String>, hint: Option<&str>) -> Refused {
    Refused {
        reason: reason.into(),
        hint: hint.map(str::to_owned),
    }
}

impl Machine {
    /// A client wrote a message.
    pub(super) fn client_message(
        &mut self,
        client: usize,
        pid: u32,
        message: Message,
        now: Duration,
    ) {
        let is_known = self.clients.0.contains_key(&client);
        let result = match message {
            Message::Hello(hello) if !is_known => self.greet(client, pid, &hello),
            _ if !is_known => Err(refused("the first message was not Hello", None)),
            Message::Watch(watch) => {
                self.tell_everything(client, watch);
                Ok(())
            }
            Message::Observe(observe) => self.observe(client, pid, &observe),
            Message::Join(join) => self.join(client, pid, &join, now),
            Message::Replace(replace) => self.replace(client, replace, now),
            Message::Attach(attach) => self.keep_place(client, &attach, now),
            message => self.obey(client, message, now).map(|()| {
                self.reply(client, keeper_to_cli::Message::Done, None);
            }),
        };
        if let Err(refused) = result {
            self.reply(client, keeper_to_cli::Message::Refused(refused), None);
        }
    }

    /// A client closed its connection, or died, or broke the protocol.
    pub(super) fn client_gone(&mut self, client: usize) {
        match self.clients.0.remove(&client) {
            Some(Client {
                guest: Some(node), ..
            }) if self.is_guest(node) => self.guest_gone(node),
            Some(Client {
                guest: Some(node), ..
            }) => self.departed(node),
            Some(Client { guest: None, .. }) | None => {}
        }
    }

    /// Carries out an order about the dataflow.
    fn obey(&mut self, client: usize, message: Message, now: Duration) -> Result<(), Refused> {
        match message {
            Message::Stop { reason } => {
                if !self.phase.is_stopping() {
                    self.tell_who(client, "stopped");
                }
                self.stop(reason, now);
            }
            Message::Kill => {
                if !matches!(self.phase, Phase::Killed | Phase::Finished) {
                    self.tell_who(client, "killed");
                }
                self.kill(now);
            }
            Message::Node { node, order } => {
                let name = self.clients.0[&client].name.clone();
                return self.order(&node, order, &name, now);
            }
            Message::Params { node } => return self.tell_params(client, node.as_deref()),
            Message::SetParam(set) => {
                let name = self.clients.0[&client].name.clone();
                return self.set_param(set, &name);
            }
            Message::Hello(_)
            | Message::Watch(_)
            | Message::Observe(_)
            | Message::Join(_)
            | Message::Attach(_)
            | Message::Replace(_)
            | Message::Unknown => {
                return Err(refused(
                    "this keeper does not know that command",
                    Some(
                        "the dataflow was started by another version of Nervure: use that version",
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The terminal of `nervure run` does not know of an end that it has not asked for.
    fn tell_who(&mut self, client: usize, verb: &str) {
        let text = format!(
            "the dataflow is {verb} by `{}`",
            self.name_of_client(client)
        );
        self.log(None, Level::Info, text);
    }

    fn greet(&mut self, client: usize, pid: u32, hello: &Hello) -> Result<(), Refused> {
        let version = VERSIONS.negotiate(hello.versions).map_err(|error| {
            refused(
                error.to_string(),
                Some("the dataflow was started by another version of Nervure: use that version"),
            )
        })?;
        let name = self.client_name(&hello.program, pid);
        self.clients.0.insert(client, Client { name, guest: None });
        let own = &self.nodes[..self.own_nodes];
        let welcome = Welcome {
            version,
            dataflow: self.plan.dataflow.clone(),
            library: env!("CARGO_PKG_VERSION").to_owned(),
            folder: self.plan.folder.display().to_string(),
            file: self
                .plan
                .file
                .as_ref()
                .map(|file| file.display().to_string()),
            log_folder: self
                .plan
                .log_folder
                .as_ref()
                .map_or_else(String::new, |folder| folder.display().to_string()),
            started_utc_nanos: self.plan.started_utc_nanos,
            state: match self.phase {
                Phase::Starting => DataflowState::Starting,
                Phase::Running => DataflowState::Running,
                _ => DataflowState::Stopping,
            },
            nodes: index(own.len()),
            running: index(own.iter().filter(|node| node.is_alive()).count()),
            observers: index(
                self.nodes[self.own_nodes..]
                    .iter()
                    .filter(|node| node.is_alive())
                    .count(),
            ),
            detached: self.plan.detached,
        };
        self.reply(client, keeper_to_cli::Message::Welcome(welcome), None);
        Ok(())
    }

    /// `echo@4711`, and `echo@4711.2` for another one of the same process.
    fn client_name(&self, program: &str, pid: u32) -> String {
        const LONGEST: usize = 32;
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let plain: String = program.chars().filter(is_plain).take(LONGEST).collect();
        let program = if plain.is_empty() { "client" } else { &plain };
        let first = format!("{program}@{pid}");
        let is_free = |name: &String| self.clients.0.values().all(|client| client.name != *name);
        let others = (2..).map(|number| format!("{first}.{number}"));
        std::iter::once(first.clone())
            .chain(others)
            .find(is_free)
            .expect("there are few clients")
    }

    /// What a client is called.
    pub(super) fn name_of_client(&self, client: usize) -> String {
        self.clients
            .0
            .get(&client)
            .map(|client| client.name.clone())
            .unwrap_or_default()
    }

    /// The client's connection is that of a guest, or of a node, from now on.
    pub(super) fn client_is_guest(&mut self, client: usize, node: usize) {
        if let Some(client) = self.clients.0.get_mut(&client) {
            client.guest = Some(node);
        }
    }

    /// Ends the connection of a guest, or of a node that joined.
    pub(super) fn dismiss(&mut self, node: usize) {
        let is_its = |(_, client): &(&usize, &Client)| client.guest == Some(node);
        if let Some(client) = self
            .clients
            .0
            .iter()
            .find(is_its)
            .map(|(client, _)| *client)
        {
            self.client_gone(client);
            self.actions.push(Action::Dismiss { client });
        }
    }

    /// Tells the whole state, as the reports that would have led to it.
    fn tell_everything(&mut self, client: usize, watch: Watch) {
        for node in 0..self.nodes.len() {
            if self.is_guest(node) && self.nodes[node].has_ended() {
                continue;
            }
            let plan = &self.plan.nodes[node];
            let (program, file_says) = self.described(node);
            let holds_up = self.phase == Phase::Starting && !self.is_guest(node);
            let declared = NodeDeclared {
                node: index(node),
                id: plan.id.clone(),
                program,
                file_says,
                observer: self.is_guest(node),
                attached: self.nodes[node]
                    .claim
                    .as_ref()
                    .map(|claim| claim.name.clone()),
                dynamic: plan.is_dynamic(),
                not_done: self.not_done(node).filter(|_| holds_up).map(str::to_owned),
                outputs: plan.outputs.clone(),
                inputs: plan.inputs.clone(),
            };
            self.reply(client, keeper_to_cli::Message::NodeDeclared(declared), None);
            if let Some(started) = self.nodes[node].started.clone() {
                let report = keeper_to_run::Message::NodeStarted(started);
                self.retell(client, report, Some(Descriptor::CountersReadOnly(node)));
            }
        }
        for spec in 0..self.plan.edges.len() {
            if let Some(wired) = self.last_wired(spec) {
                self.retell(client, keeper_to_run::Message::EdgeWired(wired), None);
            }
            if let Some(status) = self.wiring.status(spec).cloned() {
                self.retell(client, keeper_to_run::Message::EdgeStatus(status), None);
            }
        }
        for node in 0..self.own_nodes {
            if let (false, Some(ended)) = (
                self.nodes[node].is_alive(),
                self.nodes[node].last_end.clone(),
            ) {
                self.retell(client, keeper_to_run::Message::NodeEnded(ended), None);
            }
        }
        if self.phase == Phase::Running {
            self.retell(client, keeper_to_run::Message::Ready, None);
        }
        self.reply(client, keeper_to_cli::Message::SnapshotComplete, None);
        if watch.follow {
            self.actions.push(Action::Follow {
                client,
                logs: watch.logs,
            });
        }
    }

    fn retell(
        &mut self,
        client: usize,
        report: keeper_to_run::Message,
        descriptor: Option<Descriptor>,
    ) {
        self.reply(
            client,
            keeper_to_cli::Message::Report { report },
            descriptor,
        );
    }

    pub(super) fn reply(
        &mut self,
        client: usize,
        message: keeper_to_cli::Message,
        descriptor: Option<Descriptor>,
    ) {
        self.actions.push(Action::Reply {
            client,
            message,
            descriptor,
        });
    }

    /// A line of the keeper's own log about a client.
    pub(super) fn log_client(&mut self, level: Level, text: String) {
        self.actions.push(Action::Log {
            node: None,
            level,
            text,
        });
    }
}
