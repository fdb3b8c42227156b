//! Writes data to stdout, and everything else to stderr.
//!
//! Names and texts come from recordings, nodes and other users. Functions without `styled` in their
//! name escape control characters, so that no text can control the terminal.

use std::{
    borrow::Cow,
    fmt,
    io::{self, Write},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{AsFd, BorrowedFd},
    io::Errno,
};

#[cfg(any(feature = "fleet", test))]
use rustix::fs::{FileType, Mode, fchmod, fstat};

use crate::failure::Failure;

/// Writes a line to stderr. Ignores errors, such as a full disk, where `eprintln!` would panic:
/// there is no other place to report them.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::write_note(format_args!($($text)*)) };
}

/// Writes a line to stderr, for [`note!`].
pub fn write_note(text: fmt::Arguments<'_>) {
    write_styled_note(&safe(&text.to_string()));
}

/// As [`note!`], for text with colours. Foreign text in it must be escaped already.
pub fn write_styled_note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Escapes characters that control a terminal, in the form `\u001b`: control characters other than
/// newlines and tabs, and those that reorder text. JSON uses the same escapes, so that the value of
/// a JSON text does not change.
pub fn safe(text: &str) -> Cow<'_, str> {
    escaped(text, |character| matches!(character, '\n' | '\t'))
}

/// As [`safe`], for a part of a line: escapes newlines and tabs too.
pub fn safe_part(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// True for control characters, and for characters that reorder text.
pub fn steers(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_escaped = |character: char| steers(character) && !is_kept(character);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// Removes escape sequences, and replaces other control characters by a dot: the text of a node
/// must not move the cursor.
pub fn plain_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\x1b' => skip_escape(&mut characters),
            '\t' => plain.push('\t'),
            other if steers(other) => plain.push('\u{b7}'),
            other => plain.push(other),
        }
    }
    plain
}

/// Skips the rest of an escape sequence: up to the final byte of a CSI, one character of any other.
fn skip_escape(characters: &mut std::str::Chars<'_>) {
    if characters.next() == Some('[') {
        let _ = characters.find(|c| ('\x40'..='\x7e').contains(c));
    }
}

/// Writes data to stdout. A reader that has closed the pipe (`| head`) is no failure.
pub fn write(text: &str) -> Result<(), Failure> {
    try_write(text).map_err(unwritable)
}

/// As [`write`], with the error of the system.
pub fn try_write(text: &str) -> io::Result<()> {
    let text = safe(text);
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// As [`write`], for a secret: takes the access of other users to the file away first, if stdout is a
/// file.
#[cfg(feature = "fleet")]
pub fn write_secret(text: &str) -> Result<(), Failure> {
    keep_private(io::stdout()).map_err(|error| {
        Failure::internal("stdout is a file that other users can read, and has a secret to hold")
            .because(error)
            .hint("write it to a terminal, or to a file of this user")
    })?;
    write(text)
}

/// Lets only the owner of a file read it. Terminals, pipes and devices stay as they are.
#[cfg(any(feature = "fleet", test))]
fn keep_private(file: impl AsFd) -> io::Result<()> {
    const OF_OTHERS: u32 = 0o077;
    let stat = fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if is_file && stat.st_mode & OF_OTHERS != 0 {
        fchmod(&file, Mode::from_raw_mode(stat.st_mode & !OF_OTHERS))?;
    }
    Ok(())
}

/// As [`write`], for endless output: exits with 0 when the reader has closed the pipe.
pub fn write_or_end(text: &str) -> Result<(), Failure> {
    write_styled_or_end(&safe(text))
}

/// As [`write_or_end`], for text with colours. Foreign text in it must be escaped already.
pub fn write_styled_or_end(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(unwritable(error)),
        Ok(()) => Ok(()),
    }
}

/// Writes text with colours to a terminal. Foreign text in it must be escaped already.
pub fn write_styled(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(unwritable)
}

/// The failure of a write to stdout, other than a closed pipe.
pub fn unwritable(error: io::Error) -> Failure {
    Failure::internal("cannot write to stdout").because(error)
}

/// A standard stream whose errors do not end the program. Unbuffered, so that an error belongs to
/// the text that is being written.
#[derive(Debug)]
pub struct Stream<F = BorrowedFd<'static>> {
    fd: F,
    /// The reader has closed its end.
    is_closed: bool,
    /// The last other error, such as a full disk, which may have room again later.
    error: Option<Errno>,
    unwritten_lines: u64,
    /// The last write failed in the middle of a line.
    ends_within_line: bool,
}

impl<F: AsFd> Stream<F> {
    /// A stream that writes to a descriptor.
    pub fn new(fd: F) -> Self {
        Self {
            fd,
            is_closed: false,
            error: None,
            unwritten_lines: 0,
            ends_within_line: false,
        }
    }

