//! `nervure run`: starts a keeper, shows what it and the counters report, and tells at the end how it went.

mod aftermath;
pub mod display;
pub mod edge_table;
pub mod edges;
pub mod format;
pub mod json;
mod keeper;
mod live;
pub mod log_folder;
pub mod losses;
mod plain;
mod plan;
mod signals;
mod summary;
pub mod table;
mod watched;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use nervure_dataflow::Dataflow;
use nervure_keeper::plan::ClockPlan;
use nervure_node::running::{self, Connection};
use nervure_protocol::{
    did_you_mean,
    keeper_to_run::{Level, LogRecord, Message, NodeEnded},
    run_to_keeper,
};
use rustix::fd::OwnedFd;
use serde_json::json;

use crate::{
    arguments::{RunArguments, RunOptions},
    failure::{Failure, IMPERFECT, INTERNAL, KILLED},
    output, source,
};
use aftermath::Aftermath;
use display::Display;
use edges::Edges;
use keeper::{Keeper, Reports};
use losses::Losses;
use signals::Signals;
use summary::Summary;

/// How often the counters are looked at.
const TICK: Duration = Duration::from_millis(500);

/// Runs the dataflow of a file.
pub fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let dataflow = source::read(&arguments.file)?;
    let clock = arguments.clock.as_deref().map(|node| driven_clock(&dataflow, node)).transpose()?;
    // What is read from there later, for messages, is looked for from another folder.
    let file = arguments.file.canonicalize().ok();
    if let Some(file) = file.as_ref().filter(|_| arguments.detach) {
        tell_of_others(file);
    }
    start(dataflow, file, &arguments.options, arguments.detach, clock, None)
}

/// A file may run more than once, and is seldom meant to where nobody sees it.
fn tell_of_others(file: &Path) {
    for address in running::dataflows().unwrap_or_default() {
        let is_of_file = |one: Connection| one.welcome().file.as_deref().map(Path::new) == Some(file);
        if Connection::open(&address, "run").is_ok_and(is_of_file) {
            let (dataflow, keeper) = (address.dataflow, address.keeper);
            eprintln!(
                "{dataflow} (keeper {keeper}) runs from this file already; `nervure stop -d {keeper}` ends it"
            );
        }
    }
}

/// A clock that begins with the present time, and is driven by the node of that name.
fn driven_clock(dataflow: &Dataflow, name: &str) -> Result<ClockPlan, Failure> {
    let node = dataflow.nodes.iter().position(|node| node.id == name).ok_or_else(|| {
        let known = dataflow.nodes.iter().map(|node| node.id.as_str());
        Failure::invalid(format!("`--clock`: the dataflow has no node `{name}`")).hint(did_you_mean(
            name,
            "its nodes are",
            known,
        ))
    })?;
    Ok(ClockPlan { node, origin_utc_nanos: nervure_shm::utc_nanos() })
}

/// What is different when a node plays a recording.
#[derive(Debug)]
pub struct Replay {
    /// The node that plays. What follows from its last sample done, the dataflow is stopped: timers would go on for ever.
    pub player: String,
    /// Whether it drives the clock.
    pub clock: Option<ClockPlan>,
}

/// Runs a dataflow in which a node plays a recording.
pub fn run_replay(dataflow: Dataflow, options: &RunOptions, replay: Replay) -> Result<ExitCode, Failure> {
    start(dataflow, None, options, false, replay.clock, Some(replay))
}

fn start(
    mut dataflow: Dataflow,
    file: Option<PathBuf>,
    options: &RunOptions,
    detached: bool,
    clock: Option<ClockPlan>,
    replay: Option<Replay>,
) -> Result<ExitCode, Failure> {
    if let Some(name) = &options.name {
        nervure_dataflow::check_name(name)
            .map_err(|error| Failure::invalid(format!("`--name {name}`: {error}")))?;
        dataflow.name.clone_from(name);
    }
    let log_folder = log_folder::create(&dataflow.name)?;
    let mut plan = plan::plan(&dataflow, log_folder, options.grace, detached)?;
    plan.clock = clock;
    plan.file = file;
    let display = display::choose(options, &plan);
    let keeper = Keeper::start(&plan)?;
    let signals = signals::forward(&keeper)?;
    let mut session = Session {
        begin: Instant::now(),
        stop_after: options.stop_after,
        level: options.log_level.into(),
        edges: Edges::default(),
        losses: Losses::default(),
        summary: Summary::new(&plan),
        display,
        signals,
        keeper,
        has_lost_its_reader: false,
        aftermath: replay.map(|replay| Aftermath::new(replay.player)),
    };
    match session.supervise(detached)? {
        Supervised::Over => session.conclude(),
        Supervised::Ready => {
            let keeper = session.keeper.pid();
            let text = match options.json {
                true => {
                    let detached =
                        json!({"message": "detached", "dataflow": dataflow.name, "keeper": keeper});
                    format!("{detached}\n")
                }
                false => {
                    let name = dataflow.name;
                    let is_only = running::find(Some(&name)).is_ok();
                    let it = if is_only { name.clone() } else { keeper.to_string() };
                    format!(
                        "{name} runs by itself (keeper {keeper}); `nervure top -d {it}` looks into it, `nervure stop -d {it}` ends it\n"
                    )
                }
            };
            output::write(&text)?;
            // What failed has been told.
            let has_failures = session.summary.failures().next().is_some();
            Ok(if has_failures { ExitCode::from(IMPERFECT) } else { ExitCode::SUCCESS })
        }
    }
}

