//! Runs the hosts and the link between them.

use std::io::Read;
use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nervure_linkemu::Scenario;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};

use crate::arguments::RunArguments;
use crate::capture::Captures;
use crate::failure::{COMMAND_FAILED, Failure, KILLED};
use crate::forward::{Forwarder, Port};
use crate::messages::{Channel, FromHost, Setup, ToHost};
use crate::report::{self, CommandEnd, JsonLines, Live};
use crate::sys;

/// Poll interval of the devices while packets flow: a longer one is cheaper, a shorter one more
/// exact.
const TICK: Duration = Duration::from_micros(50);
/// Poll interval of hosts and signals while packets flow.
const CONTROL_INTERVAL: Duration = Duration::from_millis(5);
/// Grace period of commands that are asked to end.
const GRACE: Duration = Duration::from_secs(5);
/// Time in which packets may still arrive after the last command has ended.
const DRAIN: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);

/// A host's processes.
struct HostProcess {
    channel: Channel,
    child: Child,
    end: CommandEnd,
}

/// Why the run ends.
#[derive(Clone, Copy, PartialEq)]
enum Stop {
    /// All commands that it waits for have ended; the others are ended.
    Finished,
    /// A time limit, or Ctrl-C.
    Asked,
    /// A second Ctrl-C.
    Killed,
}

/// Runs the commands in namespaces with the link between them.
pub fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let commands = arguments.command_lines();
    let scenario = read_scenario(arguments, &commands)?;
    let mut bell = signals()?;
    let (hosts, ports) = start_hosts(&scenario, arguments, commands)?;
    let json = arguments.json.as_deref().map(JsonLines::create).transpose();
    let json = json.map_err(|cause| Failure::new("cannot write --json", cause))?;
    let start = Instant::now();
    let names = scenario.hosts.iter().map(|host| host.name.as_str());
    let epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let captures = arguments
        .pcap
        .as_ref()
        .map(|folder| Captures::create(folder, names, arguments.snaplen, epoch));
    let captures = captures
        .transpose()
        .map_err(|cause| Failure::new("cannot write --pcap", cause))?;
    let mut session = Session {
        forwarder: Forwarder::new(&scenario, ports, captures, start),
        hosts,
        arguments,
        json,
        live: Live::default(),
        stop: None,
        kill_at: None,
    };
    let stop = session.run(&mut bell)?;
    session.finish(&scenario, stop)
}

fn read_scenario(arguments: &RunArguments, commands: &[Vec<String>]) -> Result<Scenario, Failure> {
    let hint =
        Some("-- COMMAND --- COMMAND: one for each host, with `---` between them".to_owned());
    let invalid = |what: String| Failure {
        hint: hint.clone(),
        ..Failure::invalid(what)
    };
    if commands.iter().any(Vec::is_empty) {
        return Err(invalid(
            "expected a command between, before and after each `---`".to_owned(),
        ));
    }
    let scenario = arguments
        .scenario
        .scenario(commands.len())
        .map_err(|error| Failure::invalid(error.to_string()))?;
    let (hosts, names) = (scenario.hosts.len(), || {
        scenario
            .hosts
            .iter()
            .map(|host| host.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    });
    if hosts != commands.len() {
        return Err(invalid(format!(
            "expected a command for each of the {hosts} hosts ({}), got {}",
            names(),
            commands.len()
        )));
    }
    match arguments
        .until
        .iter()
        .find(|name| scenario.hosts.iter().all(|host| host.name != **name))
    {
        Some(name) => Err(Failure::invalid(format!(
            "--until: expected one of the hosts {}, got `{name}`",
            names()
        ))),
        None => Ok(scenario),
    }
}

/// A socket that becomes readable when a signal arrives.
fn signals() -> Result<UnixStream, Failure> {
    let failed = |cause| Failure::new("cannot watch for Ctrl-C", cause);
    let (bell, ringer) = UnixStream::pair().map_err(failed)?;
    bell.set_nonblocking(true).map_err(failed)?;
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::low_level::pipe::register(signal, ringer.try_clone().map_err(failed)?)
            .map_err(failed)?;
    }
    Ok(bell)
}

/// Makes the namespaces, all of them before the first command starts.
fn start_hosts(
    scenario: &Scenario,
    arguments: &RunArguments,
    commands: Vec<Vec<String>>,
) -> Result<(Vec<HostProcess>, Vec<Port>), Failure> {
    let named: Vec<(String, Ipv4Addr)> = (1..)
        .zip(&scenario.hosts)
        .map(|(last, host)| (host.name.clone(), Ipv4Addr::new(10, 77, 0, last)))
        .collect();
    let mut hosts = Vec::new();
    for (host, command) in commands.into_iter().enumerate() {
        let setup = Setup {
            host,
            hosts: named.clone(),
            mtu: arguments.interface_mtu,
            congestion_control: arguments.congestion_control.clone(),
            command,
        };
        hosts.push(start_host(setup)?);
    }
    let mut ports = Vec::new();
    for (host, (name, address)) in hosts.iter().zip(named) {
        let tun = match host
            .channel
            .receive()
            .map_err(|cause| Failure::new("lost a host", cause))?
        {
            Some((FromHost::Ready, Some(tun))) => tun,
            Some((message, _)) => return Err(failure_of(message)),
            None => {
                return Err(Failure::new(
                    format!("host {name} ended while it was set up"),
                    "no word from it",
                ));
            }
        };
        ports.push(Port {
            name,
            address,
            tun: tun.into(),
            counters: Default::default(),
        });
    }
    Ok((hosts, ports))
}

