//! The role of each process.

use std::{collections::HashMap, fs};

/// A process and its role.
#[derive(Clone, Debug)]
pub struct Player {
    pub process: u32,
    pub role: String,
}

/// The roles of all known threads.
#[derive(Default)]
pub struct Roles {
    by_thread: HashMap<u32, Player>,
    /// The processes of each role, by the role without its number, in order.
    processes: HashMap<String, Vec<u32>>,
}

impl Roles {
    /// The process of a thread, with its role; `None` if the thread has ended.
    pub fn of(&mut self, thread: u32) -> Option<Player> {
        if let Some(player) = self.by_thread.get(&thread) {
            return Some(player.clone());
        }
        let process = process_of(thread)?;
        let player = Player {
            process,
            role: self.role_of(process)?,
        };
        self.by_thread.insert(thread, player.clone());
        Some(player)
    }

    /// Forgets a process that is about to execute another program.
    pub fn forget(&mut self, process: u32) {
        self.by_thread.retain(|_, player| player.process != process);
    }

    fn role_of(&mut self, process: u32) -> Option<String> {
        if let Some(role) = variable(process, "INJECT_ROLE") {
            return Some(self.numbered(&role, process));
        }
        let command = fs::read(format!("/proc/{process}/cmdline")).ok()?;
        let is_keeper = command.split(|byte| *byte == 0).nth(1) == Some(b"__keeper");
        let role = if is_keeper { "keeper" } else { "run" };
        // A fork has the command line of its parent, but is not the first process with it.
        Some(match self.place(role, process) {
            0 => role.to_owned(),
            _ => self.numbered("starting", process),
        })
    }

    fn numbered(&mut self, role: &str, process: u32) -> String {
        let place = self.place(role, process);
        format!("{role}.{place}")
    }

    fn place(&mut self, role: &str, process: u32) -> usize {
        let processes = self.processes.entry(role.to_owned()).or_default();
        processes
            .iter()
            .position(|known| *known == process)
            .unwrap_or_else(|| {
                processes.push(process);
                processes.len() - 1
            })
    }
}

fn process_of(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))?
        .trim()
        .parse()
        .ok()
}

fn variable(process: u32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{process}/environ")).ok()?;
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    })
}
