//! `nervure run`: starts a keeper, shows what it and the counters report, and tells at the end how it went.

pub mod activity;
pub mod display;
pub mod edge_table;
pub mod edges;
pub mod escalation;
pub mod json;
mod keeper;
mod live;
pub mod log_folder;
pub mod losses;
pub mod memory;
pub mod nodes;
mod plain;
pub mod plan;
mod replay_drain;
mod signals;
pub mod streams;
mod summary;
mod watched;

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use nervure_dataflow::Dataflow;
use nervure_keeper::{
    descendants,
    log_space::{self, LogLimit},
    plan::{ClockPlan, Plan, TERMINATE_GRACE},
};
use nervure_node::running::{self, Connection, ConnectionError};
use nervure_protocol::{
    did_you_mean,
    keeper_to_run::{Level, LogRecord, Message},
    run_to_keeper,
};
use rustix::fd::OwnedFd;
use serde_json::json;

use crate::{
    arguments::{RunArguments, RunOptions},
    build,
    failure::{Failure, IMPERFECT, INTERNAL, KILLED},
    format,
    inspect::list,
    output,
};

use display::{Display, Lines};
use edges::Edges;
use escalation::{AFTER_GRACE, Progress};
use json::Json;
use keeper::{Keeper, Reports};
use live::Live;
use losses::Losses;
use plain::Plain;
use replay_drain::ReplayDrain;
use signals::Signals;
use summary::Summary;

/// How often the counters are looked at.
const TICK: Duration = Duration::from_millis(500);

/// How long a detached dataflow is watched once it is ready, so that what fails at once is reported.
const SETTLING: Duration = Duration::from_millis(500);

/// Runs the dataflow of a file.
pub fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    if arguments.build {
        build::build_first(&arguments.overrides, &arguments.file)?;
    }
    let dataflow = arguments.overrides.read_to_start(&arguments.file)?;
    let clock = arguments
        .clock
        .as_deref()
        .map(|node| driven_clock(&dataflow, node))
        .transpose()?;
    // What is read from there later, for messages, is looked for from another folder.
    let file = arguments.file.canonicalize().ok();
    start(
        dataflow,
        file,
        &arguments.options,
        arguments.detach,
        clock,
        None,
    )
}

