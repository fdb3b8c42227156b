//! Carries out what the machine decides: one thread, one epoll loop.

mod clients;
mod descriptors;
mod inspect;
mod lines;
mod log_files;
mod log_writer;
mod outbox;
pub(crate) mod process;
mod report_link;
mod retry;
mod slot;

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io::{self, Read},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use nervure_protocol::{
    MAX_MESSAGE_BYTES, STACKS_SIGNAL, decode, encode,
    keeper_to_run::{self, Level, LogRecord},
    run_to_keeper,
};
use nervure_shm::{Received, Seqpacket, Shortage, utc_nanos};
use rustix::{
    event::{Timespec, epoll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    process::{Pid, Resource, Rlimit},
};

use crate::{
    cgroups::NodeGroups,
    descendants::{self, ProcessKey},
    log_space::{self, LogSpace},
    machine::{Action, Audience, Descriptor, Event, Machine, Signal},
    plan::Plan,
};
use clients::Clients;
use descriptors::Descriptors;
use log_files::{LogFile, Notice, line_of};
use log_writer::Logs;
use outbox::Delivery;
use process::{NotStarted, Started};
use report_link::{Reader, ReportLink};
use slot::{Slot, Stream};

/// Why a keeper ended otherwise than by its dataflow's end.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The other end of its socket did not launch anything.
    #[error("the keeper is started by `nervure run`, not by hand: {0}")]
    NotLaunched(String),
    /// The plan is none.
    #[error("the plan of the dataflow cannot be read: {0}")]
    Plan(#[from] serde_json::Error),
    /// The limit on open files is too low.
    #[error(
        "this dataflow needs {needed} file descriptors in its keeper ({terms}), and the hard limit is {limit}: \
         raise it with `ulimit -Hn {needed}` or `nofile` in /etc/security/limits.conf"
    )]
    Descriptors {
        /// How many.
        needed: u64,
        /// How that comes about.
        terms: String,
        /// The hard limit.
        limit: u64,
    },
    /// A resource of the system was short, and stayed so.
    #[error("the keeper {what}: {shortage}")]
    Shortage {
        /// What was tried.
        what: &'static str,
        /// What is short.
        shortage: Shortage,
    },
    /// The system refused something.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        cause: io::Error,
    },
}

fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> KeeperError {
    move |cause| KeeperError::System {
        what,
        cause: cause.into(),
    }
}

/// As [`system`], of something that has changed nothing when it fails, and is tried again where a resource is short.
fn retryable(what: &'static str) -> impl FnOnce(io::Error) -> KeeperError {
    move |cause| match Shortage::of(&cause) {
        Some(shortage) => KeeperError::Shortage { what, shortage },
        None => KeeperError::System { what, cause },
    }
}

/// How long an action is tried while a resource is short.
const SHORTAGE_PATIENCE: Duration = Duration::from_secs(5);

/// How often.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// Is the keeper of the dataflow that `run` sends through `control`, until every node has ended.
///
/// # Errors
/// [`KeeperError`]; no process of the dataflow is left then either.
pub fn serve(control: OwnedFd) -> Result<(), KeeperError> {
    let control = Seqpacket::from(control);
    let plan = receive_plan(&control)?;
    descendants::adopt_orphans().map_err(system("cannot become a subreaper"))?;
    if plan.detached {
        // The terminal on which it was started is none of its business.
        rustix::process::setsid().map_err(system("cannot leave the session of `run`"))?;
    }
    let files = raise_file_limit(&plan)?;
    let result = Shell::new(plan, control, files).and_then(|mut shell| shell.serve());
    let leftovers = descendants::kill_all();
    if let Err(error) = leftovers {
        eprintln!("nervure: {error}");
    }
    result
}

