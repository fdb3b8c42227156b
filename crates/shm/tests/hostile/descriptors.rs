//! Pages and regions that are not what the message with them claims.

use crate::rig::{RawEdge, memfd};
use nervure_shm::{ControlPage, CountersPage, EdgeRegion, OwnWakePage, WakePage, page_bytes};
use rustix::fd::OwnedFd;
use std::io::ErrorKind;

type Map = fn(&OwnedFd) -> std::io::Result<()>;

/// Maps for each kind of page that begins with constants. A wake page does not: every peer could
/// overwrite them.
const MAPS: [(&str, Map); 3] = [
    ("edge region", |fd| EdgeRegion::map(fd).map(drop)),
    ("counters page", |fd| CountersPage::map(fd, true).map(drop)),
    ("control page", |fd| ControlPage::map(fd).map(drop)),
];

fn assert_refused(fd: &OwnedFd) {
    for (name, map) in MAPS {
        let error = map(fd).expect_err(name);
        assert!(
            matches!(error.kind(), ErrorKind::InvalidData),
            "{name}: {error}"
        );
    }
}

fn assert_no_wake_page(fd: &OwnedFd) {
    let error = WakePage::map(fd).expect_err("a peer's");
    assert!(matches!(error.kind(), ErrorKind::InvalidData), "{error}");
    let counters = CountersPage::create(0, 1).expect("memory");
    let counters = CountersPage::map(&counters, true).expect("counters").into();
    let error = OwnWakePage::map(fd, 1, counters).expect_err("its own");
    assert!(matches!(error.kind(), ErrorKind::InvalidData), "{error}");
}

fn sealed(bytes: usize, content: &[u64]) -> OwnedFd {
    use rustix::fs::SealFlags;
    let fd = memfd(bytes);
    let content: Vec<u8> = content.iter().flat_map(|word| word.to_ne_bytes()).collect();
    rustix::io::pwrite(&fd, &content[..content.len().min(bytes)], 0).expect("a memfd");
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).expect("a memfd");
    fd
}

#[test]
fn a_descriptor_that_is_no_page_is_refused() {
    assert_refused(&memfd(4096));
    assert_no_wake_page(&memfd(4096));
    for bytes in [0, 1, 63, 64, 4096, 1 << 20] {
        assert_refused(&sealed(bytes, &[0; 4]));
    }
    for bytes in [0, 1, 63, 64, page_bytes() - 1] {
        assert_no_wake_page(&sealed(bytes, &[0; 4]));
    }
    for fd in [
        nervure_shm::eventfd().expect("a descriptor"),
        std::fs::File::open("/dev/zero").expect("a device").into(),
    ] {
        assert_refused(&fd);
        assert_no_wake_page(&fd);
    }
}

#[test]
fn a_page_maps_only_as_its_own_kind() {
    let edge = EdgeRegion::create(4, 4).expect("memory");
    let counters = CountersPage::create(2, 2).expect("memory");
    let control = ControlPage::create().expect("memory").1;
    for (index, fd) in [&edge, &counters, &control].into_iter().enumerate() {
        for (other, (name, map)) in MAPS.into_iter().enumerate() {
            assert_eq!(map(fd).is_ok(), index == other, "page {index} as {name}");
        }
    }
}

/// The peers can write the first line of a region, like the rest.
#[test]
fn sizes_that_contradict_the_length_are_refused() {
    let constants = |page: &RawEdge| [0, 8].map(|offset| page.read_word(offset));
    let [magic, version] = constants(&RawEdge::new());
    let page = page_bytes();
    for (blocks, capacity) in [
        (0, 8),
        (8, 0),
        (8, 7),
        (u64::MAX, 8),
        (8, u64::MAX),
        (1 << 21, 1 << 20),
        (u64::from(u32::MAX), 8),
        (1 << 32 | 8, 8),
        (8, 1 << 40),
        (1 << 60, 1 << 62),
        (8, 16),
    ] {
        let fd = sealed(page, &[magic, version, blocks, capacity]);
        assert_eq!(
            EdgeRegion::map(&fd).expect_err("refused").kind(),
            ErrorKind::InvalidData,
            "{blocks} {capacity}"
        );
    }
    let counters = CountersPage::create(1, 1).expect("memory");
    let [magic, version] = constants(&RawEdge(counters));
    for (outputs, inputs) in [
        (u64::MAX, 1),
        (1, u64::MAX),
        (1 << 16, 1 << 16),
        (1 << 17, 0),
        (100, 100),
    ] {
        let fd = sealed(page, &[magic, version, outputs, inputs]);
        assert!(CountersPage::map(&fd, true).is_err(), "{outputs} {inputs}");
    }
}