fn start_host(setup: Setup) -> Result<HostProcess, Failure> {
    let failed = |cause| Failure::new("cannot start a host", cause);
    let (channel, other) = Channel::pair().map_err(failed)?;
    let child = Command::new("/proc/self/exe")
        .arg("__namespaces")
        .stdin(Stdio::from(OwnedFd::from(other)))
        // The emulator handles Ctrl-C: it asks the commands to end.
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    match channel.send(&ToHost::Setup(Box::new(setup)), None) {
        // It has failed already, and reported why.
        Err(cause) if cause.kind() == std::io::ErrorKind::BrokenPipe => {}
        sent => sent.map_err(failed)?,
    }
    Ok(HostProcess {
        channel,
        child,
        end: CommandEnd::default(),
    })
}

fn failure_of(message: FromHost) -> Failure {
    match message {
        FromHost::Failed { what, cause, hint } => Failure {
            hint,
            ..Failure::new(what, cause)
        },
        other => Failure::new("a host failed", format!("unexpected message {other:?}")),
    }
}

struct Session<'a> {
    forwarder: Forwarder,
    hosts: Vec<HostProcess>,
    arguments: &'a RunArguments,
    json: Option<JsonLines>,
    live: Live,
    stop: Option<Stop>,
    kill_at: Option<Duration>,
}