    /// Writes whole lines; counts those that cannot be written.
    pub fn write(&mut self, lines: &str) {
        if self.is_closed {
            return;
        }
        if self.ends_within_line && self.write_all(b"\n").is_ok() {
            self.ends_within_line = false;
        }
        if let Err((written, error)) = self.write_all(lines.as_bytes()) {
            self.is_closed = error == Errno::PIPE;
            if !self.is_closed {
                let unwritten = &lines.as_bytes()[written..];
                self.unwritten_lines +=
                    unwritten.iter().filter(|byte| **byte == b'\n').count() as u64;
                self.ends_within_line |= written > 0 && lines.as_bytes()[written - 1] != b'\n';
                self.error = Some(error);
            }
        }
    }

    /// Fails with the number of bytes that were written.
    fn write_all(&self, bytes: &[u8]) -> Result<(), (usize, Errno)> {
        let mut written = 0;
        while written < bytes.len() {
            match rustix::io::write(&self.fd, &bytes[written..]) {
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                // A terminal or pipe that another process has made non-blocking.
                Err(Errno::AGAIN) => {
                    let _ = poll(&mut [PollFd::new(&self.fd, PollFlags::OUT)], None);
                }
                Err(error) => return Err((written, error)),
            }
        }
        Ok(())
    }

    /// True when the reader has closed its end.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The last error other than a closed reader.
    pub fn error(&self) -> Option<Errno> {
        self.error
    }

    /// Lines that could not be written.
    pub fn unwritten_lines(&self) -> u64 {
        self.unwritten_lines
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::OpenOptions,
        io::{Read, pipe},
        thread,
    };

    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    #[test]
    fn other_users_lose_their_access_to_a_file_that_gets_a_secret() {
        let mode_after = |mode| {
            let file = tempfile::tempfile().unwrap();
            fchmod(&file, Mode::from_raw_mode(mode)).unwrap();
            keep_private(&file).unwrap();
            fstat(&file).unwrap().st_mode & 0o777
        };
        assert_eq!(mode_after(0o644), 0o600);
        assert_eq!(mode_after(0o400), 0o400);
        let pipe = pipe().unwrap().1;
        keep_private(&pipe).unwrap();
    }

    #[test]
    fn escapes_and_control_characters_do_not_pass() {
        assert_eq!(plain_text("\x1b[31mred\x1b[0m and\ttab"), "red and\ttab");
        assert_eq!(plain_text("a\x1b[2J\x1b]0b\rc\x07"), "a0b\u{b7}c\u{b7}");
        assert_eq!(plain_text("ends in \x1b["), "ends in ");
        assert_eq!(plain_text("a\u{9b}31mb \u{202e}c"), "a\u{b7}31mb \u{b7}c");
    }

    #[test]
    fn text_cannot_control_the_terminal() {
        let hostile = "a\x1b[2Jb\rc\u{9b}31md\x7f\u{202e}e\tf\n";
        assert_eq!(
            safe(hostile),
            "a\\u001b[2Jb\\u000dc\\u009b31md\\u007f\\u202ee\tf\n"
        );
        assert_eq!(safe_part("a\nb"), "a\\u000ab");
        assert_eq!(
            safe("caf\u{e9} \u{1f600} \u{5d0}"),
            "caf\u{e9} \u{1f600} \u{5d0}"
        );
    }

    #[test]
    fn escaping_does_not_change_json() {
        let value =
            serde_json::json!({"text\u{9b}": ["\x1b[0m", "\u{202e}", "a\nb\tc\x7f", "\\u0041"]});
        let text = format!("{value}\n");
        assert!(!safe(&text).contains(|character| steers(character) && character != '\n'));
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&safe(&text)).unwrap(),
            value
        );
    }

    #[test]
    fn a_full_disk_is_an_error_and_its_lines_are_counted() {
        let mut full = Stream::new(OpenOptions::new().write(true).open("/dev/full").unwrap());
        full.write("one\ntwo\n");
        full.write("three\n");
        assert_eq!(
            (full.error(), full.unwritten_lines(), full.is_closed()),
            (Some(Errno::NOSPC), 3, false)
        );
    }

    #[test]
    fn a_closed_reader_is_no_error() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let mut closed = Stream::new(writer);
        closed.write("one\n");
        assert_eq!(
            (closed.error(), closed.unwritten_lines(), closed.is_closed()),
            (None, 0, true)
        );
    }

    #[test]
    fn a_full_pipe_that_does_not_block_is_waited_for() {
        let (mut reader, writer) = pipe().unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        let text = "0123456789\n".repeat(20_000);
        let mut slow = Stream::new(writer);
        let read = thread::spawn(move || {
            let mut read = String::new();
            reader.read_to_string(&mut read).unwrap();
            read
        });
        slow.write(&text);
        assert_eq!((slow.error(), slow.unwritten_lines()), (None, 0));
        drop(slow);
        assert!(read.join().unwrap() == text);
    }
}
