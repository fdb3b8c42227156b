//! The output of nodes on stdout and stderr.

use nervure_protocol::report::Level;

use super::{event_loop::Shell, lines, slot::Stream};

/// Logs the output of a node, as far as it can be read in one turn.
pub fn read(shell: &mut Shell, node: usize, stream: Stream) {
    let now = shell.now();
    for line in shell.slots[node].read(stream, now) {
        log(shell, node, stream, line);
    }
}

/// Logs the rest of the output of a node that has ended.
pub fn drain(shell: &mut Shell, node: usize) {
    let now = shell.now();
    for stream in [Stream::Stdout, Stream::Stderr] {
        for line in shell.slots[node].drain(stream, now) {
            log(shell, node, stream, line);
        }
    }
    if let Some(python) = shell.slots[node].missing_module() {
        let text = format!(
            "it ran on {}: if the module is in another environment, activate that one and start again",
            python.display()
        );
        shell.log(Some(node), Level::Warn, "keeper", text);
    }
}

fn log(shell: &mut Shell, node: usize, stream: Stream, line: String) {
    shell.log(Some(node), lines::guess_level(&line), stream.name(), line);
}
