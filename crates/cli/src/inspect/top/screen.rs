//! The terminal of `top`: raw mode, alternate screen, no cursor.

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use nervure_inspect::{State, state::Wakeup};
use rustix::fd::{AsFd, BorrowedFd};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{failure::Failure, output};

/// Begins a synchronized update on terminals that support it, and moves to the first line.
const BEGIN: &str = "\x1b[?2026h\x1b[H";
/// Ends the update.
const END: &str = "\x1b[?2026l";

/// True if both stdin and stdout are terminals.
pub fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The terminal; restored on drop.
pub struct Screen {
    is_asked_to_end: Arc<AtomicBool>,
}

/// Why [`Screen::wait`] returned.
pub enum ScreenEvent {
    Keys(Vec<KeyEvent>),
    Deadline,
    /// The dataflow has ended.
    Ended,
    /// A signal requests the end, or the terminal is closed.
    Quit,
}

impl Screen {
    pub fn open() -> Result<Self, Failure> {
        let failed =
            |error: io::Error| Failure::internal("cannot set up the terminal").because(error);
        let is_asked_to_end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGHUP, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&is_asked_to_end)).map_err(failed)?;
        }
        crossterm::terminal::enable_raw_mode().map_err(failed)?;
        let screen = Self { is_asked_to_end };
        // Alternate screen, no cursor, no line wrap.
        output::write_styled("\x1b[?1049h\x1b[?25l\x1b[?7l")?;
        Ok(screen)
    }

    /// Shows lines, which may contain colours but no other escape sequences.
    pub fn show(&self, lines: &[String]) -> Result<(), Failure> {
        output::write_styled(&update(lines))
    }

    /// Processes reports of the keeper until another event.
    pub fn wait(&self, state: &mut State, deadline: Instant) -> Result<ScreenEvent, Failure> {
        let stdin = io::stdin();
        let wakeup = state.follow_until_readable(Some(stdin.as_fd()), deadline)?;
        if self.is_asked_to_end.load(Ordering::Relaxed) {
            return Ok(ScreenEvent::Quit);
        }
        Ok(match wakeup {
            Wakeup::Deadline => ScreenEvent::Deadline,
            Wakeup::KeeperEnded => ScreenEvent::Ended,
            Wakeup::OtherClosed => ScreenEvent::Quit,
            Wakeup::OtherReadable => ScreenEvent::Keys(keys()?),
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut stdout = io::stdout().lock();
        let _ = stdout
            .write_all(b"\x1b[?7h\x1b[?25h\x1b[?1049l")
            .and_then(|()| stdout.flush());
        let _ = crossterm::terminal::disable_raw_mode();
    }
}

/// Draws these lines over the previous ones.
///
/// Each line is erased before it is written, the last one with the rest of the screen: behind a
/// line of full width the cursor is still on its last character, which an erasure would take.
fn update(lines: &[String]) -> String {
    let mut text = BEGIN.to_owned();
    for (number, line) in lines.iter().enumerate() {
        // In raw mode a newline does not return to the first column.
        text += if number == 0 { "" } else { "\r\n" };
        text += if number + 1 == lines.len() {
            "\x1b[J"
        } else {
            "\x1b[K"
        };
        text += line;
    }
    text + END
}

/// The pressed keys; none after a change of the terminal's size.
fn keys() -> Result<Vec<KeyEvent>, Failure> {
    let failed = |error: io::Error| Failure::internal("cannot read the keyboard").because(error);
    let mut keys = Vec::new();
    while event::poll(Duration::ZERO).map_err(failed)? {
        if let Event::Key(key) = event::read().map_err(failed)?
            && key.kind != KeyEventKind::Release
        {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// Columns and lines of the terminal.
pub fn size() -> (usize, usize) {
    let size = |fd: BorrowedFd<'_>| rustix::termios::tcgetwinsize(fd);
    match size(io::stdout().as_fd()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal that places the cursor as xterm does: behind a full line it is still on the last
    /// character, and an erasure begins with the character below the cursor.
    struct Terminal {
        lines: Vec<Vec<char>>,
        row: usize,
        column: usize,
    }

    impl Terminal {
        fn new(width: usize, height: usize) -> Self {
            Self {
                lines: vec![vec!['#'; width]; height],
                row: height - 1,
                column: width - 1,
            }
        }

        fn write(&mut self, text: &str) {
            let mut parts = text.split("\x1b[");
            self.print(parts.next().unwrap());
            for part in parts {
                let end = part.find(|it: char| it.is_ascii_alphabetic()).unwrap();
                let (sequence, rest) = part.split_at(end + 1);
                let cursor = self.column;
                match sequence {
                    "H" => (self.row, self.column) = (0, 0),
                    "K" => self.lines[self.row][cursor..].fill(' '),
                    "J" => {
                        self.lines[self.row][cursor..].fill(' ');
                        self.lines[self.row + 1..]
                            .iter_mut()
                            .for_each(|line| line.fill(' '));
                    }
                    "?2026h" | "?2026l" | "31m" | "0m" => {}
                    other => panic!("unknown: {other}"),
                }
                self.print(rest);
            }
        }

        fn print(&mut self, text: &str) {
            let (width, height) = (self.lines[0].len(), self.lines.len());
            for character in text.chars() {
                match character {
                    '\r' => self.column = 0,
                    '\n' => self.row = (self.row + 1).min(height - 1),
                    other => {
                        self.lines[self.row][self.column] = other;
                        self.column = (self.column + 1).min(width - 1);
                    }
                }
            }
        }
    }

    #[test]
    fn lines_are_complete_at_each_width_and_nothing_of_before_is_left() {
        const HEIGHT: usize = 5;
        for width in 40..=200 {
            let full = |last: char| format!("{}{last}", "x".repeat(width - 1));
            let coloured = format!("{}\x1b[31m9\x1b[0m", "y".repeat(width - 1));
            let lines = [
                full('1'),
                String::new(),
                coloured,
                "short".to_owned(),
                full('5'),
            ];
            for shown in 1..=HEIGHT {
                let mut terminal = Terminal::new(width, HEIGHT);
                terminal.write(&update(&lines[..shown]));
                for (number, line) in terminal.lines.iter().enumerate() {
                    let expected = lines[..shown].get(number).map_or("", String::as_str);
                    let expected = expected.replace("\x1b[31m", "").replace("\x1b[0m", "");
                    let seen: String = line.iter().collect();
                    assert_eq!(
                        seen.trim_end(),
                        expected,
                        "line {number} of {width} columns"
                    );
                }
            }
        }
    }
}
