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
use rustix::fd::{AsFd, BorrowedFd};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{
    failure::Failure,
    inspect::state::{State, Wakeup},
    output,
};

/// Begins a synchronized update on terminals that support it, and moves to the first line.
const BEGIN: &str = "\x1b[?2026h\x1b[H";
/// Clears the rest of the screen, and ends the update.
const END: &str = "\x1b[J\x1b[?2026l";

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
        // In raw mode a newline does not return to the first column.
        let lines: Vec<_> = lines.iter().map(|line| format!("{line}\x1b[K")).collect();
        output::write_styled(&format!("{BEGIN}{}{END}", lines.join("\r\n")))
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
