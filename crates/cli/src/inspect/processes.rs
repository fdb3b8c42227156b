//! What /proc and control groups say of the processes of nodes.

use std::{collections::HashMap, fs, path::PathBuf, time::Instant};

use nervure_keeper::cgroups;

/// What a node uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// 100 is one CPU; `None` at the first look.
    pub cpu_percent: Option<f64>,
    /// Bytes of memory that are its, shared ones included.
    pub resident_bytes: u64,
    /// Its threads.
    pub threads: u64,
}

/// Nodes that are looked at again and again, by their processes.
#[derive(Debug, Default)]
pub struct Processes {
    looks: HashMap<u32, Look>,
}

/// What was seen of a node.
#[derive(Debug)]
struct Look {
    at: Instant,
    cpu_micros: u64,
    /// The node's control group, where it has one.
    group: Option<PathBuf>,
}

impl Processes {
    /// What a node uses whose process that is; `None` when it has ended. With a control group all its processes count, else
    /// that one alone.
    pub fn usage(&mut self, pid: u32) -> Option<Usage> {
        let Some(stat) = Stat::read(pid) else {
            self.looks.remove(&pid);
            return None;
        };
        let earlier = self.looks.remove(&pid);
        let group = match &earlier {
            Some(look) => look.group.clone(),
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
        // Of a group, those that have ended count too.
        let cpu_micros = group
            .as_deref()
            .and_then(cgroups::cpu_micros)
            .unwrap_or_else(|| stat.cpu_micros());
        let now = Instant::now();
        let cpu_percent = earlier.map(|then| {
            let seconds = now.duration_since(then.at).as_secs_f64().max(1e-9);
            100.0 * cpu_micros.saturating_sub(then.cpu_micros) as f64 / 1e6 / seconds
        });
        self.looks.insert(
            pid,
            Look {
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

/// What is used of `/proc/<pid>/stat` (proc_pid_stat(5)).
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
        // The name may hold anything; what follows it is field 3.
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