#[test]
fn another_version_is_reported_as_such() {
    for create in [
        || EdgeRegion::create(4, 4).expect("memory"),
        || CountersPage::create(2, 2).expect("memory"),
    ] {
        let edge = RawEdge(create());
        let ours = edge.read_word(8);
        edge.write_word(8, ours + 1);
        let errors: Vec<String> = MAPS
            .iter()
            .map(|(_, map)| map(&edge.0).expect_err("refused").to_string())
            .collect();
        assert!(
            errors.iter().any(|error| {
                error.contains(&format!("version {}", ours + 1))
                    && error.contains(&format!("version {ours}:"))
            }),
            "{errors:?}"
        );
    }
}

/// Sizes are read once: overwriting them later changes nothing.
#[test]
fn sizes_rewritten_after_the_mapping_change_nothing() {
    let edge = RawEdge::new();
    let region = EdgeRegion::map(&edge.0).expect("a region");
    edge.write(0, &[0xff; 64]);
    let producer = crate::rig::HonestProducer::new();
    let (_, bell) = WakePage::create(1).expect("memory");
    let (a, _b) = nervure_shm::Seqpacket::pair().expect("a socket");
    let attached = producer.output.attach(nervure_shm::OutputEdge {
        id: 0,
        consumer: String::new(),
        input: 0,
        queue: nervure_protocol::wiring::Queue {
            policy: nervure_protocol::wiring::Policy::DropOldest,
            depth: crate::rig::DEPTH,
            max_held: 4,
        },
        counters_row: 0,
        region,
        bell: std::sync::Arc::new(WakePage::map(&bell).expect("a wake page")),
        eventfd: std::sync::Arc::new(nervure_shm::eventfd().expect("a descriptor")),
        pair: std::sync::Arc::new(nervure_shm::ProducerPair::new(a, 0)),
    });
    attached.expect("it fits");
    for _ in 0..50 {
        crate::rig::send(&producer.output, &[1; 1000]);
    }
}

/// An edge that does not fit an output is refused when it is attached, not when it is used.
#[test]
fn an_edge_that_does_not_fit_is_refused() {
    use nervure_protocol::wiring::{Policy, Queue};
    let producer = crate::rig::HonestProducer::new();
    let fits = Queue {
        policy: Policy::DropOldest,
        depth: 8,
        max_held: 4,
    };
    for (depth, blocks, inputs, input, queue) in [
        (8, crate::rig::BLOCKS - 1, 1, 0, fits),
        (4, crate::rig::BLOCKS, 1, 0, fits),
        (8, crate::rig::BLOCKS, 1, 4096, fits),
        (8, crate::rig::BLOCKS, 1, u32::MAX, fits),
        (8, crate::rig::BLOCKS, 1, 0, Queue { depth: 0, ..fits }),
        (
            8,
            crate::rig::BLOCKS,
            1,
            0,
            Queue {
                max_held: 0,
                ..fits
            },
        ),
    ] {
        let region = EdgeRegion::create(depth, blocks).expect("memory");
        let (_, bell) = WakePage::create(inputs).expect("memory");
        let (a, _b) = nervure_shm::Seqpacket::pair().expect("a socket");
        let attached = producer.output.attach(nervure_shm::OutputEdge {
            id: 0,
            consumer: String::new(),
            input,
            queue,
            counters_row: 0,
            region: EdgeRegion::map(&region).expect("a region"),
            bell: std::sync::Arc::new(WakePage::map(&bell).expect("a wake page")),
            eventfd: std::sync::Arc::new(nervure_shm::eventfd().expect("a descriptor")),
            pair: std::sync::Arc::new(nervure_shm::ProducerPair::new(a, 0)),
        });
        assert_eq!(
            attached.expect_err("refused").kind(),
            ErrorKind::InvalidInput
        );
    }
}
