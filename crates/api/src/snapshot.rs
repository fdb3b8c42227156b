//! The figures of all dataflows and machines at one time.

use std::{
    collections::BTreeMap,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nervure_daemon::clock::ClockOffset;
use nervure_fleet::members;
use nervure_inspect::{
    State,
    edges::{Edge, Totals},
    places::{self, Everything, Found, Place},
    processes,
    state::NodeState,
    status::state_name,
    threads,
};
use nervure_node::running::{self, Remote};
use nervure_protocol::{
    daemon_to_cli::LinkFigures,
    daemon_to_daemon::{StreamReport, Usage},
    keeper_to_cli::DataflowState,
};

use crate::Error;

/// Time limit for the load of processes on other machines. A reader of metrics waits for it; a machine
/// that answers later is shown without.
const USAGES_TIMEOUT: Duration = Duration::from_millis(1500);

/// Time limit for the clocks, which the coordinator reports. It may be away, and the snapshot is complete
/// without them.
const CLOCKS_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of dataflows that are queried at the same time.
const AT_ONCE: usize = 16;

/// All figures.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Whether the daemon of this machine answers, if the machine belongs to a fleet.
    pub daemon: Option<bool>,
    /// Offsets of the machines' clocks relative to the coordinator's, if it answers.
    pub clocks: Vec<(String, ClockOffset)>,
    /// The other machines of the fleet.
    pub machines: Vec<MachineFigures>,
    pub dataflows: Vec<DataflowFigures>,
}

#[derive(Debug)]
pub struct MachineFigures {
    pub name: String,
    pub is_reachable: bool,
    pub link: Option<LinkFigures>,
}

#[derive(Debug)]
pub struct DataflowFigures {
    /// Its name, with the process of its keeper if another one has the same.
    pub name: String,
    /// `None` if its keeper does not answer.
    pub running: Option<RunningFigures>,
}

#[derive(Debug)]
pub struct RunningFigures {
    pub state: &'static str,
    pub started_utc_nanos: i64,
    pub observers: u64,
    pub nodes: Vec<NodeFigures>,
    pub edges: Vec<EdgeFigures>,
    /// What crosses machines.
    pub streams: Vec<StreamReport>,
}

#[derive(Debug)]
pub struct NodeFigures {
    pub id: String,
    /// Empty without a fleet.
    pub machine: String,
    pub state: &'static str,
    pub restarts: u32,
    /// `None` if it does not run.
    pub usage: Option<Usage>,
}

#[derive(Debug)]
pub struct EdgeFigures {
    pub topic: String,
    pub input: String,
    /// The machine of the consumer; empty without a fleet.
    pub machine: String,
    pub depth: u32,
    pub totals: Totals,
    /// Whether the counters of producer and consumer are readable.
    pub has_output: bool,
    pub has_input: bool,
}

impl Snapshot {
    /// Queries all keepers, those of other machines through the daemon.
    pub fn take() -> Result<Self, Error> {
        let (sender, clocks) = mpsc::channel();
        threads::spawn(move || {
            // Robots may not ask for them.
            drop(sender.send(members::clocks().unwrap_or_default()));
        })?;
        let everything = places::everywhere()?;
        let mut dataflows = Vec::new();
        for some in everything.dataflows.chunks(AT_ONCE) {
            thread::scope(|scope| {
                let everything = &everything;
                let ask = |found| {
                    let ask = move || DataflowFigures::of(found, everything);
                    thread::Builder::new().spawn_scoped(scope, ask)
                };
                let asked: Result<Vec<_>, _> = some.iter().map(ask).collect();
                // The panic hook has reported a panic.
                let answers = asked?.into_iter().filter_map(|one| one.join().ok());
                dataflows.extend(answers.flatten());
                Ok(())
            })
            .map_err(nervure_inspect::Error::Thread)?;
        }
        let is_reachable = |name: &str| !everything.unreachable.iter().any(|it| it.machine == name);
        let machine = |(name, link): (&String, &Option<LinkFigures>)| MachineFigures {
            name: name.clone(),
            is_reachable: is_reachable(name),
            link: *link,
        };
        Ok(Self {
            daemon: match (&everything.own, &everything.no_fleet) {
                (_, Some(_)) => Some(false),
                (Some(_), None) => Some(true),
                (None, None) => None,
            },
            clocks: clocks.recv_timeout(CLOCKS_TIMEOUT).unwrap_or_default(),
            machines: everything.links.iter().map(machine).collect(),
            dataflows,
        })
    }
}

