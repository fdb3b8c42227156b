//! Two honest ends, and the raw memory between them.

use nervure_protocol::wiring::{Policy, Queue};
use nervure_shm::{
    Arrival, Budget, ConsumerPair, CountersPage, EdgeRegion, Inbox, InputEdge, Misbehaviour,
    Output, OutputEdge, OwnWakePage, Producer, ProducerPair, ReceivedSample, Seqpacket, WakePage,
    eventfd,
};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Offsets in an edge's region, and the size of a slot of its ring: see `EdgeRegion`.
pub const HEAD: u64 = 0;
pub const TAIL: u64 = 64;
pub const LEASES: u64 = 128;
pub const SLOT_BYTES: u64 = 48 * 8;
/// Indices of words in a slot.
pub const WORD_BLOCK: usize = 11;
pub const WORD_OFFSET: usize = 12;
pub const WORD_PAYLOAD: usize = 13;
pub const WORD_HEAD: usize = 14;
pub const NO_BLOCK: u64 = u32::MAX as u64;

pub const BLOCKS: u32 = 32;
pub const DEPTH: u32 = 8;

/// Kinds of packets on the socket of a pair.
pub const SEGMENT: u64 = 1;
pub const RETIRE: u64 = 2;
pub const ANNOUNCE: u64 = 3;
pub const RETIRED: u64 = 4;
pub const ATTACHED: u64 = 5;

pub fn packet(kind: u64, id: u64, value: u64) -> Vec<u8> {
    [kind, id, value].map(u64::to_ne_bytes).concat()
}

/// The memory of an edge, which its peers can write through their descriptors.
pub struct RawEdge(pub OwnedFd);

impl RawEdge {
    pub fn new() -> Self {
        Self(EdgeRegion::create(DEPTH, BLOCKS).expect("memory"))
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) {
        rustix::io::pwrite(&self.0, bytes, offset).expect("a shared page");
    }

    pub fn write_word(&self, offset: u64, word: u64) {
        self.write(offset, &word.to_ne_bytes());
    }

    pub fn read_word(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::pread(&self.0, &mut bytes, offset).expect("a shared page");
        u64::from_ne_bytes(bytes)
    }

    pub fn slot(index: u64) -> u64 {
        (LEASES + u64::from(BLOCKS) * 4).next_multiple_of(64)
            + index % u64::from(DEPTH) * SLOT_BYTES
    }

    /// Writes a descriptor into a slot.
    pub fn describe(&self, index: u64, block: u64, offset: u64, payload: u64, head: u64) {
        for (word, value) in [
            (WORD_BLOCK, block),
            (WORD_OFFSET, offset),
            (WORD_PAYLOAD, payload),
            (WORD_HEAD, head),
        ] {
            self.write_word(Self::slot(index) + word as u64 * 8, value);
        }
    }

    /// Length of the region in bytes.
    pub fn bytes(&self) -> u64 {
        rustix::fs::fstat(&self.0)
            .expect("a descriptor")
            .st_size
            .cast_unsigned()
    }
}

/// A producing process that keeps the protocol.
pub struct HonestProducer {
    pub output: Output,
    pub process: Producer,
    pub wake: OwnedFd,
    /// Edges that the producer has cut off, with the reason.
    pub cut: Arc<Mutex<Vec<(u32, Misbehaviour)>>>,
}

impl HonestProducer {
    pub fn new() -> Self {
        let (_, wake) = WakePage::create(0).expect("memory");
        let counters = CountersPage::create(8, 0).expect("memory");
        let counters = Arc::new(CountersPage::map(&counters, true).expect("counters"));
        let own_page = OwnWakePage::map(&wake, 0, counters.clone()).expect("a wake page");
        let cut = Arc::new(Mutex::new(Vec::new()));
        let reported = cut.clone();
        let process = Producer {
            budget: Budget::new(64 << 20),
            wake: Arc::new(own_page),
            counters,
            incarnation: 0,
            stopping: Arc::default(),
            held: Arc::default(),
            cut_short: Arc::default(),
            on_misbehaviour: Arc::new(move |edge, what| {
                reported.lock().expect("no panic").push((edge, what))
            }),
        };
        Self {
            output: Output::new("output".to_owned(), BLOCKS, 2, process.clone()),
            process,
            wake,
            cut,
        }
    }

    /// Attaches an edge to input `input` of the consumer that has the wake page `bell`. The edge's
    /// id is that of the input.
    pub fn attach(
        &self,
        input: u32,
        policy: Policy,
        region: &OwnedFd,
        bell: &OwnedFd,
        socket: Seqpacket,
    ) {
        let edge = OutputEdge {
            id: input,
            consumer: format!("consumer/input{input}"),
            input,
            queue: Queue {
                policy,
                depth: DEPTH,
                max_held: DEPTH + 4,
            },
            counters_row: input,
            region: EdgeRegion::map(region, DEPTH, BLOCKS).expect("a region"),
            bell: Arc::new(WakePage::map(bell).expect("a wake page")),
            eventfd: Arc::new(eventfd().expect("a descriptor")),
            pair: Arc::new(ProducerPair::new(socket, input)),
        };
        self.output.attach(edge).expect("it fits");
    }

    pub fn cut(&self) -> Vec<(u32, Misbehaviour)> {
        self.cut.lock().expect("no panic").clone()
    }
}

/// A consuming process that keeps the protocol, with two inputs.
pub struct HonestConsumer {
    pub inbox: Inbox,
    pub page: WakePage,
    pub wake: OwnedFd,
    pub counters: Arc<CountersPage>,
    /// Number of reports that a peer overwrote the wake page.
    pub overwritten: Arc<AtomicU32>,
    pub eventfd: Arc<OwnedFd>,
}

