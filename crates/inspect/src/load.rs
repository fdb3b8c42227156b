//! The load of nodes and the traffic on edges.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use nervure_node::running::Remote;

use crate::{
    Error, State,
    answers::{Load, LoadOfEdge, LoadOfNode},
    edges::Edge,
    processes::{Processes, Usage},
    state::NodeState,
    status::{age, state_name},
};

/// The load over an interval.
///
/// # Errors
/// If the dataflow cannot be found or reached.
pub fn load(dataflow: &str, interval: Duration) -> Result<Load, Error> {
    let mut state = State::find(Some(dataflow), "top", true)?;
    let mut processes = Processes::default();
    read_usages(&mut state, &mut processes);
    state.follow_until(Instant::now() + interval)?;
    let usages = read_usages(&mut state, &mut processes);
    Ok(Load::of(&state, &usages))
}

/// Nodes by index, with the CPU and memory that they use.
pub type Usages = Vec<(u32, Option<Usage>)>;

/// Reads the counters, and the use of each shown node since the last reading.
pub fn read_usages(state: &mut State, processes: &mut Processes) -> Usages {
    state.sample();
    let remotes: BTreeMap<usize, &Remote> = state
        .remotes()
        .map(|(first, remote)| (State::part_of(first), remote))
        .collect();
    let usage = |(index, node): (&u32, &NodeState)| {
        let of_pid = |pid| match remotes.get(&State::part_of(*index)) {
            Some(remote) => processes.usage_of_other(State::part_of(*index), remote, pid),
            None => match node.thread() {
                Some(thread) => processes.usage_of_thread(pid, thread),
                None => processes.usage(pid),
            },
        };
        (*index, node.pid().and_then(of_pid))
    };
    let shown = state.nodes.iter().filter(|(_, node)| state.is_shown(node));
    shown.map(usage).collect()
}

impl Load {
    /// The load at the last reading.
    pub fn of(state: &State, usages: &Usages) -> Self {
        let welcome = state.welcome();
        let node = |(index, usage): &(u32, Option<Usage>)| {
            let node = &state.nodes[index];
            LoadOfNode {
                id: node.declared.id.clone(),
                machine: state.machine_of(*index).map(str::to_owned),
                observer: node.declared.observer,
                state: node.state(),
                pid: node.pid(),
                thread: node.thread(),
                restarts: node.restarts(),
                cpu_percent: usage.and_then(|usage| usage.cpu_percent),
                resident_bytes: usage.map(|usage| usage.resident_bytes),
                threads: usage.map(|usage| usage.threads),
            }
        };
        Self {
            dataflow: welcome.dataflow.clone(),
            keeper: state.keeper(),
            state: state_name(state.dataflow_state()),
            elapsed_seconds: age(welcome.started_utc_nanos).as_secs_f64(),
            nodes: usages.iter().map(node).collect(),
            link_bytes: state.link_bytes(),
            unreachable: state.unreachable_machines(),
            edges: state.edges.iter().map(Into::into).collect(),
        }
    }
}

impl From<&Edge> for LoadOfEdge {
    fn from(edge: &Edge) -> Self {
        let (totals, figures) = (edge.totals(), edge.figures());
        let (output, input) = (&totals.output, &totals.input);
        let sent = |value: u64| edge.has_output().then_some(value);
        let received = |value: u64| edge.has_input().then_some(value);
        Self {
            topic: edge.topic.clone(),
            input: edge.input.clone(),
            queue: edge.queue,
            sent: sent(totals.published()),
            received: received(totals.received()),
            received_bytes: received(input.bytes),
            lost: sent(totals.lost()).filter(|_| edge.has_input()),
            not_taken: sent(totals.not_taken()).filter(|_| edge.has_input()),
            dropped_oldest: sent(output.dropped_oldest),
            dropped_newest: sent(output.dropped_newest),
            missed_held: sent(output.missed_held),
            missed_memory: sent(output.missed_memory),
            missed_control: sent(output.missed_control),
            missed_away: sent(output.missed_away),
            dropped_away: sent(output.dropped_away),
            lost_in_crash: sent(output.lost_in_crash),
            lost_with_producer: received(input.lost),
            undelivered: sent(output.undelivered),
            queued: sent(totals.queued()).filter(|_| edge.has_input()),
            held: received(input.held),
            stale: received(input.stale),
            blocked_nanos: sent(output.blocked_nanos),
            rate_hz: edge.has_input().then_some(figures.rate_hz),
            bytes_per_second: edge.has_input().then_some(figures.bytes_per_second),
            latency_p50_nanos: input.latency.quantile(0.5),
            latency_p99_nanos: input.latency.quantile(0.99),
            latency_max_nanos: (input.latency.count() > 0).then(|| input.latency.max_nanos()),
            unreadable: edge.unreadable(),
        }
    }
}
