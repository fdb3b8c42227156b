//! `nervure top` on a terminal.

use std::{
    fs::File,
    io::{Read, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fd::OwnedFd,
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};
use serde_json::json;

use crate::dataflow::{Dataflow, Process, Run, WAIT_LIMIT};

/// A program on its own terminal.
struct Terminal {
    child: Child,
    master: File,
    slave: OwnedFd,
    before: Termios,
    output: Receiver<Vec<u8>>,
    written: String,
}

impl Terminal {
    fn start(mut command: Command, columns: u16, lines: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags =
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        let slave = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap();
        tcsetwinsize(
            &slave,
            Winsize {
                ws_row: lines,
                ws_col: columns,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )
        .unwrap();
        let before = tcgetattr(&slave).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        command
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .env("TERM", "xterm-256color");
        let child = command.spawn().unwrap();
        let master = File::from(master);
        let mut reader = master.try_clone().unwrap();
        let (sender, output) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                let _ = sender.send(buffer[..count].to_vec());
            }
        });
        Self {
            child,
            master,
            slave,
            before,
            output,
            written: String::new(),
        }
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a complete screen that satisfies `holds`; returns its lines.
    fn screen(&mut self, what: &str, holds: impl Fn(&[&str]) -> bool) -> Vec<String> {
        const BEGIN: &str = "\x1b[?2026h\x1b[H";
        const END: &str = "\x1b[?2026l";
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            while let Some((before, rest)) = self.written.split_once(END) {
                let screen = before
                    .split_once(BEGIN)
                    .expect("a screen begins")
                    .1
                    .replace("\x1b[K", "")
                    .replace("\x1b[J", "");
                self.written = rest.to_owned();
                let lines: Vec<&str> = screen.split("\r\n").collect();
                if holds(&lines) {
                    return lines.into_iter().map(str::to_owned).collect();
                }
            }
            self.receive(what, deadline);
        }
    }

    fn receive(&mut self, what: &str, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        let bytes = self
            .output
            .recv_timeout(left)
            .unwrap_or_else(|_| panic!("no {what}: {:?}", self.written));
        // Reads may split characters, but only ASCII is compared.
        self.written.push_str(std::str::from_utf8(&bytes).unwrap());
    }

    /// Waits for the end, and checks that the terminal is restored.
    fn assert_ends(&mut self, said: &str) {
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let deadline = Instant::now() + WAIT_LIMIT;
        let restored = "\x1b[?7h\x1b[?25h\x1b[?1049l";
        while !self.written.contains(&format!("{restored}{said}")) {
            self.receive("end", deadline);
        }
        let after = tcgetattr(&self.slave).unwrap();
        assert_eq!(format!("{after:?}"), format!("{:?}", self.before));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A source and two sinks, one of which is slower than the source.
fn lossy() -> Run {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 1", json!({"outputs": ["out"]}))
        .node(
            "deaf",
            "deaf",
            json!({"inputs": {"in": {"source": "source/out", "queue_size": 2}}}),
        )
        .node(
            "sink",
            "sink",
            json!({"inputs": {"in": {"source": "source/out", "queue_size": 1000}}}),
        )
        .run(&["--grace", "200ms"]);
    run.line("sink", "in 20");
    run
}

fn top(run: &Run, lines: u16) -> Terminal {
    let mut command = run.command(&["top", "--interval", "50ms", "-d", run.name()]);
    command.env_remove("NO_COLOR");
    Terminal::start(command, 100, lines)
}

fn begins(lines: &[&str], begin: &str) -> bool {
    lines.iter().any(|line| line.starts_with(begin))
}

#[test]
fn keys_filter_sort_and_quit() {
    let run = lossy();
    let mut top = top(&run, 24);
    let screen = top.screen("screen", |lines| begins(lines, "sink "));
    assert_eq!(screen.len(), 24, "{screen:?}");
    assert!(
        screen[0].starts_with(&format!("{}: running for ", run.name())),
        "{screen:?}"
    );
    assert!(
        screen[23].starts_with("q quit   s sort nodes: auto"),
        "{screen:?}"
    );
    // A full queue and losses, in red.
    top.screen("colour", |lines| {
        lines.iter().any(|line| {
            line.starts_with("source/out -> deaf/in ")
                && line.contains("\x1b[31m2/2\x1b[0m")
                && line.ends_with("\x1b[0m")
        })
    });
    top.press("/sin");
    let screen = top.screen("filter", |lines| lines[23].starts_with("filter: sin_"));
    assert!(
        !screen
            .iter()
            .any(|line| line.starts_with("deaf ") || line.contains("deaf/in")),
        "{screen:?}"
    );
    top.press("\r");
    top.screen("filtered screen", |lines| {
        lines[23].contains("/ filter: sin ")
    });
    top.press("\x1b");
    top.screen("screen without a filter", |lines| begins(lines, "deaf "));
    top.press("s");
    let screen = top.screen("order", |lines| lines[23].contains("s sort nodes: node "));
    let nodes: Vec<_> = screen[3..6]
        .iter()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(nodes, ["deaf", "sink", "source"]);
    top.press("r\tss");
    let screen = top.screen("order of edges", |lines| {
        lines[23].contains("s sort edges: hz ")
    });
    let nodes: Vec<_> = screen[3..6]
        .iter()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(nodes, ["source", "sink", "deaf"]);
    top.press("q");
    top.assert_ends("");
}

#[test]
fn a_small_terminal_scrolls_and_control_c_quits() {
    let run = lossy();
    let mut top = top(&run, 12);
    let screen = top.screen("screen", |lines| begins(lines, "NODE"));
    assert_eq!(screen.len(), 12);
    assert!(
        screen.iter().any(|line| line == ".. and 1 node more"),
        "{screen:?}"
    );
    top.press("\x1b[B");
    top.screen("other end", |lines| lines.contains(&".. below 1 node more"));
    top.press("\x03");
    top.assert_ends("");
}

#[test]
fn the_terminal_is_restored_after_a_signal_and_the_end_of_the_dataflow() {
    let run = lossy();
    let mut ended = top(&run, 24);
    let mut killed = top(&run, 24);
    for top in [&mut ended, &mut killed] {
        top.screen("screen", |lines| begins(lines, "NODE"));
    }
    Process::new(killed.child.id().into()).signal(Signal::TERM);
    killed.assert_ends("");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
    ended.assert_ends("test-");
}

/// A terminal of tmux, which erases as xterm does.
struct Tmux {
    socket: String,
}

impl Tmux {
    fn command(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::new("tmux");
        command
            .args(["-L", &self.socket, "-f", "/dev/null"])
            .args(arguments);
        command.env_remove("TMUX").output().unwrap()
    }

    fn shown(&self) -> String {
        let captured = self.command(&["capture-pane", "-p"]).stdout;
        String::from_utf8_lossy(&captured).into_owned()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.command(&["kill-server"]);
    }
}

/// The last column of the table of edges ends at the edge of the terminal where the table is wider.
#[test]
fn no_character_is_cut_at_any_width() {
    if Command::new("tmux").arg("-V").output().is_err() {
        return eprintln!("skipped: tmux is not installed");
    }
    let run = lossy();
    for width in (60..=200).step_by(20) {
        let tmux = Tmux {
            socket: format!("{}-{width}", run.name()),
        };
        let top = format!("'{}' top -d {}", env!("CARGO_BIN_EXE_nervure"), run.name());
        let width_text = width.to_string();
        let new = ["new-session", "-d", "-x", &width_text, "-y", "24", &top];
        let started = tmux.command(&new);
        assert!(started.status.success(), "{started:?}");
        let deadline = Instant::now() + WAIT_LIMIT;
        let is_complete = |shown: &str| {
            let mut lines = shown.lines();
            lines.any(|line| line.starts_with("EDGE") && line.ends_with("LOST"))
                && shown.lines().any(|line| line.starts_with("NODE"))
        };
        loop {
            let shown = tmux.shown();
            if is_complete(&shown) {
                break;
            }
            assert!(Instant::now() < deadline, "{width} columns:\n{shown}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
