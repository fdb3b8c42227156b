//! What /proc says of the processes of nodes.

use std::{collections::HashMap, fs, time::Instant};

/// What a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// 100 is one CPU; `None` at the first look.
    pub cpu_percent: Option<f64>,
    /// Bytes of memory that are its, shared ones included.
    pub resident_bytes: u64,
    /// Its threads.
    pub threads: u64,
}

/// Processes that are looked at again and again.
#[derive(Debug, Default)]
pub struct Processes {
    /// When each was looked at last, and the CPU time that it had used.
    looks: HashMap<u32, (Instant, u64)>,
}

impl Processes {
    /// What a process uses; `None` when it has ended. A child of a node's process is not counted.
    pub fn usage(&mut self, pid: u32) -> Option<Usage> {
        let Some(stat) =
            fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(|text| Stat::parse(&text))
        else {
            self.looks.remove(&pid);
            return None;
        };
        let now = Instant::now();
        let earlier = self.looks.insert(pid, (now, stat.cpu_ticks));
        let cpu_percent = earlier.map(|(then, ticks)| {
            let seconds = now.duration_since(then).as_secs_f64().max(1e-9);
            let used = stat.cpu_ticks.saturating_sub(ticks) as f64;
            100.0 * used / rustix::param::clock_ticks_per_second() as f64 / seconds
        });
        let resident_bytes = stat.resident_pages * rustix::param::page_size() as u64;
        Some(Usage { cpu_percent, resident_bytes, threads: stat.threads })
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
    fn parse(text: &str) -> Option<Self> {
        // The name may hold anything; what follows it is field 3.
        let fields: Vec<_> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self { cpu_ticks: field(14)? + field(15)?, threads: field(20)?, resident_pages: field(24)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "4711 (a ) b) S 1 4711 4711 0 -1 4194560 1 2 3 4 70 30 0 0 20 0 5 0 100 200 300 18446744073709551615";
        assert_eq!(Stat::parse(text), Some(Stat { cpu_ticks: 100, threads: 5, resident_pages: 300 }));
        assert_eq!(Stat::parse("4711 (x) S 1"), None);
    }

    #[test]
    fn this_process_uses_something_and_no_process_nothing() {
        let mut processes = Processes::default();
        let first = processes.usage(std::process::id()).unwrap();
        assert!(first.resident_bytes > 0 && first.threads > 0 && first.cpu_percent.is_none());
        assert!(processes.usage(std::process::id()).unwrap().cpu_percent.is_some());
        assert_eq!(processes.usage(u32::MAX), None);
    }
}
