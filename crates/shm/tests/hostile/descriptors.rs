//! Pages and regions that contradict the message with them.

use crate::rig::{BLOCKS, DEPTH, HonestConsumer, HonestProducer, RawEdge, memfd, send};
use crate::words::harmful_word;
use fastrand::Rng;
use nervure_protocol::wiring::Policy;
use nervure_shm::{
    Arrival, ControlPage, CountersPage, EdgeRegion, OwnWakePage, WakePage, page_bytes,
};
use rustix::fd::OwnedFd;
use std::io::ErrorKind;

type Map = fn(&OwnedFd) -> std::io::Result<()>;

/// Maps for each kind of page that begins with constants. Edge regions and wake pages do not: a peer
/// could overwrite them.
const MAPS: [(&str, Map); 2] = [
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

fn assert_no_region(fd: &OwnedFd) {
    let error = EdgeRegion::map(fd, DEPTH, BLOCKS).expect_err("a region");
    assert!(matches!(error.kind(), ErrorKind::InvalidData), "{error}");
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
    assert_no_region(&memfd(4096));
    for bytes in [0, 1, 63, 64, 4096, 1 << 20] {
        assert_refused(&sealed(bytes, &[0; 4]));
    }
    for bytes in [0, 1, 63, 64, page_bytes() - 1, 1 << 20] {
        assert_no_region(&sealed(bytes, &[0; 4]));
    }
    for bytes in [0, 1, 63, 64, page_bytes() - 1] {
        assert_no_wake_page(&sealed(bytes, &[0; 4]));
    }
    for fd in [
        nervure_shm::eventfd().expect("a descriptor"),
        std::fs::File::open("/dev/zero").expect("a device").into(),
    ] {
        assert_refused(&fd);
        assert_no_region(&fd);
        assert_no_wake_page(&fd);
    }
}

#[test]
fn a_page_maps_only_as_its_own_kind() {
    let counters = CountersPage::create(2, 2).expect("memory");
    let control = ControlPage::create().expect("memory").1;
    for (index, fd) in [&counters, &control].into_iter().enumerate() {
        for (other, (name, map)) in MAPS.into_iter().enumerate() {
            assert_eq!(map(fd).is_ok(), index == other, "page {index} as {name}");
        }
    }
}

#[test]
fn sizes_that_contradict_the_length_are_refused() {
    let constants = |page: &RawEdge| [0, 8].map(|offset| page.read_word(offset));
    let page = page_bytes();
    for (depth, blocks, kind) in [
        (0, BLOCKS, ErrorKind::InvalidInput),
        (DEPTH, 0, ErrorKind::InvalidInput),
        (u32::MAX, BLOCKS, ErrorKind::InvalidInput),
        (DEPTH, u32::MAX, ErrorKind::InvalidInput),
        (DEPTH + 1, BLOCKS, ErrorKind::InvalidData),
        (DEPTH, 1 << 20, ErrorKind::InvalidData),
    ] {
        let error = EdgeRegion::map(&RawEdge::new().0, depth, blocks).expect_err("refused");
        assert_eq!(error.kind(), kind, "{depth} {blocks}: {error}");
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
    let edge = RawEdge(CountersPage::create(2, 2).expect("memory"));
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

/// Whatever either end has written before the other end attaches the edge, attaching succeeds: the
/// ring is checked when it is used, and the edge cut off then.
#[test]
fn a_region_that_was_overwritten_before_it_is_attached_costs_its_edge_alone() {
    for seed in 1..20 {
        let mut random = Rng::with_seed(seed);
        let producer = HonestProducer::new();
        let mut consumer = HonestConsumer::new();
        let edge = RawEdge::new();
        for offset in (0..edge.bytes()).step_by(8) {
            edge.write_word(offset, harmful_word(&mut random));
        }
        let (a, b) = nervure_shm::Seqpacket::pair().expect("a socket");
        consumer.attach(0, &edge.0, &producer.wake, b);
        producer.attach(0, Policy::DropOldest, &edge.0, &consumer.wake, a);
        let region = EdgeRegion::create(DEPTH, BLOCKS).expect("memory");
        let (a, b) = nervure_shm::Seqpacket::pair().expect("a socket");
        consumer.attach(1, &region, &producer.wake, b);
        producer.attach(1, Policy::DropOldest, &region, &consumer.wake, a);
        for number in 0..3 * DEPTH {
            send(&producer.output, &[number as u8; 1000]);
            let sample = std::iter::from_fn(|| consumer.next()).find_map(|arrival| match arrival {
                Arrival::Sample { input: 1, sample } => Some(sample),
                _ => None,
            });
            let sample = sample.unwrap_or_else(|| panic!("seed {seed}: {:?}", producer.cut()));
            assert!(sample.payload().iter().all(|&byte| byte == number as u8));
        }
        assert!(producer.cut().iter().all(|(edge, _)| *edge == 0));
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
            region: EdgeRegion::map(&region, depth, blocks).expect("a region"),
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
