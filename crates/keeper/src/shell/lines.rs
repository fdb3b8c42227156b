//! Splits a stream of bytes into lines, and guesses the level of a line.

use std::time::Duration;

use nervure_protocol::report::Level;

/// Longer lines are split: a log record has to fit into a control message, even when every byte is
/// escaped.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// Shortest time between two lines of a program that overwrites its line by carriage returns, as
/// progress bars do. The states in between are left out.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// The beginning of a stream's last line.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
    /// `partial` is followed by a carriage return: the next character overwrites it.
    has_returned: bool,
    /// When a state that was overwritten was a line.
    last_state: Option<Duration>,
}

impl Lines {
    /// Takes the next bytes of the stream.
    pub fn push(&mut self, mut bytes: &[u8], now: Duration, mut line: impl FnMut(String)) {
        while let Some(&first) = bytes.first() {
            match first {
                b'\n' => line(self.take()),
                b'\r' => self.has_returned = true,
                _ => {
                    if self.has_returned {
                        self.overwrite(now).into_iter().for_each(&mut line);
                    }
                    let room = MAX_LINE_BYTES - self.partial.len();
                    let window = &bytes[..bytes.len().min(room)];
                    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
                    let end = window.iter().position(is_end).unwrap_or(window.len());
                    self.partial.extend_from_slice(&window[..end]);
                    bytes = &bytes[end..];
                    if self.partial.len() == MAX_LINE_BYTES {
                        line(self.take());
                    }
                    continue;
                }
            }
            bytes = &bytes[1..];
        }
    }

    /// The stream has ended.
    pub fn finish(&mut self, mut line: impl FnMut(String)) {
        if !self.partial.is_empty() {
            line(self.take());
        }
    }

    /// Begins the line again. Returns the overwritten text if a line is due.
    fn overwrite(&mut self, now: Duration) -> Option<String> {
        let next = self.last_state.map(|last| last + PROGRESS_PERIOD);
        if self.partial.is_empty() || next.is_some_and(|next| now < next) {
            self.partial.clear();
            self.has_returned = false;
            return None;
        }
        self.last_state = Some(now);
        Some(self.take())
    }

    fn take(&mut self) -> String {
        let line = String::from_utf8_lossy(&self.partial).into_owned();
        self.partial.clear();
        self.has_returned = false;
        line
    }
}

/// The level that a line names, in the formats of Python's logging, `env_logger`, `tracing` and the
/// like; else Info.
pub fn guess_level(line: &str) -> Level {
    const MAX_WORDS: usize = 10;
    if line.starts_with("Traceback (most recent call last)")
        || line.starts_with("thread '") && line.contains("panicked at")
    {
        return Level::Error;
    }
    let is_separator =
        |c: char| c.is_whitespace() || matches!(c, ':' | '[' | ']' | '|' | '(' | ')' | ',');
    let plain = without_escapes(line.get(..160).unwrap_or(line));
    let mut words = plain
        .split(is_separator)
        .filter(|word| !word.is_empty())
        .take(MAX_WORDS);
    words.find_map(level_of_word).unwrap_or(Level::Info)
}

/// Only words in capitals, so that "no error" is not taken for an error.
fn level_of_word(word: &str) -> Option<Level> {
    Some(match word {
        "TRACE" => Level::Trace,
        "DEBUG" => Level::Debug,
        "INFO" => Level::Info,
        "WARN" | "WARNING" => Level::Warn,
        "ERROR" | "CRITICAL" | "FATAL" => Level::Error,
        _ => return None,
    })
}

fn without_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == '\x1b' {
            // CSI: parameters up to a letter.
            let _ = characters
                .by_ref()
                .skip_while(|c| *c == '[')
                .find(char::is_ascii_alphabetic);
        } else {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        for chunk in chunks {
            lines.push(chunk, Duration::ZERO, |line| all.push(line));
        }
        lines.finish(|line| all.push(line));
        all
    }

    #[test]
    fn lines_do_not_depend_on_how_the_stream_is_chunked() {
        let text = b"one\r\n\ntwo \xff\n\r5 %\r10 %\r15 %\r\nlast without an end";
        let whole = cut(&[text]);
        let expected = [
            "one",
            "",
            "two \u{fffd}",
            "5 %",
            "15 %",
            "last without an end",
        ];
        assert_eq!(whole, expected);
        for at in 0..text.len() {
            assert_eq!(cut(&[&text[..at], &text[at..]]), whole);
        }
    }

    #[test]
    fn of_a_line_that_is_overwritten_one_state_a_second_and_the_last_are_lines() {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        for percent in 0..=100_u32 {
            let now = Duration::from_millis(u64::from(percent) * 30);
            let text = format!("\r{percent} %");
            lines.push(text.as_bytes(), now, |line| all.push(line));
        }
        lines.push(b"\nready\n", Duration::from_secs(4), |line| all.push(line));
        assert_eq!(all, ["0 %", "34 %", "68 %", "100 %", "ready"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_split_without_loss() {
        let text = vec![b'x'; 3 * MAX_LINE_BYTES + 7];
        let lines = cut(&[&text]);
        assert_eq!(lines.iter().map(String::len).sum::<usize>(), text.len());
        assert!(lines.iter().all(|line| line.len() <= MAX_LINE_BYTES));
    }

    #[test]
    fn levels_of_common_loggers_are_recognised() {
        for (line, level) in [
            ("WARNING:root:battery low", Level::Warn),
            (
                "2026-01-02 03:04:05,678 - camera - ERROR - lost",
                Level::Error,
            ),
            ("[2026-01-02T03:04:05Z DEBUG camera::usb] x", Level::Debug),
            (
                "\x1b[2m2026-01-02T03:04:05.6Z\x1b[0m \x1b[33m WARN\x1b[0m camera: x",
                Level::Warn,
            ),
            ("Traceback (most recent call last):", Level::Error),
            ("thread 'main' panicked at src/main.rs:1:2:", Level::Error),
            ("finished with no error", Level::Info),
            ("INFO: an ERROR counter was reset", Level::Info),
            ("", Level::Info),
        ] {
            assert_eq!(guess_level(line), level, "{line}");
        }
    }
}