fn receive_plan(control: &Seqpacket) -> Result<Plan, KeeperError> {
    let mut buffer = Vec::with_capacity(MAX_MESSAGE_BYTES);
    let mut poll = [rustix::event::PollFd::new(
        control,
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(&mut poll, None).map_err(system("cannot wait for the plan"))?;
    let not_launched = |why: String| KeeperError::NotLaunched(why);
    let descriptors = match control
        .receive(&mut buffer)
        .map_err(|error| not_launched(error.to_string()))?
    {
        Received::Packet(descriptors) => descriptors,
        Received::Closed => {
            return Err(not_launched(
                "nobody is at the other end of its socket".to_owned(),
            ));
        }
    };
    match decode(&buffer).map_err(|error| not_launched(error.to_string()))? {
        run_to_keeper::Message::Launch => {}
        other => return Err(not_launched(format!("its first message is {other:?}"))),
    }
    let Some(plan) = descriptors.into_iter().next() else {
        return Err(not_launched("Launch came without a plan".to_owned()));
    };
    let mut text = Vec::new();
    let mut plan = File::from(plan);
    io::Seek::rewind(&mut plan)
        .and_then(|()| plan.read_to_end(&mut text))
        .map_err(system("cannot read the plan"))?;
    Ok(serde_json::from_slice(&text)?)
}

/// Raises the soft limit on open files to the hard one. Returns the original: nodes get it back, because programs
/// that use `select` do not survive a high one.
fn raise_file_limit(plan: &Plan) -> Result<Rlimit, KeeperError> {
    let original = rustix::process::getrlimit(Resource::Nofile);
    let (needed, terms) = Descriptors::needed(plan);
    if let Some(limit) = original.maximum.filter(|&limit| limit < needed) {
        return Err(KeeperError::Descriptors {
            needed,
            terms,
            limit,
        });
    }
    let raised = Rlimit {
        current: original.maximum,
        maximum: original.maximum,
    };
    rustix::process::setrlimit(Resource::Nofile, raised)
        .map_err(system("cannot raise the limit on open files"))?;
    Ok(original)
}

/// What epoll reports on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Run,
    /// SIGCHLD came.
    Children,
    /// SIGTERM, SIGINT or SIGHUP came.
    Termination,
    Control(usize),
    Output(usize, Stream),
    /// A client wants to connect.
    Listener,
    Client(usize),
    /// The process of a client has ended.
    ClientEnded(usize),
    /// There are news of the log files.
    Logs,
}

impl Token {
    fn pack(self) -> epoll::EventData {
        let (kind, node) = match self {
            Self::Run => (0, 0),
            Self::Children => (1, 0),
            Self::Termination => (2, 0),
            Self::Control(node) => (3, node),
            Self::Output(node, Stream::Stdout) => (4, node),
            Self::Output(node, Stream::Stderr) => (5, node),
            Self::Listener => (6, 0),
            Self::Client(client) => (7, client),
            Self::ClientEnded(client) => (8, client),
            Self::Logs => (9, 0),
        };
        epoll::EventData::new_u64((node as u64) << 8 | kind)
    }

    fn unpack(data: epoll::EventData) -> Self {
        let node = (data.u64() >> 8) as usize;
        match data.u64() & 0xff {
            0 => Self::Run,
            1 => Self::Children,
            2 => Self::Termination,
            3 => Self::Control(node),
            4 => Self::Output(node, Stream::Stdout),
            5 => Self::Output(node, Stream::Stderr),
            6 => Self::Listener,
            7 => Self::Client(node),
            8 => Self::ClientEnded(node),
            _ => Self::Logs,
        }
    }
}

struct Shell {
    machine: Machine,
    /// Nodes of the plan: those behind them are guests.
    own_nodes: usize,
    begin: Instant,
    epoll: OwnedFd,
    descriptors: Descriptors,
    run: ReportLink,
    clients: Clients,
    slots: Vec<Slot>,
    /// Those of the nodes of the plan, and then the keeper's own; `None` with `--no-logs`.
    logs: Option<Logs>,
    /// As long as this is open the logs are not removed.
    _log_folder: Option<File>,
    nodes_by_pid: HashMap<Pid, usize>,
    /// The control groups of the nodes, where they can have some.
    groups: Option<NodeGroups>,
    key: ProcessKey,
    children: UnixStream,
    termination: UnixStream,
    /// The limit on open files that nodes get.
    files: Rlimit,
    /// For one control message.
    buffer: Vec<u8>,
    events: VecDeque<Event>,
    /// What the machine has decided and is not done, in order. The first waits for a resource, unless it is empty.
    actions: VecDeque<Action>,
    /// Since when.
    short_since: Option<Duration>,
    /// When to try again.
    retry_at: Option<Duration>,
    is_finished: bool,
}

impl Shell {
    fn new(plan: Plan, control: Seqpacket, files: Rlimit) -> Result<Self, KeeperError> {
        use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("cannot create an epoll"))?;
        let children = watch_signals(&[SIGCHLD])?;
        let termination = watch_signals(&[SIGTERM, SIGINT, SIGHUP])?;
        let mut machine = Machine::new(plan);
        let (max_clients, max_guest_edges) =
            Descriptors::left_for_clients(machine.plan(), files.maximum);
        machine.limit_guest_edges(max_guest_edges);
        let plan = machine.plan();
        let mut shell = Self {
            own_nodes: plan.nodes.len(),
            begin: Instant::now(),
            descriptors: Descriptors::new(plan).map_err(system("cannot make the control page"))?,
            slots: plan.nodes.iter().map(|_| Slot::new()).collect(),
            logs: open_logs(plan).map_err(system("cannot write log files"))?,
            _log_folder: plan
                .log_folder
                .as_deref()
                .map(log_space::lock)
                .transpose()
                .map_err(system("cannot open the log folder"))?,
            run: ReportLink::new(control, Reader::Run),
            clients: Clients::new(max_clients),
            machine,
            nodes_by_pid: HashMap::new(),
            groups: None,
            key: ProcessKey::own()
                .ok_or(Errno::NOENT)
                .map_err(system("cannot read /proc"))?,
            epoll,
            children,
            termination,
            files,
            buffer: Vec::with_capacity(MAX_MESSAGE_BYTES),
            events: VecDeque::new(),
            actions: VecDeque::new(),
            short_since: None,
            retry_at: None,
            is_finished: false,
        };
        shell.watch(shell.children.as_fd(), Token::Children)?;
        shell.watch(shell.termination.as_fd(), Token::Termination)?;
        if let Some(logs) = &shell.logs {
            shell.watch(logs.bell().as_fd(), Token::Logs)?;
        }
        if let Some(socket) = shell.run.socket() {
            shell.watch(socket.as_fd(), Token::Run)?;
        }
        for node in 0..shell.slots.len() {
            // Its neighbours may be told of it before anybody has joined.
            if shell.machine.plan().nodes[node].is_dynamic() {
                shell.renew_pages(node)?;
            }
        }
        match NodeGroups::create() {
            Ok(groups) => shell.groups = Some(groups),
            Err(why) => shell.do_without_groups(&why),
        }
        shell.listen();
        Ok(shell)
    }

    fn watch(&self, fd: BorrowedFd<'_>, token: Token) -> Result<(), KeeperError> {
        epoll::add(&self.epoll, fd, token.pack(), epoll::EventFlags::IN)
            .map_err(system("cannot watch a descriptor"))
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn serve(&mut self) -> Result<(), KeeperError> {
        self.events.push_back(Event::Launch);
        while !self.is_finished {
            self.handle_events()?;
            self.flush();
            if !self.is_finished {
                self.wait()?;
            }
        }
        let killed = descendants::kill_all().map_err(system("processes are left"))?;
        if killed > 0 {
            self.log(
                None,
                Level::Warn,
                "keeper",
                format!("killed {killed} process(es) that nodes had left behind"),
            );
        }
        self.say_farewell()
    }

    fn handle_events(&mut self) -> Result<(), KeeperError> {
        loop {
            self.apply_actions()?;
            let Some(event) = self.events.pop_front() else {
                return Ok(());
            };
            self.actions.extend(self.machine.handle(event, self.now()));
        }
    }

    /// Does what was decided, in order. What cannot be done for lack of a resource is tried again later, and all that
    /// follows waits for it; the keeper goes on to listen, log and reap meanwhile.
    fn apply_actions(&mut self) -> Result<(), KeeperError> {
        if self.retry_at.is_some_and(|at| at > self.now()) {
            return Ok(());
        }
        self.retry_at = None;
        while let Some(action) = self.actions.pop_front() {
            match self.apply(action.clone()) {
                Ok(()) => {
                    if self.short_since.take().is_some() {
                        self.log(
                            None,
                            Level::Info,
                            "keeper",
                            "it has what it lacked".to_owned(),
                        );
                    }
                }
                Err(KeeperError::Shortage { what, shortage }) => {
                    let now = self.now();
                    if self.short_since.is_none() {
                        self.log(
                            None,
                            Level::Warn,
                            "keeper",
                            format!("the keeper {what}: {shortage}"),
                        );
                    }
                    let since = *self.short_since.get_or_insert(now);
                    if now.saturating_sub(since) >= SHORTAGE_PATIENCE {
                        return Err(KeeperError::Shortage { what, shortage });
                    }
                    self.actions.push_front(action);
                    self.retry_at = Some(now + SHORTAGE_PAUSE);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn apply(&mut self, action: Action) -> Result<(), KeeperError> {
        match action {
            Action::Spawn { node } => self.spawn(node),
            Action::Send {
                node,
                message,
                descriptors,
            } => {
                let bytes = match encode(&message) {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        self.events.push_back(Event::Undeliverable {
                            node,
                            why: error.to_string(),
                        });
                        return Ok(());
                    }
                };
                let descriptors: io::Result<Vec<_>> = descriptors
                    .into_iter()
                    .map(|descriptor| self.descriptors.resolve(descriptor))
                    .collect();
                let descriptors =
                    descriptors.map_err(retryable("cannot make the descriptors of a message"))?;
                self.slots[node].send(bytes, descriptors);
                Ok(())
            }
            Action::Report {
                message,
                descriptor,
                audience,
            } => {
                let descriptor =
                    descriptor.map(|descriptor: Descriptor| self.descriptors.resolve(descriptor));
                let descriptor = match descriptor.transpose() {
                    // Of a guest that could not be admitted.
                    Err(_) if audience == Audience::Watchers => return Ok(()),
                    // Of a node whose process was not let in: its end follows.
                    Err(_) if is_of_joiner(&self.slots, &message) => None,
                    other => other.map_err(system("cannot make a descriptor for `run`"))?,
                };
                if audience == Audience::Everyone {
                    self.run
                        .send(&message, descriptor.clone(), self.begin.elapsed());
                }
                self.clients
                    .report(&message, descriptor.as_ref(), self.begin.elapsed());
                Ok(())
            }
            Action::Reply {
                client,
                message,
                descriptor,
            } => {
                let descriptor = descriptor.map(|descriptor| self.descriptors.resolve(descriptor));
                let descriptor = descriptor
                    .transpose()
                    .map_err(system("cannot make a descriptor for a client"))?;
                self.clients.answer(client, &message, descriptor);
                Ok(())
            }
            Action::Follow { client, logs } => {
                self.clients.follow(client, logs);
                Ok(())
            }
            Action::Admit { client, node } => {
                self.admit(client, node);
                Ok(())
            }
            Action::CloseClient { client } => {
                self.clients.remove(client);
                Ok(())
            }
            Action::CloseGuest { node } => {
                // What it is told last, if it still listens.
                self.slots[node].flush(self.begin.elapsed());
                self.slots[node].end();
                self.descriptors.forget_node(node);
                Ok(())
            }
            Action::CloseJoined { node } => {
                self.slots[node].flush(self.begin.elapsed());
                self.slots[node].end();
                Ok(())
            }
            Action::Log { node, level, text } => {
                self.log(node, level, "keeper", text);
                Ok(())
            }
            Action::Ring { node } => {
                self.descriptors.ring(node);
                Ok(())
            }
            Action::SetClock { clock } => {
                self.descriptors.set_clock(clock);
                Ok(())
            }
            Action::ReadPulse { node } => {
                let pulse = self
                    .descriptors
                    .pulse(node)
                    .map_err(retryable("cannot map the counters of a node"))?;
                self.events.push_back(Event::Pulse { node, pulse });
                Ok(())
            }
            Action::Examine { node, why } => {
                self.examine(node, &why);
                Ok(())
            }
            Action::Signal { node, signal } => {
                self.signal(node, signal);
                Ok(())
            }
            Action::CreateRegion {
                edge,
                depth,
                blocks,
            } => self
                .descriptors
                .create_region(edge, depth, blocks)
                .map_err(retryable("cannot make the shared memory of an edge")),
            Action::ReleaseRegion { edge } => {
                self.descriptors.release_region(edge);
                Ok(())
            }
            Action::ReleasePair { pair } => {
                self.descriptors.release_pair(pair);
                Ok(())
            }
            Action::Finish => {
                self.is_finished = true;
                Ok(())
            }
        }
    }

    fn spawn(&mut self, node: usize) -> Result<(), KeeperError> {
        self.renew_pages(node)?;
        let (ours, theirs) =
            Seqpacket::pair().map_err(retryable("cannot make the control socket of a node"))?;
        match self.start_process(node, theirs.as_fd()) {
            Ok(started) => {
                self.watch(ours.as_fd(), Token::Control(node))?;
                self.watch(started.stdout.as_fd(), Token::Output(node, Stream::Stdout))?;
                self.watch(started.stderr.as_fd(), Token::Output(node, Stream::Stderr))?;
                let pid = started.pid;
                self.nodes_by_pid.insert(pid, node);
                self.slots[node].begin(ours, started);
                self.events.push_back(Event::Started {
                    node,
                    pid: pid.as_raw_pid().unsigned_abs(),
                });
            }
            Err(reason) => self.events.push_back(Event::NotStarted { node, reason }),
        }
        Ok(())
    }

    fn start_process(&mut self, node: usize, control: BorrowedFd<'_>) -> Result<Started, String> {
        loop {
            let plan = self.machine.plan();
            let node = &plan.nodes[node];
            let start = |group| {
                process::start(
                    node,
                    &plan.folder,
                    control,
                    self.files,
                    group,
                    &self.key.mark(&node.id),
                )
            };
            let started = match self.groups.as_ref().map(|groups| groups.entry(&node.id)) {
                None => start(None),
                Some(Ok(group)) => start(Some(group.as_fd())),
                Some(Err(error)) => Err(NotStarted::Group(error)),
            };
            match started {
                Ok(started) => return Ok(started),
                Err(NotStarted::Other(reason)) => return Err(reason),
                Err(NotStarted::Group(error)) => self.do_without_groups(&error.to_string()),
            }
        }
    }

    fn do_without_groups(&mut self, why: &str) {
        self.groups = None;
        self.log(
            None,
            Level::Debug,
            "keeper",
            format!("nodes have no control groups of their own: {why}"),
        );
    }

    fn renew_pages(&mut self, node: usize) -> Result<(), KeeperError> {
        let (inputs, rows) = (
            self.machine.plan().nodes[node].inputs.len(),
            self.machine.counters_rows(node),
        );
        self.descriptors
            .renew_node(node, inputs, rows)
            .map_err(retryable("cannot make the shared memory of a node"))
    }

    fn signal(&mut self, node: usize, signal: Signal) {
        // A process that was not reaped: its number, and its group's, cannot be another's.
        let Some(pid) = self.slots[node].pid() else {
            return;
        };
        let _ = match signal {
            Signal::Terminate => {
                rustix::process::kill_process_group(pid, rustix::process::Signal::TERM)
            }
            Signal::Kill => {
                self.kill_group(node);
                rustix::process::kill_process_group(pid, rustix::process::Signal::KILL)
            }
            // It would kill a process that does not handle it.
            Signal::Stacks if !inspect::catches(pid, STACKS_SIGNAL) => Ok(()),
            Signal::Stacks => descendants::signal(pid, STACKS_SIGNAL),
        };
    }

    /// Kills all processes of a node, where it has a control group.
    fn kill_group(&mut self, node: usize) {
        let Some(groups) = &self.groups else { return };
        if let Err(error) = groups.kill(&self.machine.plan().nodes[node].id) {
            let text = format!("the processes in its control group cannot be killed: {error}");
            self.log(Some(node), Level::Warn, "keeper", text);
        }
    }

    /// Kills what the process `pid` of a node has left, also outside its process group.
    fn kill_leftovers(&mut self, node: usize, pid: Pid) {
        let id = &self.machine.plan().nodes[node].id;
        let outside = match &self.groups {
            Some(groups) => Ok(descendants::count_outside(&groups.members(id), pid)),
            None => descendants::kill_marked(&self.key.mark(id), pid),
        };
        self.kill_group(node);
        let text = match outside {
            Ok(0) => return,
            Ok(count) => {
                format!(
                    "killed {count} process(es) outside its process group that it had left behind"
                )
            }
            Err(error) => format!("processes that it has left behind are not found: {error}"),
        };
        self.log(Some(node), Level::Warn, "keeper", text);
    }

    /// Logs what a node does that hangs.
    fn examine(&mut self, node: usize, why: &str) {
        let Some(pid) = self.slots[node].pid() else {
            return;
        };
        self.log(Some(node), Level::Error, "keeper", why.to_owned());
        for line in inspect::threads(pid) {
            self.log(Some(node), Level::Info, "keeper", line);
        }
        if !inspect::catches(pid, STACKS_SIGNAL) {
            let text = "for its stacks, attach to it before its timeout: `gdb -p`, or `gcore` for a core file; \
                        of Python, `py-spy dump --pid`";
            self.log(Some(node), Level::Info, "keeper", text.to_owned());
        }
    }

    fn log(&mut self, node: Option<usize>, level: Level, stream: &str, text: String) {
        let name = node
            .map_or("nervure", |node| &self.machine.plan().nodes[node].id)
            .to_owned();
        let stream = stream.to_owned();
        let record = LogRecord {
            utc_nanos: utc_nanos(),
            node: name,
            level,
            stream,
            text,
        };
        if let Some(logs) = &self.logs {
            logs.push(
                node.map_or(self.own_nodes, |node| node.min(self.own_nodes)),
                line_of(&record),
            );
        }
        self.tell(&keeper_to_run::Message::Log(record));
    }

    /// Reports what became of log files, and does not write it to one.
    fn report_logs(&mut self, notices: Vec<Notice>) {
        for text in notices {
            let (node, stream) = ("nervure".to_owned(), "keeper".to_owned());
            let record = LogRecord {
                utc_nanos: utc_nanos(),
                node,
                level: Level::Warn,
                stream,
                text,
            };
            self.tell(&keeper_to_run::Message::Log(record));
        }
    }

    fn tell(&mut self, message: &keeper_to_run::Message) {
        let now = self.begin.elapsed();
        self.run.send(message, None, now);
        self.clients.report(message, None, now);
    }

    fn flush(&mut self) {
        let now = self.now();
        for at in 0..self.slots.len() {
            self.slots[at].flush(now);
            match self.slots[at].delivery(now) {
                Some(Delivery::Waits(shortage)) => {
                    self.log(
                        Some(at),
                        Level::Warn,
                        "keeper",
                        format!("its messages wait: {shortage}"),
                    );
                }
                Some(Delivery::GivenUp(shortage)) => {
                    let why = shortage.to_string();
                    self.events
                        .push_back(Event::Undeliverable { node: at, why });
                }
                None => {}
            }
        }
        let notices = self
            .logs
            .as_mut()
            .map(|logs| logs.notices(now))
            .unwrap_or_default();
        self.report_logs(notices);
        self.run.flush(now, utc_nanos());
        self.flush_clients(now);
    }

    fn wait(&mut self) -> Result<(), KeeperError> {
        let deadlines = self.slots.iter().filter_map(Slot::deadline);
        let links = self
            .run
            .deadline()
            .into_iter()
            .chain(self.clients.deadline());
        let links = links.chain(self.logs.as_ref().and_then(Logs::deadline));
        let own = self.machine.deadline().into_iter().chain(self.retry_at);
        let deadline = deadlines.chain(own).chain(links).min();
        let now = self.now();
        // Flushing may have brought news.
        let deadline = if self.events.is_empty() {
            deadline
        } else {
            Some(now)
        };
        // Whole milliseconds, rounded up: plain epoll_wait, which every kernel has, takes no others.
        let timeout = deadline
            .map(|at| timespec_of_millis(at.saturating_sub(now).as_nanos().div_ceil(1_000_000)));
        let mut events = Vec::with_capacity(256);
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(system("cannot wait for events")(error)),
        }
        for event in events {
            self.ready(Token::unpack(event.data));
        }
        if self.machine.deadline().is_some_and(|at| at <= self.now()) {
            self.events.push_back(Event::Deadline);
        }
        Ok(())
    }

    fn ready(&mut self, token: Token) {
        match token {
            Token::Run => self.receive_from_run(),
            Token::Children => {
                drain(&self.children);
                self.reap();
            }
            Token::Termination => {
                drain(&self.termination);
                let reason = "the keeper was asked to end by a signal".to_owned();
                self.events
                    .push_back(Event::Run(run_to_keeper::Message::Stop { reason }));
            }
            Token::Control(node) => self.receive_from_node(node),
            Token::Output(node, stream) => self.read_output(node, stream),
            Token::Listener => self.accept(),
            Token::Client(client) => self.receive_from_client(client),
            Token::ClientEnded(client) => self.client_ended(client),
            // They are looked for whenever something is sent.
            Token::Logs => self.logs.iter().for_each(|logs| drain(logs.bell())),
        }
    }

    fn receive_from_run(&mut self) {
        while let Some(socket) = self.run.socket() {
            match socket.receive(&mut self.buffer) {
                Ok(Received::Packet(_)) => {
                    if let Ok(message) = decode(&self.buffer) {
                        self.events.push_back(Event::Run(message));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(Received::Closed) | Err(_) => {
                    self.run.close();
                    self.events.push_back(Event::RunGone);
                }
            }
        }
    }

    fn receive_from_node(&mut self, node: usize) {
        for result in self.slots[node].receive(&mut self.buffer) {
            self.events.push_back(match result {
                Ok(message) => Event::Message { node, message },
                Err(what) => Event::Misbehaved { node, what },
            });
        }
    }

    fn read_output(&mut self, node: usize, stream: Stream) {
        for line in self.slots[node].read(stream) {
            self.log_line(node, stream, line);
        }
    }

    fn log_line(&mut self, node: usize, stream: Stream, line: String) {
        self.log(Some(node), lines::guess_level(&line), stream.name(), line);
    }

    fn reap(&mut self) {
        while let Some(pid) = descendants::next_ended() {
            let Some(node) = self.nodes_by_pid.remove(&pid) else {
                descendants::reap(pid);
                continue;
            };
            // Before its zombie goes, because the group's number may be used again afterwards.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            self.kill_leftovers(node, pid);
            let Some(end) = descendants::reap(pid) else {
                continue;
            };
            self.receive_from_node(node);
            for stream in [Stream::Stdout, Stream::Stderr] {
                for line in self.slots[node].drain(stream) {
                    self.log_line(node, stream, line);
                }
            }
            let slot = &mut self.slots[node];
            if let Some(python) = slot.missing_module() {
                let text = format!(
                    "it ran on {}: if the module is in another environment, activate that one and start again",
                    python.display()
                );
                self.log(Some(node), Level::Warn, "keeper", text);
            }
            let stderr_tail = self.slots[node].end();
            self.events.push_back(Event::Ended {
                node,
                end,
                stderr_tail,
            });
        }
    }

    /// Waits for `run` to take what is left to say, as long as it lives: its terminal may stand still for a while.
    /// Clients have a second.
    fn say_farewell(&mut self) -> Result<(), KeeperError> {
        const PATIENCE: Duration = Duration::from_secs(1);
        let patience = self.now() + PATIENCE;
        self.clients.listen_no_more();
        self.flush();
        let notices = self.logs.as_mut().map(Logs::finish).unwrap_or_default();
        self.report_logs(notices);
        self.run.hurry(self.now());
        loop {
            self.flush();
            let run_waits = self.run.is_waiting() && self.run.socket().is_some();
            if !run_waits && (self.clients.have_all() || self.now() >= patience) {
                return Ok(());
            }
            self.wait()?;
            self.events.clear();
        }
    }
}

/// Starts the writer of the log files.
fn open_logs(plan: &Plan) -> io::Result<Option<Logs>> {
    let (Some(limit), Some(folder)) = (&plan.log_limit, &plan.log_folder) else {
        return Ok(None);
    };
    let names = plan
        .nodes
        .iter()
        .map(|node| node.id.as_str())
        .chain(["nervure"]);
    let max_bytes = limit.max_file_bytes(plan.nodes.len() + 1);
    let files = names
        .map(|name| LogFile::new(folder, name, max_bytes))
        .collect();
    Logs::new(files, Some(LogSpace::new(limit.clone(), folder))).map(Some)
}

/// Whether a report is of the start of a process that the keeper did not start.
fn is_of_joiner(slots: &[Slot], message: &keeper_to_run::Message) -> bool {
    let keeper_to_run::Message::NodeStarted(started) = message else {
        return false;
    };
    slots
        .get(started.node as usize)
        .is_some_and(|slot| slot.pid().is_none())
}

fn timespec_of_millis(millis: u128) -> Timespec {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: millis / 1000,
        tv_nsec: millis % 1000 * 1_000_000,
    }
}

/// A stream that becomes readable when one of the signals comes.
fn watch_signals(signals: &[i32]) -> Result<UnixStream, KeeperError> {
    let (read, write) = UnixStream::pair().map_err(system("cannot watch signals"))?;
    read.set_nonblocking(true)
        .map_err(system("cannot watch signals"))?;
    for &signal in signals {
        let write = write.try_clone().map_err(system("cannot watch signals"))?;
        signal_hook::low_level::pipe::register(signal, write)
            .map_err(system("cannot watch signals"))?;
    }
    Ok(read)
}

fn drain(stream: &UnixStream) {
    let mut bytes = [0; 64];
    while let Ok(1..) = (&*stream).read(&mut bytes) {}
}
