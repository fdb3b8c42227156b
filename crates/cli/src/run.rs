//! `nervure run`: starts a keeper, shows its reports and the counters of the edges, and prints a
//! summary at the end.

pub mod display;
pub mod edge_table;
pub mod escalation;
pub mod json;
mod live;
pub mod nodes;
mod plain;
mod replay_drain;
mod signals;
pub mod streams;
mod summary;
mod watched;

use std::{
    collections::HashMap,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use nervure_dataflow::Dataflow;
use nervure_inspect::{edges::Edges, losses::Losses};
use nervure_keeper::{
    descendants,
    plan::{ClockPlan, Plan, TERMINATE_GRACE},
};
use nervure_launch::{
    Launch, Options,
    keeper::{End, Keeper, Reports},
};
use nervure_node::running;
use nervure_protocol::{
    cli_to_keeper, did_you_mean,
    graph::Program,
    report::{Level, LogRecord, Report},
};
use rustix::{
    fd::OwnedFd,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use serde_json::json;

use crate::{
    build, domain,
    failure::{Failure, IMPERFECT, INTERNAL, KILLED},
    log_outputs, output,
    run_options::{RunArguments, RunOptions},
    source,
};

use display::{Display, Lines};

use escalation::{AFTER_GRACE, Progress};
use json::Json;
use live::Live;
use plain::Plain;
use replay_drain::ReplayDrain;
use signals::Signals;
use summary::Summary;

/// Interval at which the counters are read.
const TICK: Duration = Duration::from_millis(500);

/// Supervision of a detached dataflow after it is ready, so that immediate failures are reported.
const SETTLING: Duration = Duration::from_millis(500);

/// Set for hosts of operators that load changed files again.
const HOT_RELOAD_VARIABLE: &str = "NERVURE_HOT_RELOAD";

/// Runs the dataflow of a file.
pub fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let (overrides, file) = (&arguments.overrides.overrides(), &arguments.file);
    if arguments.build {
        build::build_first(overrides, file, arguments.uv)?;
    }
    let mut dataflow = match arguments.uv {
        true => source::read_to_start_in_environments(file, overrides)?,
        false => source::read_to_start(file, overrides)?,
    };
    if arguments.hot_reload {
        for node in &mut dataflow.nodes {
            if matches!(node.program, Program::Operators(_)) {
                let variable = (HOT_RELOAD_VARIABLE.to_owned(), "1".to_owned());
                node.settings.env.extend([variable]);
            }
        }
    }
    let clock = arguments
        .clock
        .as_deref()
        .map(|node| driven_clock(&dataflow, node))
        .transpose()?;
    // The keeper reads the file again for messages, from another working directory.
    let file = file.canonicalize().ok();
    start(
        dataflow,
        file,
        &arguments.options,
        arguments.detach,
        Purpose {
            clock,
            ..Purpose::default()
        },
    )
}

/// A clock that starts at the present time, and that the named node drives.
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

/// Options of a run in which a node plays a recording.
#[cfg(feature = "record")]
#[derive(Debug)]
pub struct Replay {
    /// The node that plays. The dataflow is stopped when its last sample is processed: nodes with
    /// timers would never end.
    pub player: String,
    /// The clock, if the player drives it.
    pub clock: Option<ClockPlan>,
}

/// Runs a dataflow in which a node plays a recording.
#[cfg(feature = "record")]
pub fn run_replay(
    dataflow: Dataflow,
    file: Option<PathBuf>,
    options: &RunOptions,
    replay: Replay,
) -> Result<ExitCode, Failure> {
    let purpose = Purpose {
        clock: replay.clock,
        player: Some(replay.player),
    };
    start(dataflow, file, options, false, purpose)
}

/// What only some runs have.
#[derive(Default)]
struct Purpose {
    clock: Option<ClockPlan>,
    /// The node that plays a recording.
    player: Option<String>,
}

fn start(
    mut dataflow: Dataflow,
    file: Option<PathBuf>,
    options: &RunOptions,
    detached: bool,
    purpose: Purpose,
) -> Result<ExitCode, Failure> {
    if let Some(name) = &options.name {
        nervure_dataflow::check_name(name)
            .map_err(|error| Failure::invalid(format!("`--name {name}`: {error}")))?;
        dataflow.name.clone_from(name);
    }
    let launch = Launch::prepare(
        &dataflow,
        Options {
            file,
            grace: options.grace,
            has_logs: !options.no_logs,
            reports_logs: true,
            is_detached: detached,
            clock: purpose.clock,
            ..Options::default()
        },
        &mut |warning| note!("{warning}"),
    )?;
    let summary = Summary::new(launch.plan());
    let min_levels = min_levels(launch.plan());
    let display = choose_display(options, launch.plan());
    // Orphans of a killed keeper become children of this process.
    descendants::adopt_orphans()
        .map_err(|error| Failure::internal("cannot start the keeper").because(error))?;
    let keeper = launch.start(Path::new("/proc/self/exe"))?;
    raise_descriptor_limit()?;
    let signals = signals::forward(&keeper)?;
    let mut run = SupervisedRun {
        begin: Instant::now(),
        stop_after: options.stop_after,
        stop_limit: options
            .grace
            .saturating_add(TERMINATE_GRACE)
            .saturating_add(AFTER_GRACE),
        overdue_at: None,
        escalation: Progress::Idle,
        level: options.log_level.into(),
        min_levels,
        edges: Edges::default(),
        losses: Losses::default(),
        summary,
        display,
        signals,
        keeper,
        has_closed_output: false,
        drain: purpose
            .player
            .map(|player| ReplayDrain::new(player, &dataflow)),
    };
    match run.supervise(detached)? {
        Supervised::Over => run.conclude(),
        Supervised::Ready => {
            let failed: Vec<_> = run.summary.failures().collect();
            if !failed.is_empty() && !options.json {
                note!("{}", run.summary.failures_text().trim());
            }
            let keeper = run.keeper.pid().as_raw_pid();
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
                    let domain = domain::option();
                    format!(
                        "{name} runs in the background (keeper {keeper}); watch it with `nervure top -d {it}{domain}`, end it with `nervure stop -d {it}{domain}`\n"
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

/// The display that fits the options and the terminal.
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

/// Reports arrive with many descriptors at once. The keeper was started with the original limit, which
/// its nodes inherit.
fn raise_descriptor_limit() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised)
        .map_err(|error| Failure::internal("cannot start the keeper").because(error))
}

/// Why supervision ended.
enum Supervised {
    /// The keeper has ended.
    Over,
    /// Every node of a detached dataflow is ready.
    Ready,
}

/// A running dataflow.
struct SupervisedRun {
    begin: Instant,
    stop_after: Option<Duration>,
    /// Time limit for the end of the keeper after Stop, and its deadline once Stop is sent.
    stop_limit: Duration,
    overdue_at: Option<Instant>,
    /// The last reported progress of the escalation.
    escalation: Progress,
    level: Level,
    /// `min_log_level` of the nodes that have one, by their ids.
    min_levels: HashMap<String, String>,
    edges: Edges,
    losses: Losses,
    summary: Summary,
    display: Box<dyn Display>,
    signals: Signals,
    keeper: Keeper,
    /// The reader of stdout or stderr has closed its end.
    has_closed_output: bool,
    /// Detects the end of a replay.
    drain: Option<ReplayDrain>,
}

fn min_levels(plan: &Plan) -> HashMap<String, String> {
    let levels = plan.nodes.iter().filter_map(|node| {
        let level = node.settings.min_log_level.clone()?;
        Some((node.id.clone(), level))
    });
    levels.collect()
}

impl SupervisedRun {
    /// Supervises the dataflow until the keeper has ended, or with `only_until_ready` until the
    /// dataflow is ready.
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
            let reports = self.keeper.wait(Some(self.signals.bell()), until)?;
            let is_over = matches!(reports, Reports::Closed(_));
            let (Reports::Some(messages) | Reports::Closed(messages)) = reports;
            let is_ready = messages
                .iter()
                .any(|(message, _)| *message == Report::Ready);
            for (message, descriptor) in messages {
                self.handle_message(message, descriptor);
            }
            if is_over {
                return Ok(Supervised::Over);
            }
            self.display.flush();
            if is_ready && only_until_ready {
                settled_at = Some(Instant::now() + SETTLING);
            }
            if settled_at.is_some_and(|at| Instant::now() >= at) && !self.signals.any_received() {
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
            if let Some(text) = self.signals.take_message() {
                self.log(Level::Warn, text);
                self.display.flush();
                self.watch_stop();
            }
            self.escalate()?;
            if now >= next_tick {
                next_tick = now + TICK;
                self.tick();
            }
            if let Some(text) = self.display.streams().take_message() {
                self.log(Level::Error, text);
                self.display.flush();
            }
            if self.display.streams().is_closed() && !self.has_closed_output {
                // For example by `| head`.
                self.has_closed_output = true;
                self.log(
                    Level::Warn,
                    "stdout was closed: stopping the nodes".to_owned(),
                );
                self.display.flush();
                self.stop("the output of `run` was closed");
            }
        }
    }

    fn stop(&mut self, reason: &str) {
        self.keeper.send(&cli_to_keeper::Message::Stop {
            reason: reason.to_owned(),
        });
        self.watch_stop();
    }

    /// Starts the time limit for the end of the keeper.
    fn watch_stop(&mut self) {
        if self.overdue_at.is_none() {
            self.overdue_at = Instant::now().checked_add(self.stop_limit);
        }
    }

    /// Kills a keeper that is overdue, and reports the progress of that.
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
                self.log(Level::Error, text);
                self.display.flush();
                Ok(())
            }
            Progress::Failed(cause) => {
                Err(Failure::internal("cannot end the dataflow").because(cause))
            }
        }
    }

    fn handle_message(&mut self, message: Report, descriptor: Option<OwnedFd>) {
        self.summary.nodes_mut().handle_report(&message);
        match &message {
            Report::NodeStarted(started) => {
                if let Some(page) = descriptor {
                    self.edges.add_node(started, &page);
                }
            }
            Report::EdgeWired(wired) => self.edges.add(wired),
            Report::EdgeStatus(status) => self.edges.set_status(status),
            Report::NodeEnded(ended) => {
                self.summary.node_ended(ended);
                if let Some(drain) = &mut self.drain {
                    drain.node_ended(ended);
                }
            }
            Report::Finished => self.summary.finished(),
            Report::Log(_) | Report::Ready | Report::Paused | Report::Resumed | Report::Unknown => {
            }
        }
        match &message {
            Report::Log(record) if record.level < self.level || self.is_hidden(record) => {}
            _ => self.display.message(&message),
        }
    }

    /// Whether the dataflow file hides a line. Lines of stderr are shown: they explain failures.
    fn is_hidden(&self, record: &LogRecord) -> bool {
        let min_level = self.min_levels.get(&record.node);
        record.stream == "stdout"
            && min_level.is_some_and(|min_level| log_outputs::is_below(record, min_level))
    }

    fn tick(&mut self) {
        let elapsed = self.begin.elapsed();
        self.edges.sample(elapsed);
        for unreadable in self.edges.newly_unreadable() {
            self.log(Level::Error, unreadable.to_string());
        }
        if let Some(text) = self.losses.next_warning(&self.edges, elapsed) {
            self.log(Level::Warn, text);
        }
        self.summary.nodes_mut().update(&self.edges);
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

    /// Logs a message of `run` itself.
    fn log(&mut self, level: Level, text: String) {
        let utc_nanos = nervure_shm::utc_nanos();
        let (node, stream) = ("nervure".to_owned(), "run".to_owned());
        self.handle_message(
            Report::Log(LogRecord {
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
        let leftovers = match keeper_end {
            End::Orderly => Ok(0),
            End::Failed | End::Killed { .. } => descendants::kill_all(),
        };
        self.edges.sample(elapsed);
        self.summary.edges(&self.edges);
        self.display.conclude(&self.summary, &self.edges, elapsed);
        match (keeper_end, leftovers) {
            (End::Killed { .. }, Err(error)) => {
                return Err(Failure::internal("cannot end the dataflow").because(error));
            }
            _ if self.signals.is_kill_requested() => return Ok(ExitCode::from(KILLED)),
            (End::Orderly, _) => {}
            // The keeper has printed the reason.
            (End::Failed, _) => {
                if let Some(text) = self.keeper.stderr() {
                    note!("{}", text.trim_end());
                }
                return Ok(ExitCode::from(INTERNAL));
            }
            (End::Killed { how }, Ok(killed)) => {
                return Err(match self.escalation {
                    Progress::Begun(text) => {
                        Failure::internal("the dataflow had to be killed").because(text)
                    }
                    _ => Failure::internal(format!(
                        "the keeper of the dataflow ended before its nodes ({how})"
                    ))
                    .because(format!(
                        "its nodes were killed with it, and {killed} process(es) that they left behind"
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
