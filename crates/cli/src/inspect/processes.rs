//! The CPU time, memory and threads of nodes, from /proc and control groups.

use std::{collections::HashMap, fs, path::PathBuf, time::Instant};

use nervure_keeper::cgroups;

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
    /// The use of the node with this process; `None` if the process has ended. Counts all processes
    /// of the node's control group, or without one this process alone.
    pub fn usage(&mut self, pid: u32) -> Option<Usage> {
        let Some(stat) = Stat::read(pid) else {
            self.readings.remove(&pid);
            return None;
        };
        let earlier = self.readings.remove(&pid);
        let group = match &earlier {
            Some(reading) => reading.group.clone(),
            None => cgroups::of_node(pid),
        };
        let members = group.as_deref().map(cgroups::members).unwrap_or_default();
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
            .as_deref()
            .and_then(cgroups::cpu_micros)
            .unwrap_or_else(|| stat.cpu_micros());
        let now = Instant::now();
        let cpu_percent = earlier.map(|then| {
            let seconds = now.duration_since(then.at).as_secs_f64().max(1e-9);
            100.0 * cpu_micros.saturating_sub(then.cpu_micros) as f64 / 1e6 / seconds
        });
        self.readings.insert(
            pid,
            Reading {
                at: now,
                cpu_micros,
                group,
            },
        );
        Some(Usage {
            cpu_percent,
            ..total
        })
    }
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
