//! Files that claim to be recordings. Any content is read or refused, with limited memory.
//!
//! Seeds: any `.mcap` file, such as those of `nervure record` with and without `--compress`,
//! without its first 8 bytes.

use std::io::Write;

use nervure_message::Encode;
use nervure_recorder::{Recording, SampleChannel};

/// Largest unpacked chunk, so that memory use stays far below libFuzzer's limit of 2 GB.
const MAX_CHUNK_BYTES: usize = 16 << 20;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("memory for a file");
    // The magic bytes are always valid, since nearly any change of them would end the run early.
    file.write_all(b"\x89MCAP0\r\n").expect("room for the file");
    file.write_all(bytes).expect("room for the file");
    let Ok(recording) = Recording::open_within(file.path(), MAX_CHUNK_BYTES) else {
        return;
    };
    let _ = recording.overview();
    let _ = recording.checked_overview();
    for message in recording.messages().flatten() {
        let Ok(channel) = SampleChannel::new(&message.channel) else {
            continue;
        };
        let Ok(sample) = channel.sample(&message) else {
            continue;
        };
        let mut payload = vec![0; sample.payload_bytes()];
        sample.write(&mut payload);
        assert_eq!(payload, sample.payload());
    }
}
