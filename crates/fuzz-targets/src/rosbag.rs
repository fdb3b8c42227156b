//! A folder with a ROS 2 bag, as a database or compressed. Any content is read or refused, with
//! limited memory.
//!
//! Seeds: a digit that selects the kind of file (see [`run`]), then the file without its constant
//! first bytes.

use nervure_recorder::{Recording, SampleChannel};

/// Largest unpacked message, in bytes.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    let folder = tempfile::tempdir_in("/dev/shm").expect("memory for a folder");
    let (name, begin): (_, &[u8]) = match kind % 3 {
        0 => ("bag_0.db3", b"SQLite format 3\0"),
        1 => ("bag_0.db3.zstd", &[0x28, 0xb5, 0x2f, 0xfd]),
        _ => ("metadata.yaml", b""),
    };
    std::fs::write(folder.path().join(name), [begin, bytes].concat()).expect("room for the file");
    let path = if name == "metadata.yaml" {
        // A file that the metadata may name, or that is read without it.
        std::fs::write(folder.path().join("bag_0.mcap"), b"\x89MCAP0\r\n")
            .expect("room for the file");
        folder.path().to_owned()
    } else {
        folder.path().join(name)
    };
    let Ok(recording) = Recording::open_within(&path, MAX_MESSAGE_BYTES) else {
        return;
    };
    let _ = recording.overview();
    let _ = recording.checked_overview();
    for message in recording.messages().flatten() {
        if let Ok(channel) = SampleChannel::new(&message.channel) {
            let _ = channel.sample(&message);
        }
    }
}
