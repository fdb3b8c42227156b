//! Serves the commands of this machine.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use nervure_node::packets::{PacketError, Packets};
use nervure_node::serving::Server;
use nervure_protocol::cli_to_daemon::Message;
use nervure_protocol::daemon_to_cli::{self, Machine, Reported, Unreachable};
use nervure_protocol::daemon_to_daemon::{Answer, Ask, Frame, Request, decode_frame};
use nervure_protocol::keeper_to_cli::{self, Refused};
use nervure_protocol::report::Report;
use nervure_protocol::{VERSIONS, cli_to_keeper};
use rustix::fd::{AsFd, OwnedFd};

use super::calls::{self, Call, damaged};
use super::dataflows::Dataflows;
use super::pages::{self, Copies};
use crate::bridge::Bridge;
use crate::by_hand;
use crate::machine::Event;
use crate::reports::Reports;
use crate::state::RunId;
use crate::threads::{Threads, for_all, spawn};

/// The most commands at a time.
const MAX_COMMANDS: usize = 256;

/// How long a command may leave its messages unread.
const UNREAD: Duration = Duration::from_secs(10);

/// Pause after a connection could not be accepted. The connection stays readable, and a shortage of
/// descriptors ends without an event, as commands end.
const ACCEPT_PAUSE: Duration = Duration::from_secs(2);

/// The interval of signs of life to the other machine.
const ALIVE: Duration = Duration::from_secs(2);

/// The interval of reports on the cost.
const COST: Duration = Duration::from_millis(500);

/// Sources of the answers to commands.
#[derive(Debug)]
struct Local {
    machine: String,
    bridge: Arc<Bridge>,
    reports: Arc<Reports>,
    dataflows: Dataflows,
    events: Mutex<Sender<Event>>,
}

