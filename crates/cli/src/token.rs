//! What shows that a process may be a node.

use std::{fs::File, io::Read};

use crate::failure::Failure;

/// 128 bits that nobody can guess, in hexadecimal.
pub fn make() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(|error| {
            Failure::internal("cannot make a token from /dev/urandom").because(error)
        })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
