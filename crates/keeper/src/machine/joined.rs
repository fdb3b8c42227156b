//! Processes that the keeper did not start, and that are nodes of the file: those with `path: dynamic`, and whatever
//! runs in the place of a node that somebody has attached to.
//!
//! Such a process is wired, counted and told of as any other. It is nobody's to start, to signal or to watch: what the
//! keeper can do is to close its connection. Until it comes, and after it is gone, its node is held: its neighbours keep
//! their inputs open. Nobody waits for a dynamic node, neither the start of the dataflow nor its end, nor a producer.

use std::time::Duration;

use nervure_protocol::{
    cli_to_keeper::{Attach, Join},
    keeper_to_cli::{self, Attached, Refused},
    keeper_to_run::{self, Level},
    wiring::Source,
};

use super::{
    Action, Machine, State,
    clients::refused,
    index,
    orders::{HELD, Then},
};

/// A node's place that is kept for a program of a client's.
#[derive(Debug)]
pub(super) struct Claim {
    client: usize,
    /// The client's name, for people.
    pub name: String,
    token: String,
    leave_stopped: bool,
}

impl Machine {
    /// True when the keeper starts no process for the node.
    pub(super) fn is_dynamic(&self, node: usize) -> bool {
        self.plan.nodes[node].is_dynamic()
    }

    /// True when the node's process, or the guest, is not the keeper's to signal.
    pub(super) fn is_foreign(&self, node: usize) -> bool {
        self.is_guest(node) || self.nodes[node].joined
    }

    /// Makes a client's process that of a node.
    pub(super) fn join(
        &mut self,
        client: usize,
        pid: u32,
        request: &Join,
        now: Duration,
    ) -> Result<(), Refused> {
        let node = self.find_node(&request.node)?;
        let id = &request.node;
        if self.keeps_place(client) {
            return Err(refused(
                "who keeps a node's place joins on a connection of its own",
                None,
            ));
        }
        if self.phase.is_stopping() {
            return Err(refused("the dataflow is stopping", None));
        }
        let expected = match &self.nodes[node].claim {
            Some(claim) => Some(&claim.token),
            None if self.is_dynamic(node) => self.plan.join_token.as_ref(),
            None => {
                let hint = format!(
                    "`nervure attach {id} -- COMMAND` runs a program in its place; `path: dynamic` in the file lets \
                     any program join"
                );
                return Err(refused(
                    format!("node `{id}` is started by its keeper"),
                    Some(&hint),
                ));
            }
        };
        if expected != Some(&request.token) {
            let hint = "the token of a run is in its log folder, for its user alone; that of `nervure attach` is in the \
                        environment of its command, and ends with it";
            return Err(refused(
                format!("the token does not open node `{id}`"),
                Some(hint),
            ));
        }
        if self.nodes[node].is_alive() {
            let taken_by = self.nodes[node]
                .started
                .as_ref()
                .map_or(0, |started| started.pid);
            return Err(if taken_by == pid {
                let hint = "drop the first, in Python with `del node`, before another is made";
                refused(format!("this process is node `{id}` already"), Some(hint))
            } else {
                let hint = "end that process, or let it drop its node";
                refused(
                    format!("node `{id}` is taken: process {taken_by} is it"),
                    Some(hint),
                )
            });
        }
        self.client_is_guest(client, node);
        let state = &mut self.nodes[node];
        state.state = State::Spawned;
        state.ready = false;
        state.left = false;
        state.condemned = None;
        state.ordered = None;
        state.joined = true;
        self.reply(client, keeper_to_cli::Message::Joined, None);
        self.actions.push(Action::Admit { client, node });
        self.log(Some(node), Level::Info, format!("process {pid} has joined"));
        self.started(node, pid, now);
        Ok(())
    }

    /// The process that was a node is gone, or its connection is closed.
    pub(super) fn departed(&mut self, node: usize) {
        let is_stopping = self.phase.is_stopping();
        let state = &mut self.nodes[node];
        state.joined = false;
        let condemned = state.condemned.take();
        let ordered = state.ordered.take();
        let failed = condemned.is_some() || !(state.left || ordered.is_some() || is_stopping);
        let starts = ordered == Some(Then::Start) && !is_stopping;
        let what = condemned.unwrap_or_else(|| match (state.left, failed) {
            (true, _) => "it left".to_owned(),
            (false, true) => "it is gone without a word: it was killed, or crashed".to_owned(),
            (false, false) => "it is gone".to_owned(),
        });
        let ended = keeper_to_run::NodeEnded {
            node: index(node),
            id: self.plan.nodes[node].id.clone(),
            incarnation: state.incarnation,
            code: None,
            signal: None,
            failed,
            restarts: starts,
            reason: match (is_stopping, starts) {
                (true, _) => what,
                (false, true) => format!("{what}; the node's own program starts again"),
                (false, false) => format!("{what}; its place is free"),
            },
            overdue: false,
            stderr_tail: Vec::new(),
        };
        self.gone(node, ended, (!is_stopping).then_some(HELD));
        self.actions.push(Action::Part { node });
        if starts {
            self.start_by_hand(node);
        }
    }