/// Refuses to start a dataflow a second time from one file under one name: two of a robot's drivers would compete for its
/// hardware.
fn refuse_second(dataflow: &str, file: &Path) -> Result<(), Failure> {
    for address in running::dataflows()?
        .into_iter()
        .filter(|address| address.dataflow == dataflow)
    {
        let keeper = address.keeper;
        match Connection::open(&address, "run") {
            Ok(running) if running.welcome().file.as_deref().map(Path::new) == Some(file) => {
                let ago = format::elapsed(list::age(running.welcome().started_utc_nanos));
                let text = format!(
                    "dataflow `{dataflow}` runs already from this file: keeper {keeper}, started {ago} ago"
                );
                return Err(Failure::invalid(text).hint(format!(
                    "`nervure stop -d {keeper}` ends it; `--name NAME` starts another one beside it"
                )));
            }
            Err(error @ ConnectionError::NoAnswer { .. }) => {
                note!("dataflow `{dataflow}` may run already from this file: {error}");
            }
            // It is of another file, or ended meanwhile.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// A clock that begins with the present time, and is driven by the node of that name.
fn driven_clock(dataflow: &Dataflow, name: &str) -> Result<ClockPlan, Failure> {
    let node = dataflow
        .nodes
        .iter()
        .position(|node| node.id == name)
        .ok_or_else(|| {
            let known = dataflow.nodes.iter().map(|node| node.id.as_str());
            Failure::invalid(format!("`--clock`: the dataflow has no node `{name}`"))
                .hint(did_you_mean(name, "its nodes are", known))
        })?;
    Ok(ClockPlan {
        node,
        origin_utc_nanos: nervure_shm::utc_nanos(),
    })
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
pub fn run_replay(
    dataflow: Dataflow,
    file: Option<PathBuf>,
    options: &RunOptions,
    replay: Replay,
) -> Result<ExitCode, Failure> {
    start(dataflow, file, options, false, replay.clock, Some(replay))
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
    if let Some(file) = &file {
        refuse_second(&dataflow.name, file)?;
    }
    // A node that joins finds its token there.
    let needs_folder = !options.no_logs || plan::has_dynamic_nodes(&dataflow);
    let log_folder = needs_folder
        .then(|| log_folder::create(&dataflow.name))
        .transpose()?;
    let path = log_folder.as_ref().map(|folder| folder.path.clone());
    let mut plan = plan::plan(&dataflow, path, options.grace, detached)?;
    plan.log_limit = log_folder
        .as_ref()
        .filter(|_| !options.no_logs)
        .map(|folder| folder.limit.clone());
    plan.clock = clock;
    plan.file = file;
    if let (Some(limit), Some(folder)) = (&plan.log_limit, &plan.log_folder) {
        end_orphans(limit)?;
        log_space::begin(folder).map_err(|error| {
            Failure::internal(format!("`{}` cannot be written", folder.display())).because(error)
        })?;
    }
    let display = choose_display(options, &plan);
    let keeper = Keeper::start(&plan)?;
    let signals = signals::forward(&keeper)?;
    let mut session = Session {
        begin: Instant::now(),
        stop_after: options.stop_after,
        stop_limit: options
            .grace
            .saturating_add(TERMINATE_GRACE)
            .saturating_add(AFTER_GRACE),
        overdue_at: None,
        escalation: Progress::Idle,
        level: options.log_level.into(),
        edges: Edges::default(),
        losses: Losses::default(),
        summary: Summary::new(&plan),
        display,
        signals,
        keeper,
        has_lost_its_reader: false,
        drain: replay.map(|replay| ReplayDrain::new(replay.player)),
    };
    match session.supervise(detached)? {
        Supervised::Over => session.conclude(),
        Supervised::Ready => {
            let failed: Vec<_> = session.summary.failures().collect();
            if !failed.is_empty() && !options.json {
                note!("{}", session.summary.failures_text().trim());
            }
            let keeper = session.keeper.pid().as_raw_pid();
            let text = match options.json {
                true => {
                    let detached = json!({"message": "detached", "dataflow": dataflow.name, "keeper": keeper, "failed": failed});
                    format!("{detached}\n")
                }
                false => {
                    let name = dataflow.name;
                    let is_only = running::find(Some(&name)).is_ok();
                    let it = if is_only {
                        name.clone()
                    } else {
                        keeper.to_string()
                    };
                    format!(
                        "{name} runs by itself (keeper {keeper}); `nervure top -d {it}` looks into it, `nervure stop -d {it}` ends it\n"
                    )
                }
            };
            output::write(&text)?;
            Ok(if failed.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(IMPERFECT)
            })
        }
    }
}

/// The way that fits the options and the terminal.
fn choose_display(options: &RunOptions, plan: &Plan) -> Box<dyn Display> {
    if options.json {
        return Box::new(Json::default());
    }
    let lines = Lines::new(plan);
    if io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb") {
        Box::new(Live::new(lines))
    } else {
        Box::new(Plain::new(lines))
    }
}

/// What is left of dataflows whose keeper and `run` were killed may keep devices from the new nodes.
fn end_orphans(limit: &LogLimit) -> Result<(), Failure> {
    let failed = |error| {
        Failure::internal("the processes that killed dataflows have left cannot be found")
            .because(error)
    };
    if !log_space::take_killed_runs(&limit.root).map_err(failed)? {
        return Ok(());
    }
    let killed = descendants::kill_orphans().map_err(failed)?;
    if killed > 0 {
        note!(
            "killed {killed} process(es) that a dataflow had left behind when its keeper and `run` were killed"
        );
    }
    Ok(())
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
    /// How long a keeper may take to end after the order to stop, and when that is over.
    stop_limit: Duration,
    overdue_at: Option<Instant>,
    /// What was reported of it.
    escalation: Progress,
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
    drain: Option<ReplayDrain>,
}

impl Session {
    /// Until the keeper is gone, or until the dataflow is ready.
    fn supervise(&mut self, only_until_ready: bool) -> Result<Supervised, Failure> {
        let mut next_tick = self.begin + TICK;
        let mut settled_at = None;
        loop {
            let mut until = next_tick;
            if let Some(stop_after) = self.stop_after {
                until = until.min(self.begin + stop_after);
            }
            until = settled_at.map_or(until, |at: Instant| until.min(at));
            until = self.overdue_at.map_or(until, |at| until.min(at));
            let reports = self.keeper.wait(self.signals.bell(), until)?;
            let is_over = matches!(reports, Reports::Closed(_));
            let (Reports::Some(messages) | Reports::Closed(messages)) = reports;
            let is_ready = messages
                .iter()
                .any(|(message, _)| *message == Message::Ready);
            for (message, descriptor) in messages {
                self.report(message, descriptor);
            }
            if is_over {
                return Ok(Supervised::Over);
            }
            self.display.flush();
            if is_ready && only_until_ready {
                settled_at = Some(Instant::now() + SETTLING);
            }
            if settled_at.is_some_and(|at| Instant::now() >= at) && !self.signals.have_come() {
                return Ok(Supervised::Ready);
            }
            let now = Instant::now();
            if self
                .stop_after
                .is_some_and(|after| now >= self.begin + after)
            {
                self.stop_after = None;
                self.stop("`--stop-after` has passed");
            }
            if let Some(text) = self.signals.news() {
                self.say(Level::Warn, text);
                self.display.flush();
                self.watch_stop();
            }
            self.escalate()?;
            if now >= next_tick {
                next_tick = now + TICK;
                self.tick();
            }
            if let Some(text) = self.display.streams().news() {
                self.say(Level::Error, text);
                self.display.flush();
            }
            if self.display.streams().is_closed() && !self.has_lost_its_reader {
                // `| head`, say.
                self.has_lost_its_reader = true;
                self.say(
                    Level::Warn,
                    "stdout was closed: stopping the nodes".to_owned(),
                );
                self.display.flush();
                self.stop("the output of `run` was closed");
            }
        }
    }

    fn stop(&mut self, reason: &str) {
        self.keeper.send(&run_to_keeper::Message::Stop {
            reason: reason.to_owned(),
        });
        self.watch_stop();
    }

    /// The keeper was ordered to stop, and has to end in time.
    fn watch_stop(&mut self) {
        if self.overdue_at.is_none() {
            self.overdue_at = Instant::now().checked_add(self.stop_limit);
        }
    }

    /// Kills a keeper that is overdue, and reports the result.
    fn escalate(&mut self) -> Result<(), Failure> {
        if self.overdue_at.is_some_and(|at| Instant::now() >= at) {
            self.overdue_at = None;
            let limit = format!("within {:?} of the order to stop", self.stop_limit);
            self.signals.escalation().order(Duration::ZERO, limit);
        }
        let progress = self.signals.escalation().progress();
        if progress == self.escalation {
            return Ok(());
        }
        self.escalation = progress.clone();
        match progress {
            Progress::Idle => Ok(()),
            Progress::Begun(text) => {
                self.say(Level::Error, text);
                self.display.flush();
                Ok(())
            }
            Progress::Failed(cause) => {
                Err(Failure::internal("the dataflow cannot be ended").because(cause))
            }
        }
    }

    fn report(&mut self, message: Message, descriptor: Option<OwnedFd>) {
        self.summary.nodes_mut().report(&message);
        match &message {
            Message::NodeStarted(started) => {
                if let Some(page) = descriptor {
                    self.edges.add_node(started, &page);
                }
            }
            Message::EdgeWired(wired) => self.edges.add(wired),
            Message::EdgeStatus(status) => self.edges.note(status),
            Message::NodeEnded(ended) => {
                self.summary.node_ended(ended);
                if let Some(drain) = &mut self.drain {
                    drain.node_ended(ended);
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
        for unreadable in self.edges.newly_unreadable() {
            self.say(Level::Error, unreadable.to_string());
        }
        if let Some(text) = self.losses.tell(&self.edges, elapsed) {
            self.say(Level::Warn, text);
        }
        self.summary.nodes_mut().look(&self.edges);
        self.display
            .figures(self.summary.nodes(), &self.edges, elapsed);
        if self
            .drain
            .as_mut()
            .is_some_and(|drain| drain.is_over(&self.edges))
        {
            self.drain = None;
            self.stop("the recording has ended");
        }
    }

    /// Something that `run` itself has to say.
    fn say(&mut self, level: Level, text: String) {
        let utc_nanos = nervure_shm::utc_nanos();
        let (node, stream) = ("nervure".to_owned(), "run".to_owned());
        self.report(
            Message::Log(LogRecord {
                utc_nanos,
                node,
                level,
                stream,
                text,
            }),
            None,
        );
    }

    fn conclude(mut self) -> Result<ExitCode, Failure> {
        let elapsed = self.begin.elapsed();
        self.escalate()?;
        let keeper_end = self.keeper.end()?;
        self.edges.sample(elapsed);
        self.summary.edges(&self.edges);
        self.display.conclude(&self.summary, &self.edges, elapsed);
        match keeper_end {
            keeper::End::Killed {
                leftovers: Err(error),
                ..
            } => {
                return Err(Failure::internal("the dataflow cannot be ended").because(error));
            }
            _ if self.signals.has_killed() => return Ok(ExitCode::from(KILLED)),
            keeper::End::Orderly => {}
            // It has told why.
            keeper::End::Failed => {
                self.keeper.repeat_its_last_words();
                return Ok(ExitCode::from(INTERNAL));
            }
            keeper::End::Killed {
                how,
                leftovers: Ok(killed),
            } => {
                return Err(match self.escalation {
                    Progress::Begun(text) => {
                        Failure::internal("the dataflow did not end in order").because(text)
                    }
                    _ => Failure::internal(format!(
                        "the keeper of the dataflow ended before its nodes ({how})"
                    ))
                    .because(format!(
                        "its nodes were killed with it, and {killed} process(es) that they left"
                    )),
                });
            }
        }
        Ok(if !self.summary.is_perfect() {
            ExitCode::from(IMPERFECT)
        } else if self.display.streams().have_failed() {
            ExitCode::from(INTERNAL)
        } else {
            ExitCode::SUCCESS
        })
    }
}
