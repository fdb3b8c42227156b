//! The terminal while `top` has it: raw, on its second screen, without a cursor.

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
    inspect::state::{Beside, State},
    output,
};

/// Shows what follows at once on terminals that can, and goes to the first line.
const BEGIN: &str = "\x1b[?2026h\x1b[H";
/// Clears what is below.
const END: &str = "\x1b[J\x1b[?2026l";

/// True when keys can be read and a screen be shown.
pub fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The terminal, which is as it was when this is dropped.
pub struct Screen {
    is_asked_to_end: Arc<AtomicBool>,
}

/// What there is to do.
pub enum Turn {
    Keys(Vec<KeyEvent>),
    Deadline,
    /// The keeper is gone.
    Ended,
    /// A signal asks for the end, or the terminal is gone.
    Quit,
}

impl Screen {
    pub fn open() -> Result<Self, Failure> {
        let failed =
            |error: io::Error| Failure::internal("the terminal cannot be prepared").because(error);
        let is_asked_to_end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGHUP, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&is_asked_to_end)).map_err(failed)?;
        }
        crossterm::terminal::enable_raw_mode().map_err(failed)?;
        let screen = Self { is_asked_to_end };
        // The second screen, no cursor, no line wraps.
        output::write_styled("\x1b[?1049h\x1b[?25l\x1b[?7l")?;
        Ok(screen)
    }

    /// Shows lines, which have colours at most.
    pub fn show(&self, lines: &[String]) -> Result<(), Failure> {
        // In raw mode a line break alone does not go back to the first column.
        let lines: Vec<_> = lines.iter().map(|line| format!("{line}\x1b[K")).collect();
        output::write_styled(&format!("{BEGIN}{}{END}", lines.join("\r\n")))
    }

    /// Takes in news of the dataflow until there is something to do.
    pub fn wait(&self, state: &mut State, deadline: Instant) -> Result<Turn, Failure> {
        let stdin = io::stdin();
        let beside = state.follow_beside(stdin.as_fd(), deadline)?;
        if self.is_asked_to_end.load(Ordering::Relaxed) {
            return Ok(Turn::Quit);
        }
        Ok(match beside {
            Beside::Deadline => Turn::Deadline,
            Beside::KeeperIsGone => Turn::Ended,
            Beside::OtherIsGone => Turn::Quit,
            Beside::Other => Turn::Keys(keys()?),
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

/// The keys that were pressed; none where the terminal has changed its size.
fn keys() -> Result<Vec<KeyEvent>, Failure> {
    let failed = |error: io::Error| Failure::internal("the keyboard cannot be read").because(error);
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