impl DataflowFigures {
    /// `None` if the dataflow has ended meanwhile.
    fn of(found: &Found, everything: &Everything) -> Option<Self> {
        let name = found.label(&everything.dataflows);
        let keeper = found.parts.iter().find_map(|part| part.place());
        let running = RunningFigures::of(found).ok();
        let is_gone = |place: &Place| match place {
            Place::Here(address) => {
                running::dataflows().is_ok_and(|running| !running.contains(address))
            }
            Place::There { .. } => false,
        };
        match running {
            None if keeper.is_some_and(is_gone) => None,
            running => Some(Self { name, running }),
        }
    }
}

impl RunningFigures {
    fn of(found: &Found) -> Result<Self, Error> {
        let mut state = State::open(found, "serve", false)?;
        await_usages(&mut state)?;
        state.sample();
        let remotes: BTreeMap<usize, &Remote> = state
            .remotes()
            .map(|(first, remote)| (State::part_of(first), remote))
            .collect();
        let machine = |node: u32| state.machine_of(node).unwrap_or_default().to_owned();
        let node = |node: &NodeState| NodeFigures {
            id: node.declared.id.clone(),
            machine: machine(node.declared.node),
            state: node.state(),
            restarts: node.restarts(),
            usage: usage(node, &remotes),
        };
        let edge = |edge: &Edge| EdgeFigures {
            topic: edge.topic.clone(),
            input: edge.input.clone(),
            machine: machine(edge.consumer_node()),
            depth: edge.queue.depth,
            totals: edge.totals(),
            has_output: edge.has_output(),
            has_input: edge.has_input(),
        };
        let is_own = |node: &&NodeState| !node.declared.observer && state.is_shown(node);
        let nodes = state.nodes.values();
        let away = state.unreachable.iter().flat_map(|away| {
            away.nodes.keys().map(|node| NodeFigures {
                id: node.clone(),
                machine: away.machine.clone(),
                state: "unreachable",
                restarts: 0,
                usage: None,
            })
        });
        Ok(Self {
            state: state_name_of(state.dataflow_state()),
            started_utc_nanos: state.welcome().started_utc_nanos,
            observers: nodes.clone().filter(|node| node.declared.observer).count() as u64,
            nodes: nodes.filter(is_own).map(node).chain(away).collect(),
            edges: state
                .edges
                .iter()
                .filter(|edge| !edge.observer)
                .map(edge)
                .collect(),
            streams: std::mem::take(&mut state.streams),
        })
    }
}

fn state_name_of(state: DataflowState) -> &'static str {
    match state {
        DataflowState::Unknown => "unknown",
        state => state_name(state),
    }
}

/// Waits until the daemons of other machines have reported the load of processes.
fn await_usages(state: &mut State) -> Result<(), Error> {
    const STEP: Duration = Duration::from_millis(20);
    let until = Instant::now() + USAGES_TIMEOUT;
    let is_missing = |state: &State| {
        let mut remotes = state.remotes();
        remotes.any(|(_, remote)| remote.usages_at_nanos == 0)
    };
    while is_missing(state) && Instant::now() < until {
        if !state.follow_until(Instant::now() + STEP)? {
            break;
        }
    }
    Ok(())
}

fn usage(node: &NodeState, remotes: &BTreeMap<usize, &Remote>) -> Option<Usage> {
    let pid = node.pid()?;
    match (
        remotes.get(&State::part_of(node.declared.node)),
        node.thread(),
    ) {
        (None, None) => processes::of_node(pid),
        (None, Some(thread)) => processes::of_thread(pid, thread),
        (Some(remote), None) => remote.usages.iter().find(|usage| usage.pid == pid).copied(),
        // The other daemon reports processes only, and several nodes share this one.
        (Some(_), Some(_)) => None,
    }
}
