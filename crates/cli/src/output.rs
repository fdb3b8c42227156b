//! Writing data to stdout.

use std::io::{self, Write};

use crate::failure::Failure;

/// Writes data to stdout. A reader that has seen enough (`| head`) is no failure.
pub fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::internal("stdout cannot be written").because(error))
        }
        _ => Ok(()),
    }
}

/// As [`write`], for those who go on for ever: ends the program when nobody reads any more.
pub fn write_or_end(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::internal("stdout cannot be written").because(error)),
        Ok(()) => Ok(()),
    }
}
