//! Runs every fuzz target for a few seconds, on any toolchain, with its seeds and mutations of
//! them. libFuzzer finds more, because it measures coverage: `make fuzz`.

use std::{fs, path::Path};

use nervure_fuzz_targets::{
    bag, control, crossing, dataflow, definition, edge, encrypted, fleet, link, recording, rosbag,
    sample,
};
use nervure_linkemu::network::{Draw, for_each_seed};

/// Longer inputs are truncated.
const BYTES_MAX: usize = 16 << 10;

/// Runs a target with all its seeds and `count` mutations. A failure reports its number, for
/// `NERVURE_SEED`.
fn short_run(target: fn(&[u8]), folders: &[&str], count: u64) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seeds = Vec::new();
    for folder in folders {
        let folder = root.join(folder);
        let entries =
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut files: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
        files.retain(|file| file.is_file());
        files.sort();
        seeds.extend(
            files
                .iter()
                .map(|file| fs::read(file).expect("a seed can be read")),
        );
    }
    assert!(!seeds.is_empty(), "{folders:?} hold no seeds");
    for_each_seed(0..seeds.len() as u64 + count, |number| {
        match seeds.get(number as usize) {
            Some(seed) => target(seed),
            None => target(&changed(&seeds, &mut Draw::new(number))),
        }
    });
}

/// A seed with some mutations.
fn changed(seeds: &[Vec<u8>], draw: &mut Draw) -> Vec<u8> {
    let mut below = |end: usize| draw.below(end as u64) as usize;
    let mut bytes = seeds[below(seeds.len())].clone();
    for _ in 0..=below(8) {
        let at = below(bytes.len() + 1);
        let end = (at + 1 + below(16)).min(bytes.len());
        match below(7) {
            // Change a bit, a byte or a word.
            0 if at < end => bytes[at] ^= 1 << below(8),
            1 if at < end => bytes[at] = below(256) as u8,
            2 if end - at >= 4 => {
                let word = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, u32::MAX][below(7)];
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            // Delete or insert bytes.
            3 => drop(bytes.drain(at..end)),
            4 => drop(
                bytes.splice(
                    at..at,
                    (0..=below(16))
                        .map(|_| below(256) as u8)
                        .collect::<Vec<_>>(),
                ),
            ),
            5 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            // Continue with the end of another seed.
            _ => {
                let other = &seeds[below(seeds.len())];
                let from = below(other.len() + 1);
                bytes.splice(at.., other[from..].iter().copied());
            }
        }
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

#[test]
fn messages_of_bags() {
    short_run(bag::run, &["fuzz/seeds/bag"], 2000);
}

#[test]
fn control_messages() {
    short_run(control::run, &["fuzz/seeds/control"], 2000);
}

#[test]
fn messages_and_bundles_of_other_machines() {
    short_run(crossing::run, &["fuzz/seeds/crossing"], 1000);
}

#[test]
fn dataflow_files() {
    short_run(
        dataflow::run,
        &["crates/dataflow/tests/good", "crates/dataflow/tests/bad"],
        500,
    );
}

#[test]
fn shared_memory() {
    short_run(edge::run, &["fuzz/seeds/edge"], 300);
}

#[test]
fn calls_and_reports_of_machines_of_a_fleet() {
    short_run(fleet::run, &["fuzz/seeds/fleet"], 5000);
}

#[test]
fn link_packets() {
    short_run(link::run, &["fuzz/seeds/link"], 1000);
}

#[test]
fn recordings() {
    short_run(recording::run, &["fuzz/seeds/recording"], 1000);
}

#[test]
fn bags_of_ros() {
    short_run(rosbag::run, &["fuzz/seeds/rosbag"], 500);
}

#[test]
fn definitions() {
    short_run(definition::run, &["fuzz/seeds/definition"], 2000);
}

#[test]
fn samples() {
    short_run(sample::run, &["fuzz/seeds/sample"], 2000);
}

#[test]
fn encrypted_packets() {
    short_run(encrypted::run, &["fuzz/seeds/encrypted"], 200);
}
