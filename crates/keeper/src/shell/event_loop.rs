//! The event loop of a keeper.

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io::{self, Read},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use nervure_protocol::{
    MAX_MESSAGE_BYTES,
    report::{Level, LogRecord, Report},
};
use nervure_shm::{Seqpacket, utc_nanos};
use rustix::{
    event::{Timespec, epoll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    process::{Pid, Rlimit},
};

use super::{
    clients::Clients,
    descriptors::Descriptors,
    error::{KeeperError, system},
    hosts::{Hosts, shared_processes},
    log_files::{LogFile, Notice, line_of},
    log_writer::Logs,
    outbox::Delivery,
    slot::Slot,
    token::Token,
};
use crate::{
    cgroups::NodeGroups,
    descendants::{self, ProcessKey},
    log_space::{self, LogSpace},
    machine::{Action, Audience, Event, Machine},
    plan::Plan,
};

/// How often an action is retried while a resource is short.
const SHORTAGE_RETRY_PERIOD: Duration = Duration::from_millis(50);

/// The state of the event loop.
pub struct Shell {
    pub(super) machine: Machine,
    /// Number of nodes of the plan; those behind them are guests.
    pub(super) own_nodes: usize,
    pub(super) begin: Instant,
    pub(super) epoll: OwnedFd,
    pub(super) descriptors: Descriptors,
    pub(super) clients: Clients,
    pub(super) slots: Vec<Slot>,
    /// The logs of the plan's nodes, then the keeper's own, then those of shared processes; `None`
    /// with `--no-logs`.
    pub(super) logs: Option<Logs>,
    /// While this is open no run removes the logs.
    _log_folder: Option<File>,
    pub(super) nodes_by_pid: HashMap<Pid, usize>,
    pub(super) hosts: Hosts,
    /// The control groups of the nodes; `None` where the keeper cannot create any.
    pub(super) groups: Option<NodeGroups>,
    pub(super) key: ProcessKey,
    pub(super) children: UnixStream,
    pub(super) termination: UnixStream,
    /// The limit on open files that nodes get.
    pub(super) files: Rlimit,
    /// Receives one control message.
    pub(super) buffer: Vec<u8>,
    pub(super) events: VecDeque<Event>,
    /// Actions that are not done yet, in order. The first one waits for a resource.
    pub(super) actions: VecDeque<Action>,
    /// Since when a resource is short.
    pub(super) short_since: Option<Duration>,
    /// When to retry.
    pub(super) retry_at: Option<Duration>,
    pub(super) is_finished: bool,
    /// Whether a signal has stopped the dataflow. A machine that shuts down ends processes by a signal, and
    /// runs the dataflow again when it boots.
    was_terminated: bool,
}

impl Shell {
    /// A keeper that has not started any node. It reports nothing before its starter follows.
    ///
    /// # Errors
    /// When a resource for its own descriptors is short.
    pub fn new(plan: Plan, starter: Seqpacket, files: Rlimit) -> Result<Self, KeeperError> {
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
        let hosts = Hosts::new(shared_processes(plan));
        let mut shell = Self {
            own_nodes: plan.nodes.len(),
            begin: Instant::now(),
            descriptors: Descriptors::new(plan).map_err(system("cannot make the control page"))?,
            slots: plan.nodes.iter().map(|_| Slot::new()).collect(),
            logs: open_logs(plan, &hosts.logged).map_err(system("cannot write log files"))?,
            _log_folder: plan
                .log_folder
                .as_deref()
                .map(log_space::lock)
                .transpose()
                .map_err(system("cannot open the log folder"))?,
            clients: Clients::new(max_clients),
            machine,
            nodes_by_pid: HashMap::new(),
            hosts,
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
            was_terminated: false,
        };
        shell.watch(shell.children.as_fd(), Token::Children)?;
        if let Some(logs) = &shell.logs {
            shell.watch(logs.bell().as_fd(), Token::Logs)?;
        }
        shell.connect_starter(starter)?;
        for node in 0..shell.slots.len() {
            // Its neighbours may need its pages before it has a process.
            if shell.machine.plan().nodes[node].begins_held() {
                shell.renew_pages(node)?;
            }
        }
        Ok(shell)
    }

    /// Starts the dataflow, which signals can stop only from now on.
    fn launch(&mut self) -> Result<(), KeeperError> {
        self.watch(self.termination.as_fd(), Token::Termination)?;
        match NodeGroups::create() {
            Ok(groups) => self.groups = Some(groups),
            Err(why) => self.do_without_groups(&why),
        }
        self.listen();
        self.events.push_back(Event::Launch);
        Ok(())
    }

    pub(super) fn watch(&self, fd: BorrowedFd<'_>, token: Token) -> Result<(), KeeperError> {
        epoll::add(&self.epoll, fd, token.pack(), epoll::EventFlags::IN)
            .map_err(system("cannot watch a descriptor"))
    }

    /// Since the keeper started.
    pub(super) fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Runs the dataflow until every node has ended.
    ///
    /// # Errors
    /// [`KeeperError`].
    pub fn serve(&mut self) -> Result<(), KeeperError> {
        let mut is_launched = false;
        while !self.is_finished {
            self.handle_events()?;
            if !is_launched {
                let Some(starter) = self.clients.starter() else {
                    let why = "`run` ended before it asked for reports".to_owned();
                    return Err(KeeperError::NotLaunched(why));
                };
                if starter.follows.is_some() {
                    is_launched = true;
                    self.launch()?;
                    continue;
                }
            }
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
        self.note_end();
        self.finish_sending()
    }

    /// Renames the note of the end, which needs no room on a full disk.
    fn note_end(&mut self) {
        let Some((before, after)) = self.machine.plan().end_note.clone() else {
            return;
        };
        if self.was_terminated {
            return;
        }
        if let Err(error) = std::fs::rename(&before, &after) {
            let text = format!("cannot note the end as {}: {error}", after.display());
            self.log(None, Level::Warn, "keeper", text);
        }
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

    /// Carries out actions in order. One that lacks a resource is retried later, and all that
    /// follow wait for it. Meanwhile the keeper continues to receive, log and reap.
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
                    self.short_since.get_or_insert(now);
                    if self.has_lost_patience() {
                        return Err(KeeperError::Shortage { what, shortage });
                    }
                    self.actions.push_front(action);
                    self.retry_at = Some(now + SHORTAGE_RETRY_PERIOD);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
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
        self.hosts.flush(now);
        let notices = self
            .logs
            .as_mut()
            .map(|logs| logs.notices(now))
            .unwrap_or_default();
        self.report_logs(notices);
        self.flush_clients(now);
    }

    fn wait(&mut self) -> Result<(), KeeperError> {
        let hosts = self.hosts.slots();
        let deadlines = self.slots.iter().chain(hosts).filter_map(Slot::deadline);
        let links = self
            .clients
            .deadline()
            .into_iter()
            .chain(self.logs.as_ref().and_then(Logs::deadline));
        let own = self.machine.deadline().into_iter().chain(self.retry_at);
        let deadline = deadlines.chain(own).chain(links).min();
        let now = self.now();
        // Flushing may have added events.
        let deadline = if self.events.is_empty() {
            deadline
        } else {
            Some(now)
        };
        // Whole milliseconds, rounded up: the resolution of epoll_wait, which every kernel has.
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
            Token::Children => {
                drain(&self.children);
                self.reap();
            }
            Token::Termination => {
                drain(&self.termination);
                self.was_terminated = true;
                self.events.push_back(Event::Terminated);
            }
            Token::Control(node) => self.receive_from_node(node),
            Token::Output(node, stream) => self.read_output(node, stream),
            Token::Host(host) => self.serve_host(host, None),
            Token::HostOutput(host, stream) => self.serve_host(host, Some(stream)),
            Token::Listener => self.accept(),
            Token::Client(client) => self.receive_from_client(client),
            Token::ClientEnded(client) => self.client_ended(client),
            // Each flush takes the notices.
            Token::Logs => self.logs.iter().for_each(|logs| drain(logs.bell())),
        }
    }

    /// Waits until `run` has received the last messages, as long as it lives: its terminal may be
    /// blocked for a while. Clients have a second.
    fn finish_sending(&mut self) -> Result<(), KeeperError> {
        const CLIENTS_TIMEOUT: Duration = Duration::from_secs(1);
        let clients_deadline = self.now() + CLIENTS_TIMEOUT;
        self.clients.stop_listening();
        if let Some(text) = self.clients.refusals.take_rest() {
            self.log(None, Level::Warn, "keeper", text);
        }
        self.flush();
        let notices = self.logs.as_mut().map(Logs::finish).unwrap_or_default();
        self.report_logs(notices);
        self.clients.sum_up_now(self.now());
        loop {
            self.flush();
            if !self.clients.starter_waits()
                && (self.clients.have_received_all() || self.now() >= clients_deadline)
            {
                return Ok(());
            }
            self.wait()?;
            self.events.clear();
        }
    }

    /// Writes a line to the log of a node, or of the keeper, and reports it.
    pub(super) fn log(&mut self, node: Option<usize>, level: Level, stream: &str, text: String) {
        let name = node
            .map_or("nervure", |node| &self.machine.plan().nodes[node].id)
            .to_owned();
        let file = node.map_or(self.own_nodes, |node| node.min(self.own_nodes));
        self.log_as(name, file, level, stream, text);
    }

    /// Writes a line to the log file with this number, and reports it under that name.
    pub(super) fn log_as(
        &mut self,
        name: String,
        file: usize,
        level: Level,
        stream: &str,
        text: String,
    ) {
        let record = LogRecord {
            utc_nanos: utc_nanos(),
            node: name,
            level,
            stream: stream.to_owned(),
            text,
        };
        if let Some(logs) = &self.logs {
            logs.push(file, line_of(&record));
        }
        self.report(&Report::Log(record));
    }

    /// Reports notices about log files, without writing them to one.
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
            self.report(&Report::Log(record));
        }
    }

    /// Reports to the clients that follow.
    fn report(&mut self, message: &Report) {
        let now = self.begin.elapsed();
        self.clients.report(message, None, Audience::Everyone, now);
    }
}

/// Starts the writer of the log files: of the nodes, the keeper, and shared processes.
fn open_logs(plan: &Plan, shared: &[String]) -> io::Result<Option<Logs>> {
    let (Some(limit), Some(folder)) = (&plan.log_limit, &plan.log_folder) else {
        return Ok(None);
    };
    let names = plan
        .nodes
        .iter()
        .map(|node| node.id.as_str())
        .chain(["nervure"])
        .chain(shared.iter().map(String::as_str));
    let max_bytes = limit.max_file_bytes(plan.nodes.len() + 1 + shared.len());
    let files = names
        .map(|name| LogFile::new(folder, name, max_bytes))
        .collect();
    Logs::new(files, Some(LogSpace::new(limit.clone(), folder))).map(Some)
}

fn timespec_of_millis(millis: u128) -> Timespec {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: millis / 1000,
        tv_nsec: millis % 1000 * 1_000_000,
    }
}

/// Returns a stream that becomes readable when one of the signals arrives.
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

/// Reads everything from a stream that only wakes.
fn drain(stream: &UnixStream) {
    let mut bytes = [0; 64];
    while let Ok(1..) = (&*stream).read(&mut bytes) {}
}