    /// Keeps a node's place for a program of a client's.
    pub(super) fn keep_place(
        &mut self,
        client: usize,
        request: &Attach,
        now: Duration,
    ) -> Result<(), Refused> {
        let (node, id) = (self.find_node(&request.node)?, &request.node);
        if self.phase.is_stopping() {
            return Err(refused("the dataflow is stopping", None));
        }
        if self.is_dynamic(node) {
            let hint = format!("any program joins as it: `Node(\"{id}\")` in Python");
            return Err(refused(
                format!("node `{id}` has `path: dynamic`"),
                Some(&hint),
            ));
        }
        self.check_free(node)?;
        let (name, token) = (self.name_of_client(client), request.token.clone());
        let claim = Claim {
            client,
            name: name.clone(),
            token,
            leave_stopped: request.leave_stopped,
        };
        self.nodes[node].claim = Some(claim);
        if self.nodes[node].is_alive() {
            self.end_by_hand(node, Then::Hold, format!("stopped by `{name}`"), now);
        } else if self.nodes[node].has_ended() {
            self.expect_again(node);
            self.nodes[node].state = State::Waiting { until: HELD };
        } else if !self.nodes[node].is_held() {
            self.hold_waiting(node);
        }
        let plan = &self.plan.nodes[node];
        let attached = Attached {
            program: plan.program.clone(),
            args: plan.args.clone(),
            env: plan.env.clone(),
            folder: self.plan.folder.display().to_string(),
        };
        self.reply(client, keeper_to_cli::Message::Attached(attached), None);
        Ok(())
    }

    /// Refuses what cannot be done to a node while somebody is attached to it, or it gets another program.
    pub(super) fn check_free(&self, node: usize) -> Result<(), Refused> {
        let id = &self.plan.nodes[node].id;
        if let Some(claim) = &self.nodes[node].claim {
            let reason = format!("`{}` is attached to node `{id}`", claim.name);
            return Err(refused(
                reason,
                Some("the node is given back when that ends"),
            ));
        }
        if self.nodes[node].replacement.is_some() {
            let reason = format!("node `{id}` gets another program, which is not ready yet");
            return Err(refused(reason, Some("try again when that is decided")));
        }
        Ok(())
    }

    /// Whether a client keeps a node's place for a program.
    pub fn keeps_place(&self, client: usize) -> bool {
        let is_its = |claim: &Claim| claim.client == client;
        self.nodes[..self.own_nodes]
            .iter()
            .any(|node| node.claim.as_ref().is_some_and(is_its))
    }

    /// A client is gone: gives back the nodes that it was attached to.
    pub(super) fn give_back(&mut self, client: usize, now: Duration) {
        for node in 0..self.own_nodes {
            let is_its = |claim: &mut Claim| claim.client == client;
            let Some(claim) = self.nodes[node].claim.take_if(is_its) else {
                continue;
            };
            if self.phase.is_stopping() {
                continue;
            }
            let then = if claim.leave_stopped {
                Then::Hold
            } else {
                Then::Start
            };
            if self.nodes[node].joined {
                // It counts what it takes until it has left, and the next counts on from there.
                self.end_by_hand(
                    node,
                    then,
                    format!("`{}` has given the node back", claim.name),
                    now,
                );
            } else if self.nodes[node].is_alive() {
                // Its own process has not ended yet since it was told to.
                self.nodes[node].ordered = Some(then);
            } else if then == Then::Start {
                self.start_by_hand(node);
            }
        }
    }

    /// When nothing is left but dynamic nodes, the dataflow is over.
    pub(super) fn check_only_dynamic_left(&mut self, now: Duration) {
        let has_ended = |node: usize| self.nodes[node].has_ended();
        let mut started = (0..self.own_nodes)
            .filter(|&node| !self.is_dynamic(node))
            .peekable();
        let is_over = started.peek().is_some() && started.all(has_ended);
        if is_over && !(0..self.own_nodes).all(has_ended) {
            self.stop("all other nodes have ended".to_owned(), now);
        }
    }

    /// True when the node ends by itself once it has received what is queued, so that a Stop would overtake that.
    pub(super) fn ends_with_its_inputs(&self, node: usize) -> bool {
        let has_timer = self.plan.nodes[node]
            .inputs
            .iter()
            .any(|input| matches!(input.source, Source::Timer { .. }));
        self.nodes[node].joined && !has_timer && self.inputs_are_over(node)
    }
}