impl HonestConsumer {
    pub fn new() -> Self {
        let counters = CountersPage::create(0, 2).expect("memory");
        let counters = Arc::new(CountersPage::map(&counters, true).expect("counters"));
        Self::with_page(WakePage::create(2).expect("memory").1, counters)
    }

    pub fn with_page(wake: OwnedFd, counters: Arc<CountersPage>) -> Self {
        let eventfd = Arc::new(eventfd().expect("a descriptor"));
        let overwritten = Arc::new(AtomicU32::new(0));
        let count = overwritten.clone();
        let own_page = OwnWakePage::map(&wake, 2, counters.clone()).expect("a wake page");
        let own_page = own_page.on_overwritten(move |_| {
            count.fetch_add(1, SeqCst);
        });
        Self {
            inbox: Inbox::new(Arc::new(own_page), eventfd.clone()),
            page: WakePage::map(&wake).expect("a wake page"),
            wake,
            counters,
            overwritten,
            eventfd,
        }
    }

    /// Attaches an edge whose producer has this wake page. The edge's id is that of the input.
    pub fn attach(&self, input: u32, region: &OwnedFd, producer_wake: &OwnedFd, socket: Seqpacket) {
        self.attach_pair(
            input,
            region,
            producer_wake,
            Arc::new(ConsumerPair::new(socket)),
        );
    }

    pub fn attach_pair(
        &self,
        input: u32,
        region: &OwnedFd,
        producer_wake: &OwnedFd,
        pair: Arc<ConsumerPair>,
    ) {
        self.inbox.handle().attach(InputEdge {
            id: input,
            input,
            policy: Policy::DropOldest,
            region: EdgeRegion::map(region, DEPTH, BLOCKS).expect("a region"),
            pair,
            producer_wake: Arc::new(WakePage::map(producer_wake).expect("a wake page")),
            counters: self.counters.clone(),
        });
    }

    /// Rings for every input, as a hostile producer may.
    pub fn ring(&self) {
        self.page.ring_all(self.eventfd.as_fd());
    }

    pub fn next(&mut self) -> Option<Arrival> {
        self.inbox.try_next().expect("not forked")
    }
}

/// An honest consumer with a hostile producer on input 0 and an honest one on input 1.
pub struct BesideHostile {
    pub consumer: HonestConsumer,
    pub edge: RawEdge,
    pub socket: Seqpacket,
    pub producer: HonestProducer,
}

impl BesideHostile {
    pub fn new() -> Self {
        let (consumer, producer) = (HonestConsumer::new(), HonestProducer::new());
        let edge = RawEdge::new();
        let (socket, end) = Seqpacket::pair().expect("a socket");
        // The wake page of the hostile producer.
        let (_, producer_wake) = WakePage::create(0).expect("memory");
        consumer.attach(0, &edge.0, &producer_wake, end);
        let region = EdgeRegion::create(DEPTH, BLOCKS).expect("memory");
        let (a, b) = Seqpacket::pair().expect("a socket");
        consumer.attach(1, &region, &producer.wake, b);
        producer.attach(1, Policy::DropOldest, &region, &consumer.wake, a);
        Self {
            consumer,
            edge,
            socket,
            producer,
        }
    }

    /// The consumer's report for input 0, which must be cut off. Input 1 must still work.
    pub fn misbehaviour(&mut self) -> Misbehaviour {
        self.consumer.ring();
        let found = match self.consumer.next() {
            Some(Arrival::Misbehaved {
                input: 0,
                edge: 0,
                misbehaviour,
            }) => misbehaviour,
            other => panic!("expected misbehaviour, got {other:?}"),
        };
        self.assert_others_work();
        assert!(self.consumer.next().is_none(), "it is reported once");
        found
    }

    pub fn assert_others_work(&mut self) {
        for bytes in [10, 70_000] {
            assert_eq!(
                send(&self.producer.output, &vec![7; bytes]).queued,
                1,
                "{bytes} {:?}",
                self.producer.cut()
            );
            // The hostile producer may have left valid samples behind.
            let sample = loop {
                match self.consumer.next() {
                    Some(Arrival::Sample { input: 1, sample }) => break sample,
                    Some(_) => {}
                    None => panic!("nothing came from the other producer"),
                }
            };
            assert!(
                sample.payload().iter().all(|&byte| byte == 7) && sample.payload().len() == bytes
            );
        }
    }
}

pub fn expect_sample(consumer: &mut HonestConsumer, expected: u32) -> ReceivedSample {
    match consumer.next() {
        Some(Arrival::Sample { input, sample }) if input == expected => sample,
        other => panic!("expected a sample of input {expected}, got {other:?}"),
    }
}

pub fn send(output: &Output, payload: &[u8]) -> nervure_shm::Receipt {
    use nervure_shm::Wait;
    let mut loan = output.loan(payload.len(), 0, Wait::Never).expect("memory");
    loan.payload_mut().copy_from_slice(payload);
    output
        .publish(
            &mut loan,
            nervure_message::Header::default(),
            b"",
            Wait::Never,
        )
        .expect("room")
}

/// A sealed memfd, like a segment.
pub fn segment(bytes: usize) -> OwnedFd {
    let fd = memfd(bytes);
    rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, bytes as u64)
        .expect("memory");
    seal(&fd);
    fd
}

pub fn memfd(bytes: usize) -> OwnedFd {
    use rustix::fs::MemfdFlags;
    let fd = rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let fd = fd.expect("a descriptor");
    rustix::fs::ftruncate(&fd, bytes as u64).expect("a size");
    fd
}

pub fn seal(fd: &OwnedFd) {
    use rustix::fs::SealFlags;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(fd, seals).expect("a memfd");
}