impl Session<'_> {
    /// Carries packets until everything has ended or must end.
    fn run(&mut self, bell: &mut UnixStream) -> Result<Stop, Failure> {
        let failed = |cause| Failure::new("cannot carry packets", cause);
        // Without these the ticks are longer and less exact; the summary reports by how much.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
        let _ = sys::become_real_time();
        for host in &self.hosts {
            host.channel
                .send(&ToHost::Start, None)
                .map_err(|cause| Failure::new("cannot start a command", cause))?;
        }
        let (mut next_second, mut next_control) = (SECOND, Duration::ZERO);
        loop {
            let busy = self.forwarder.turn().map_err(failed)?;
            let now = self.forwarder.elapsed();
            if now >= next_second {
                next_second += SECOND;
                self.report_second()?;
            }
            if busy && now < next_control {
                std::thread::sleep(TICK);
                continue;
            }
            next_control = now + CONTROL_INTERVAL;
            let timeout = if busy {
                Duration::ZERO
            } else {
                self.idle_for(next_second)
            };
            if let Some(stop) = self.control(bell, timeout)? {
                return Ok(stop);
            }
        }
    }

    fn idle_for(&self, next_second: Duration) -> Duration {
        let now = self.forwarder.elapsed();
        let limits = [
            Some(next_second),
            self.arguments.stop_after.filter(|_| self.stop.is_none()),
            self.kill_at,
        ];
        let until = limits
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(next_second)
            .saturating_sub(now);
        // A packet that is due a little later waits for the next tick, together with others.
        self.forwarder
            .idle_for()
            .map_or(until, |idle| until.min(idle.max(TICK)))
    }

    /// Processes hosts and signals; returns why to end, once everything has ended or must.
    fn control(
        &mut self,
        bell: &mut UnixStream,
        timeout: Duration,
    ) -> Result<Option<Stop>, Failure> {
        let (rung, spoke) = self.wait(bell, timeout)?;
        for host in spoke {
            self.listen(host)?;
        }
        if rung {
            let _ = bell.read(&mut [0; 64]);
            if self.stop == Some(Stop::Asked) {
                return Ok(Some(Stop::Killed));
            }
            eprintln!("ending the commands; once more ends everything at once");
            self.begin_to_stop(Stop::Asked);
        }
        let now = self.forwarder.elapsed();
        if self.arguments.stop_after.is_some_and(|limit| now >= limit) {
            self.begin_to_stop(Stop::Finished);
        }
        let has_ended = |host: &HostProcess| host.end.unread_packets.is_some();
        if self.awaited().all(has_ended) {
            self.begin_to_stop(Stop::Finished);
        }
        let over = self.hosts.iter().all(has_ended) || self.kill_at.is_some_and(|at| now >= at);
        Ok(self.stop.filter(|_| over))
    }

    /// The hosts whose commands must end before the run ends.
    fn awaited(&self) -> impl Iterator<Item = &HostProcess> {
        let until = &self.arguments.until;
        let names = self.forwarder.air_hosts().map(|(port, _)| &port.name);
        let named = self.hosts.iter().zip(names);
        named
            .filter(|(_, name)| until.is_empty() || until.contains(name))
            .map(|(host, _)| host)
    }

    /// Returns whether a signal came, and which hosts have sent a message.
    fn wait(&self, bell: &UnixStream, timeout: Duration) -> Result<(bool, Vec<usize>), Failure> {
        let mut events = vec![PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)];
        events.extend(
            self.hosts
                .iter()
                .map(|host| PollFd::new(&host.channel, PollFlags::IN)),
        );
        events.extend(
            self.forwarder
                .devices()
                .map(|device| PollFd::new(device, PollFlags::IN)),
        );
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match rustix::event::poll(&mut events, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::new("cannot wait for packets", error)),
        }
        let ready = |index: usize| !events[index].revents().is_empty();
        Ok((
            ready(0),
            (0..self.hosts.len())
                .filter(|host| ready(1 + host))
                .collect(),
        ))
    }

    fn listen(&mut self, host: usize) -> Result<(), Failure> {
        let process = &mut self.hosts[host];
        match process
            .channel
            .receive()
            .map_err(|cause| Failure::new("lost a host", cause))?
        {
            Some((
                FromHost::Ended {
                    exit_code,
                    signal,
                    unread_packets,
                },
                _,
            )) => {
                process.end = CommandEnd {
                    exit_code,
                    signal,
                    unread_packets: Some(unread_packets),
                };
                Ok(())
            }
            Some((message, _)) => Err(failure_of(message)),
            None => Err(Failure::new(
                "a host was killed",
                "its first process is gone",
            )),
        }
    }

    fn begin_to_stop(&mut self, stop: Stop) {
        if self.stop.is_none() {
            self.stop = Some(stop);
            self.kill_at = Some(self.forwarder.elapsed() + GRACE);
            for host in &self.hosts {
                // A host that is gone needs no request.
                let _ = host.channel.send(&ToHost::Terminate, None);
            }
        }
    }

    fn report_second(&mut self) -> Result<(), Failure> {
        if self.arguments.live {
            eprintln!("{}", self.live.line(&self.forwarder));
        }
        if let Some(json) = &mut self.json {
            json.write(&report::second(&self.forwarder))
                .map_err(|cause| Failure::new("cannot write --json", cause))?;
        }
        Ok(())
    }

    /// Carries the packets still in flight, so that nearly every offered packet is delivered or
    /// lost in the end.
    fn drain(&mut self) -> Result<(), Failure> {
        let end = self.forwarder.elapsed() + DRAIN;
        loop {
            let busy = self
                .forwarder
                .turn()
                .map_err(|cause| Failure::new("cannot carry packets", cause))?;
            match self.forwarder.idle_for() {
                _ if self.forwarder.elapsed() >= end => return Ok(()),
                _ if busy => {}
                Some(idle) => std::thread::sleep(idle.max(TICK).min(DRAIN)),
                None => return Ok(()),
            }
        }
    }

    /// Reports the run, and waits until nothing is left.
    fn finish(mut self, scenario: &Scenario, stop: Stop) -> Result<ExitCode, Failure> {
        if stop == Stop::Finished {
            self.drain()?;
        }
        let ends: Vec<CommandEnd> = self.hosts.iter().map(|host| host.end).collect();
        self.forwarder
            .finish()
            .map_err(|cause| Failure::new("cannot write --pcap", cause))?;
        let congestion_control = &self.arguments.congestion_control;
        eprint!(
            "{}",
            report::table(scenario, congestion_control, &self.forwarder, &ends)
        );
        if let Some(json) = &mut self.json {
            json.write(&report::summary(
                scenario,
                congestion_control,
                &self.forwarder,
                &ends,
            ))
            .map_err(|cause| Failure::new("cannot write --json", cause))?;
        }
        let mut failed = false;
        for (host, end) in scenario.hosts.iter().zip(&ends) {
            // A command that the emulator ended did not fail.
            let ended_by_us = end.exit_code.is_none()
                && self.stop.is_some()
                && end.signal.is_none_or(|signal| signal == 15);
            if end.exit_code != Some(0) && !ended_by_us {
                failed = true;
                let how = end.exit_code.map_or_else(
                    || format!("was ended by signal {}", end.signal.unwrap_or(0)),
                    |code| format!("ended with exit code {code}"),
                );
                eprintln!("error: the command of {} {how}", host.name);
            }
        }
        Ok(match stop {
            Stop::Killed => ExitCode::from(KILLED),
            _ if failed => ExitCode::from(COMMAND_FAILED),
            _ => ExitCode::SUCCESS,
        })
    }
}

impl Drop for HostProcess {
    /// Waits until nothing is left of the host: closing the socket ends its first process, and with
    /// it all others.
    fn drop(&mut self) {
        if let Ok((closed, _)) = Channel::pair() {
            self.channel = closed;
        }
        let _ = self.child.wait();
    }
}
