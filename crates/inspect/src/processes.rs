//! The CPU time, memory and threads of nodes, from /proc and control groups.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use nervure_keeper::cgroups;
use nervure_node::running::Remote;
use nervure_protocol::daemon_to_daemon;

/// CPU and memory use of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// 100 is one CPU; `None` at the first reading.
    pub cpu_percent: Option<f64>,
    /// Resident memory in bytes, shared memory included.
    pub resident_bytes: u64,
    /// Number of threads.
    pub threads: u64,
}

/// Readings of nodes, by the process id of the node.
#[derive(Debug, Default)]
pub struct Processes {
    readings: HashMap<u32, Reading>,
    /// Readings of other machines, by part and process: their time in nanoseconds, the CPU time in
    /// microseconds, and what followed from the reading before.
    of_others: HashMap<(usize, u32), (u64, u64, Option<f64>)>,
}

/// The last reading of a node.
#[derive(Debug)]
struct Reading {
    at: Instant,
    cpu_micros: u64,
    /// The node's control group, if it has one.
    group: Option<PathBuf>,
}

impl Processes {
    /// The use of a node on another machine, as its daemon has reported it last.
    pub fn usage_of_other(&mut self, part: usize, remote: &Remote, pid: u32) -> Option<Usage> {
        let usage = remote.usages.iter().find(|usage| usage.pid == pid)?;
        let at = remote.usages_at_nanos;
        // The first reading of this command was earlier than those of the daemon.
        let first = || {
            let (then, usages) = remote.first_usages.as_ref()?;
            let usage = usages.iter().find(|usage| usage.pid == pid)?;
            Some((*then, usage.cpu_micros, None))
        };
        let earlier = self.of_others.get(&(part, pid)).copied().or_else(first);
        let cpu_percent = match earlier {
            Some((then, micros, _)) if at > then => {
                let seconds = (at - then) as f64 / 1e9;
                Some(100.0 * usage.cpu_micros.saturating_sub(micros) as f64 / 1e6 / seconds)
            }
            Some((_, _, percent)) => percent,
            None => None,
        };
        self.of_others
            .insert((part, pid), (at, usage.cpu_micros, cpu_percent));
        Some(Usage {
            cpu_percent,
            resident_bytes: usage.resident_bytes,
            threads: usage.threads,
        })
    }

    /// The load of a node that is a thread of a process: CPU time of the thread, memory of the
    /// process. Its readings have the thread as their key.
    pub fn usage_of_thread(&mut self, pid: u32, thread: u32) -> Option<Usage> {
        let Some((stat, of_process)) = Stat::of_thread(pid, thread).zip(Stat::read(pid)) else {
            self.readings.remove(&thread);
            return None;
        };
        let now = Instant::now();
        let reading = Reading {
            at: now,
            cpu_micros: stat.cpu_micros(),
            group: None,
        };
        let cpu_percent = self.readings.insert(thread, reading).map(|then| {
            let seconds = now.duration_since(then.at).as_secs_f64().max(1e-9);
            100.0 * stat.cpu_micros().saturating_sub(then.cpu_micros) as f64 / 1e6 / seconds
        });
        Some(Usage {
            cpu_percent,
            resident_bytes: of_process.resident_pages * rustix::param::page_size() as u64,
            threads: 1,
        })
    }

    /// The use of the node with this process; `None` if the process has ended. Counts all processes
    /// of the node's control group, or without one this process alone.
    pub fn usage(&mut self, pid: u32) -> Option<Usage> {
        let group = match self.readings.get(&pid) {
            Some(reading) => reading.group.clone(),
            None => cgroups::of_node(pid),
        };
        let Some(read) = read(pid, group.as_deref()) else {
            self.readings.remove(&pid);
            return None;
        };
        let earlier = self.readings.remove(&pid);
        let now = Instant::now();
        let cpu_percent = earlier.map(|then| {
            let seconds = now.duration_since(then.at).as_secs_f64().max(1e-9);
            100.0 * read.cpu_micros.saturating_sub(then.cpu_micros) as f64 / 1e6 / seconds
        });
        self.readings.insert(
            pid,
            Reading {
                at: now,
                cpu_micros: read.cpu_micros,
                group,
            },
        );
        Some(Usage {
            cpu_percent,
            resident_bytes: read.resident_bytes,
            threads: read.threads,
        })
    }
}