/// Serves the commands of this machine, in threads of its own.
pub(crate) fn listen(
    name: &str,
    machine: String,
    bridge: Arc<Bridge>,
    reports: Arc<Reports>,
    dataflows: Dataflows,
    events: Sender<Event>,
) -> io::Result<()> {
    let server = Server::bind(name)?;
    let local = Arc::new(Local {
        machine,
        bridge,
        reports,
        dataflows,
        events: Mutex::new(events),
    });
    let threads = Threads::new("nervure-command", MAX_COMMANDS);
    spawn("nervure-commands", move || {
        loop {
            let served = server.accept().map(|packets| {
                let local = Arc::clone(&local);
                threads.start(move || local.serve(packets))
            });
            match served {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!("a command is not served: {error}"),
                Err(error) => {
                    tracing::warn!("a command is not served: {error}");
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    })
}

impl Local {
    fn serve(&self, mut packets: Packets) {
        let result = self.answer(&mut packets);
        if let Err(Some(refused)) = result {
            let answer = Answer::Refused(refused);
            let _ = packets.send(&daemon_to_cli::Message::Answer { answer }, None);
        }
    }

    /// Answers a command. The error is the refusal that is still to be sent.
    fn answer(&self, packets: &mut Packets) -> Result<(), Option<Refused>> {
        match next(packets)? {
            Message::Hello(hello) => {
                let version = VERSIONS
                    .negotiate(hello.versions)
                    .map_err(|error| Refused::new(error.to_string(), None))?;
                let machine = self.machine.clone();
                send(
                    packets,
                    &daemon_to_cli::Message::Welcome { version, machine },
                )?;
            }
            _ => return Err(Some(Refused::new("the first message is `hello`", None))),
        }
        match next(packets)? {
            Message::Machines => self.machines(packets),
            Message::Ask { machine, request } => self.ask(packets, &machine, request),
            Message::ByHand { run } => self.by_hand(packets, run),
            _ => Err(Some(Refused::new(
                "the daemon does not know the request",
                None,
            ))),
        }
    }

    /// Forwards an order of the machine's own user.
    fn by_hand(&self, packets: &Packets, run: RunId) -> Result<(), Option<Refused>> {
        {
            // Read and sent in one step: the last of several orders is the last that counts.
            let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            let order = by_hand::current(&self.dataflows.folder.run(&run));
            let _ = events.send(Event::ByHand { run, order });
        }
        let answer = Answer::Done;
        send(packets, &daemon_to_cli::Message::Answer { answer })
    }

    /// Lists all machines. They are asked at the same time.
    fn machines(&self, packets: &Packets) -> Result<(), Option<Refused>> {
        let own = Machine {
            name: self.machine.clone(),
            is_own: true,
            unreachable: None,
            dataflows: self.dataflows.list(),
            link: None,
        };
        send(packets, &daemon_to_cli::Message::Machine(own))?;
        let names = self.bridge.machines();
        for machine in for_all(&names, |name| self.machine(name)) {
            send(packets, &daemon_to_cli::Message::Machine(machine))?;
        }
        let answer = Answer::Done;
        send(packets, &daemon_to_cli::Message::Answer { answer })
    }

    fn machine(&self, name: &str) -> Machine {
        let listed = calls::list(&self.bridge, name);
        let (unreachable, dataflows) = match listed {
            Ok(dataflows) => (None, dataflows),
            Err(refused) => {
                let silence = self.bridge.silence(name);
                let unreachable = Unreachable {
                    reason: refused.reason,
                    silent_nanos: silence.map(|it| it.as_nanos().try_into().unwrap_or(u64::MAX)),
                    reported: self.reported(name),
                };
                (Some(unreachable), Vec::new())
            }
        };
        let mut machine = Machine {
            name: name.to_owned(),
            is_own: false,
            unreachable,
            dataflows,
            link: self.bridge.link_figures(name),
        };
        if nervure_protocol::encode(&daemon_to_cli::Message::Machine(machine.clone())).is_err() {
            machine.dataflows.clear();
            machine.unreachable = Some(Unreachable {
                reason: format!("the list of dataflows of {name} is too long"),
                silent_nanos: None,
                reported: Vec::new(),
            });
        }
        machine
    }

    fn reported(&self, machine: &str) -> Vec<Reported> {
        let runs = self.reports.running(machine).into_iter();
        let reported = runs.map(|(run, actual)| Reported {
            run,
            dataflow: actual.dataflow,
            nodes: actual.nodes,
        });
        reported.collect()
    }

    /// Passes a request on, and its answers back.
    fn ask(
        &self,
        packets: &mut Packets,
        machine: &str,
        request: Request,
    ) -> Result<(), Option<Refused>> {
        let is_reach = matches!(request, Request::Reach { .. });
        let call = Call::begin(&self.bridge, machine, request)?;
        let mut from_command = packets
            .try_clone()
            .map_err(|error| Refused::new(error.to_string(), None))?;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let passes = Builder::new().spawn_scoped(scope, || {
                pass_on(&mut from_command, &call, is_reach, &is_over);
                is_over.store(true, Ordering::SeqCst);
            });
            let result = match passes {
                Ok(_) => pass_back(packets, &call, is_reach, machine, &is_over),
                Err(error) => Err(Some(Refused::new(error.to_string(), None))),
            };
            if let Err(Some(refused)) = &result {
                let answer = Answer::Refused(refused.clone());
                let _ = packets.send(&daemon_to_cli::Message::Answer { answer }, None);
            }
            is_over.store(true, Ordering::SeqCst);
            // Ends the wait of the other thread.
            packets.shut_down();
        });
        Ok(())
    }
}

fn next(packets: &mut Packets) -> Result<Message, Option<Refused>> {
    match packets.receive_until(Instant::now() + UNREAD) {
        Ok(Some((message, _))) => Ok(message),
        Ok(None) | Err(PacketError::Closed) => Err(None),
        Err(error) => Err(Some(Refused::new(error.to_string(), None))),
    }
}

fn send(packets: &Packets, message: &daemon_to_cli::Message) -> Result<(), Option<Refused>> {
    let sent = packets.send_until(message, None, Instant::now() + UNREAD);
    sent.map_err(|_| None)
}

/// Passes the messages of a command on, until it ends.
fn pass_on(packets: &mut Packets, call: &Call<'_>, is_reach: bool, is_over: &AtomicBool) {
    loop {
        let deadline = Instant::now() + ALIVE;
        let ask = match is_reach {
            true => packets
                .receive_until::<cli_to_keeper::Message>(deadline)
                .map(|it| it.map(|(message, _)| Ask::Keeper { message })),
            false => packets
                .receive_until::<Message>(deadline)
                .map(|it| it.map(|(_, _)| Ask::Next)),
        };
        let ask = match ask {
            Ok(ask) => ask.unwrap_or(Ask::Alive),
            Err(PacketError::Protocol(_)) => continue,
            Err(_) => return,
        };
        if is_over.load(Ordering::SeqCst) || call.send(&ask).is_err() {
            return;
        }
    }
}

/// Passes the answers back to the command, until either ends.
fn pass_back(
    packets: &Packets,
    call: &Call<'_>,
    is_reach: bool,
    machine: &str,
    is_over: &AtomicBool,
) -> Result<(), Option<Refused>> {
    let mut copies = Copies::default();
    let mut cost_at = Instant::now();
    while let Some(bytes) = call.receive()? {
        if is_over.load(Ordering::SeqCst) {
            return Err(None);
        }
        let frame = decode_frame(&bytes).map_err(|error| damaged(machine, &error))?;
        let deadline = Instant::now() + UNREAD;
        let failed = |error: io::Error| Some(Refused::new(error.to_string(), None));
        match frame {
            Frame::Answer(Answer::Alive) => {}
            Frame::Answer(Answer::Ended { topic: None }) if is_reach => return Err(None),
            Frame::Answer(answer) => {
                let is_last = matches!(answer, Answer::Done | Answer::Refused(_));
                let message = daemon_to_cli::Message::Answer { answer };
                packets
                    .send_until(&message, None, deadline)
                    .map_err(|_| None)?;
                if is_last {
                    return Err(None);
                }
            }
            Frame::Keeper(keeper, page) => {
                let page: Option<OwnedFd> = match (&keeper, page) {
                    (
                        keeper_to_cli::Message::Report {
                            report: Report::NodeStarted(started),
                        },
                        Some(page),
                    ) => Some(copies.add(started.node, page).map_err(failed)?),
                    _ => None,
                };
                let page = page.as_ref().map(AsFd::as_fd);
                let message = daemon_to_cli::Message::Keeper { keeper };
                packets
                    .send_until(&message, page, deadline)
                    .map_err(|_| None)?;
            }
            Frame::Lines(node, lines) => copies.change(node, lines).map_err(failed)?,
            Frame::Sample(info, sample) => {
                let file = pages::memfd(sample).map_err(failed)?;
                let answer = Answer::Sample(info);
                let message = daemon_to_cli::Message::Answer { answer };
                packets
                    .send_until(&message, Some(file.as_fd()), deadline)
                    .map_err(|_| None)?;
            }
        }
        if cost_at.elapsed() >= COST {
            cost_at = Instant::now();
            let answer = Answer::Cost(call.cost());
            let sent = packets.send(&daemon_to_cli::Message::Answer { answer }, None);
            // A slow command gets the next one.
            if matches!(sent, Err(PacketError::Closed)) {
                return Err(None);
            }
        }
    }
    Err(None)
}