/// Why it is supervised no longer.
enum Supervised {
    /// The keeper is gone.
    Over,
    /// Every node is ready, and that was all that was waited for.
    Ready,
}

/// A dataflow that runs.
struct Session {
    begin: Instant,
    stop_after: Option<Duration>,
    level: Level,
    edges: Edges,
    losses: Losses,
    summary: Summary,
    display: Box<dyn Display>,
    signals: Signals,
    keeper: Keeper,
    /// Nobody reads any more what it says.
    has_lost_its_reader: bool,
    /// What follows the end of a replay.
    aftermath: Option<Aftermath>,
}

impl Session {
    /// Until the keeper is gone, or until the dataflow is ready.
    fn supervise(&mut self, only_until_ready: bool) -> Result<Supervised, Failure> {
        let mut next_tick = self.begin + TICK;
        loop {
            let mut until = next_tick;
            if let Some(stop_after) = self.stop_after {
                until = until.min(self.begin + stop_after);
            }
            let reports = self.keeper.wait(&self.signals, until)?;
            let is_over = matches!(reports, Reports::Closed(_));
            let (Reports::Some(messages) | Reports::Closed(messages)) = reports;
            let is_ready = messages.iter().any(|(message, _)| *message == Message::Ready);
            for (message, descriptor) in messages {
                self.report(message, descriptor);
            }
            if is_over {
                return Ok(Supervised::Over);
            }
            self.display.flush();
            if is_ready && only_until_ready && !self.signals.have_come() {
                return Ok(Supervised::Ready);
            }
            let now = Instant::now();
            if self.stop_after.is_some_and(|after| now >= self.begin + after) {
                self.stop_after = None;
                self.keeper
                    .send(&run_to_keeper::Message::Stop { reason: "`--stop-after` has passed".to_owned() });
            }
            if let Some(text) = self.signals.news() {
                self.say(Level::Warn, text);
                self.display.flush();
            }
            if now >= next_tick {
                next_tick = now + TICK;
                self.tick();
            }
            if self.display.is_closed() && !self.has_lost_its_reader {
                // `| head`, say.
                self.has_lost_its_reader = true;
                self.say(Level::Warn, "stdout was closed: stopping the nodes".to_owned());
                self.display.flush();
                self.keeper.send(&run_to_keeper::Message::Stop {
                    reason: "the output of `run` was closed".to_owned(),
                });
            }
        }
    }

    fn report(&mut self, message: Message, descriptor: Option<OwnedFd>) {
        match &message {
            Message::NodeStarted(started) => {
                if let Some(Err(error)) = descriptor.map(|page| self.edges.add_node(started, &page)) {
                    self.say(
                        Level::Warn,
                        format!("the counters of node `{}` cannot be read: {error}", started.id),
                    );
                }
            }
            Message::EdgeWired(wired) => self.edges.add(wired),
            Message::NodeEnded(ended) => {
                self.summary.node_ended(ended);
                if let Some(aftermath) = &mut self.aftermath {
                    aftermath.node_ended(ended);
                }
            }
            Message::Finished => self.summary.finished(),
            Message::Log(_) | Message::Ready | Message::Unknown => {}
        }
        match &message {
            Message::Log(record) if record.level < self.level => {}
            _ => self.display.message(&message),
        }
    }

    fn tick(&mut self) {
        let elapsed = self.begin.elapsed();
        self.edges.sample(elapsed);
        if let Some(text) = self.losses.tell(&self.edges, elapsed) {
            self.say(Level::Warn, text);
        }
        self.display.figures(&self.edges, elapsed);
        if self.aftermath.as_mut().is_some_and(|aftermath| aftermath.is_over(&self.edges)) {
            self.aftermath = None;
            self.keeper.send(&run_to_keeper::Message::Stop { reason: "the recording has ended".to_owned() });
        }
    }

    /// Something that `run` itself has to say.
    fn say(&mut self, level: Level, text: String) {
        let utc_nanos = nervure_shm::utc_nanos();
        let (node, stream) = ("nervure".to_owned(), "run".to_owned());
        self.report(Message::Log(LogRecord { utc_nanos, node, level, stream, text }), None);
    }

    fn conclude(mut self) -> Result<ExitCode, Failure> {
        let elapsed = self.begin.elapsed();
        let keeper_end = self.keeper.end()?;
        self.edges.sample(elapsed);
        self.summary.edges(&self.edges);
        self.display.conclude(&self.summary, &self.edges, elapsed);
        if self.signals.has_killed() {
            return Ok(ExitCode::from(KILLED));
        }
        match keeper_end {
            keeper::End::Orderly => {}
            // It has told why.
            keeper::End::Failed => {
                self.keeper.repeat_its_last_words();
                return Ok(ExitCode::from(INTERNAL));
            }
            keeper::End::Killed { how, leftovers } => {
                let text = format!("the keeper of the dataflow ended before its nodes ({how})");
                let cause = match leftovers {
                    Ok(killed) => {
                        format!("its nodes were killed with it, and {killed} process(es) that they left")
                    }
                    Err(error) => error.to_string(),
                };
                return Err(Failure::internal(text).because(cause));
            }
        }
        Ok(if self.summary.is_perfect() { ExitCode::SUCCESS } else { ExitCode::from(IMPERFECT) })
    }
}

/// The last end of a node that counts as a failure.
fn is_final_failure(ended: &NodeEnded) -> bool {
    ended.failed && !ended.restarts
}