/// CPU time of a node's thread, and memory of its process.
pub fn of_thread(pid: u32, thread: u32) -> Option<daemon_to_daemon::Usage> {
    let (stat, of_process) = Stat::of_thread(pid, thread).zip(Stat::read(pid))?;
    Some(daemon_to_daemon::Usage {
        pid,
        cpu_micros: stat.cpu_micros(),
        resident_bytes: of_process.resident_pages * rustix::param::page_size() as u64,
        threads: 1,
    })
}

/// The CPU time and memory of the node with this process, for a command on another machine.
pub fn of_node(pid: u32) -> Option<daemon_to_daemon::Usage> {
    read(pid, cgroups::of_node(pid).as_deref())
}

fn read(pid: u32, group: Option<&Path>) -> Option<daemon_to_daemon::Usage> {
    let stat = Stat::read(pid)?;
    let members = group.map(cgroups::members).unwrap_or_default();
    let of_others = members
        .into_iter()
        .filter_map(|other| u32::try_from(other.as_raw_pid()).ok());
    let of_others = of_others
        .filter(|&other| other != pid)
        .filter_map(Stat::read);
    let total = of_others
        .fold(Usage::default(), |sum, other| sum.with(&other))
        .with(&stat);
    // The CPU time of a group includes its ended processes.
    let cpu_micros = group
        .and_then(cgroups::cpu_micros)
        .unwrap_or_else(|| stat.cpu_micros());
    Some(daemon_to_daemon::Usage {
        pid,
        cpu_micros,
        resident_bytes: total.resident_bytes,
        threads: total.threads,
    })
}

impl Usage {
    fn with(self, stat: &Stat) -> Self {
        Self {
            resident_bytes: self.resident_bytes
                + stat.resident_pages * rustix::param::page_size() as u64,
            threads: self.threads + stat.threads,
            ..self
        }
    }
}

/// The used fields of `/proc/<pid>/stat` (proc_pid_stat(5)).
#[derive(Debug, PartialEq)]
struct Stat {
    /// User and system time (fields 14 and 15).
    cpu_ticks: u64,
    threads: u64,
    resident_pages: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn of_thread(pid: u32, thread: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?)
    }

    fn cpu_micros(&self) -> u64 {
        self.cpu_ticks * 1_000_000 / rustix::param::clock_ticks_per_second()
    }

    fn parse(text: &str) -> Option<Self> {
        // The name, field 2, may contain any characters; field 3 follows its last bracket.
        let fields: Vec<_> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            resident_pages: field(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "4711 (a ) b) S 1 4711 4711 0 -1 4194560 1 2 3 4 70 30 0 0 20 0 5 0 100 200 300 18446744073709551615";
        assert_eq!(
            Stat::parse(text),
            Some(Stat {
                cpu_ticks: 100,
                threads: 5,
                resident_pages: 300
            })
        );
        assert_eq!(Stat::parse("4711 (x) S 1"), None);
    }

    #[test]
    fn this_process_uses_something_and_no_process_nothing() {
        let mut processes = Processes::default();
        let first = processes.usage(std::process::id()).unwrap();
        assert!(first.resident_bytes > 0 && first.threads > 0 && first.cpu_percent.is_none());
        assert!(
            processes
                .usage(std::process::id())
                .unwrap()
                .cpu_percent
                .is_some()
        );
        assert_eq!(processes.usage(u32::MAX), None);
    }
}
