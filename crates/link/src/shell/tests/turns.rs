//! Two links without threads and sockets. Each turn of a link and each poll of a task is a step, and a
//! seed decides their order: a task that waits is woken by the turn after which it can go on.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Instant,
};

use nervure_linkemu::network::{Draw, for_each_seed};
use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::{
    carrier::{
        PublicKey,
        quic::{QuicCarrier, QuicConfig},
    },
    endpoint::Endpoint,
    session::SessionConfig,
    shell::{
        IncomingStream,
        shared::{Shared, State},
        thread::take_events,
    },
};

/// Streams of a run.
const STREAMS: usize = 3;

/// The places of the links: streams go from the first to the second.
const SENDING: usize = 0;
const RECEIVING: usize = 1;

/// A packet, with the addresses that it comes from and goes to.
type Packet = (SocketAddr, SocketAddr, Vec<u8>);

/// A task of the application of a link.
struct Task {
    link: usize,
    name: String,
    future: Pin<Box<dyn Future<Output = ()>>>,
    woken: Arc<Flag>,
}

impl Task {
    fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::SeqCst)
    }

    fn poll(&mut self) -> Poll<()> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// State shared with the tasks.
#[derive(Default)]
struct Common {
    /// Waits of all tasks that are over.
    progress: Cell<u64>,
    /// Tasks to add.
    begun: RefCell<Vec<Task>>,
}

impl Common {
    /// Notes that a wait is over.
    fn step(&self) {
        self.progress.update(|steps| steps + 1);
    }

    fn begin(&self, link: usize, name: String, future: impl Future<Output = ()> + 'static) {
        self.begun.borrow_mut().push(Task {
            link,
            name,
            future: Box::pin(future),
            woken: Arc::new(Flag(AtomicBool::new(true))),
        });
    }
}

struct World {
    links: [Rc<Link>; 2],
    in_flight: VecDeque<Packet>,
    tasks: Vec<Task>,
    common: Rc<Common>,
}

fn address(link: usize) -> SocketAddr {
    ([10, 0, 0, link as u8 + 1], 4000).into()
}

/// A link without a thread.
fn link(number: usize, key: KeyPair, peer: PublicKey, seed: u64) -> Link {
    let seed = seed * 2 + number as u64;
    let quic = QuicConfig {
        accepts: number == RECEIVING,
        simulation_seed: Some(seed),
        ..QuicConfig::new(key)
    };
    let mut carrier = QuicCarrier::new(quic);
    carrier.allow(peer);
    let endpoint = Endpoint::new(carrier, SessionConfig::default(), seed);
    let descriptor = || eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor");
    let shared = Shared::new(State::new(endpoint, None), descriptor(), descriptor());
    Link {
        shared: Arc::new(shared),
        local: address(number),
        thread: None,
        trace_writer: None,
    }
}

impl World {
    fn new(seed: u64, draw: &mut Draw) -> Self {
        let keys = [1, 2].map(|number| KeyPair::from_seed([number; 32]));
        let ids = keys.each_ref().map(KeyPair::public);
        let [sending, receiving] = keys;
        let links = [
            Rc::new(link(SENDING, sending, ids[RECEIVING], seed)),
            Rc::new(link(RECEIVING, receiving, ids[SENDING], seed)),
        ];
        // A stream that changes to the newest sample alone ends.
        links[RECEIVING].set_stream_policy(StreamPolicy::new(|request| {
            match request.qos.delivery {
                Delivery::Latest => Decision::Refuse(Refusal::NotAllowed),
                _ => Decision::Accept,
            }
        }));
        let peer = links[SENDING].peer(ids[RECEIVING]);
        let common = Rc::new(Common::default());
        for number in 0..STREAMS {
            let produced = produce(Rc::clone(&common), peer.clone(), Plan::draw(draw));
            common.begin(SENDING, format!("producer {number}"), produced);
        }
        let link = Rc::clone(&links[RECEIVING]);
        let accepted = accept(Rc::clone(&common), link, draw.below(4));
        common.begin(RECEIVING, "acceptor".to_owned(), accepted);
        let world = Self {
            links,
            in_flight: VecDeque::new(),
            tasks: Vec::new(),
            common,
        };
        world.connect();
        world
    }

    fn connect(&self) {
        self.links[SENDING]
            .connect(address(RECEIVING), self.links[RECEIVING].public_key())
            .expect("the address is good");
    }

    /// Drops the state of the peer at an end.
    fn close(&self, link: usize) {
        let peer = self.links[1 - link].public_key();
        self.links[link].peer(peer).close();
    }

    /// A turn of a link's thread, which takes the packets that have arrived.
    fn turn(&mut self, number: usize) {
        let shared = &self.links[number].shared;
        let mut state = shared.lock();
        let now = Instant::now();
        let in_flight = std::mem::take(&mut self.in_flight);
        for (from, to, packet) in in_flight {
            match to == address(number) {
                true => state.endpoint.handle_packet(now, from, None, packet),
                false => self.in_flight.push_back((from, to, packet)),
            }
        }
        state.endpoint.handle_timeout(now);
        let mut packet = Vec::new();
        while let Some(transmit) = state.endpoint.poll_transmit(now, &mut packet) {
            let packet = std::mem::take(&mut packet);
            let to = transmit.destination;
            self.in_flight.push_back((address(number), to, packet));
        }
        let changed = take_events(&mut state);
        shared.notify_after_turn(state, changed);
    }

    /// Polls the tasks of a link that wait, after a turn: they must have nothing to do.
    fn check_waits(&mut self, link: usize) {
        let before = self.common.progress.get();
        let waiting = |task: &&mut Task| task.link == link && !task.is_woken();
        for task in self.tasks.iter_mut().filter(waiting) {
            let has_gone_on = task.poll().is_ready() || self.common.progress.get() != before;
            assert!(!has_gone_on, "{} was not woken", task.name);
        }
    }

    fn step(&mut self, draw: &mut Draw) {
        self.tasks.append(&mut self.common.begun.borrow_mut());
        let woken = 0..self.tasks.len();
        let woken: Vec<_> = woken
            .filter(|place| self.tasks[*place].is_woken())
            .collect();
        let link = draw.below(2) as usize;
        if woken.is_empty() || draw.chance(60) {
            self.turn(link);
            if draw.chance(50) {
                self.check_waits(link);
            }
            return;
        }
        let place = woken[draw.below(woken.len() as u64) as usize];
        let task = &mut self.tasks[place];
        task.woken.0.store(false, Ordering::SeqCst);
        if task.poll().is_ready() {
            self.tasks.swap_remove(place);
        }
    }

    /// Whether no task but the acceptor is left, and no stream.
    fn is_done(&self) -> bool {
        let has_streams = |link: &Rc<Link>| {
            let peers = link.peers();
            let mut streams = peers.iter().map(|it| it.outgoing.len() + it.incoming.len());
            streams.any(|count| count > 0)
        };
        self.common.begun.borrow().is_empty()
            && self.tasks.len() == 1
            && !self.links.iter().any(has_streams)
    }
}

/// The work of a producer.
#[derive(Clone, Copy, Debug)]
struct Plan {
    depth: u32,
    samples: u8,
    awaits_opening: bool,
    /// Changes the quality of service to one that the receiver refuses, after the samples.
    changes: bool,
    flushes: bool,
}

impl Plan {
    fn draw(draw: &mut Draw) -> Self {
        Self {
            depth: 1 + draw.below(3) as u32,
            samples: draw.below(8) as u8,
            awaits_opening: draw.chance(50),
            changes: draw.chance(20),
            flushes: draw.chance(50),
        }
    }
}

async fn produce(common: Rc<Common>, peer: Peer, plan: Plan) {
    let qos = Qos::new(Delivery::keep_all(plan.depth));
    let Ok(stream) = peer.open("stream", qos) else {
        return;
    };
    if plan.awaits_opening {
        // An error when the peer's state is dropped, as in the following.
        let _ = stream.wait_opened_async().await;
        common.step();
    }
    for number in 0..plan.samples {
        let sent = stream.send_async(vec![number]).await;
        common.step();
        if sent.is_err() {
            return;
        }
    }
    if plan.changes {
        let _ = stream.set_qos(Qos::new(Delivery::Latest));
    }
    if plan.flushes {
        stream.flush_async().await;
        common.step();
    }
}

/// Takes all streams of the peer. Every second consumer closes its stream after this number of samples.
async fn accept(common: Rc<Common>, link: Rc<Link>, closes_after: u64) {
    let mut streams = 0;
    while let Some(event) = link.next_event_async().await {
        common.step();
        if let LinkEvent::Opened { stream, .. } = event {
            let closes_after = (streams % 2 == 1).then_some(closes_after);
            let consumed = consume(Rc::clone(&common), stream, closes_after);
            common.begin(RECEIVING, format!("consumer {streams}"), consumed);
            streams += 1;
        }
    }
}

async fn consume(common: Rc<Common>, stream: IncomingStream, closes_after: Option<u64>) {
    let mut last = None;
    for _ in 0..closes_after.unwrap_or(u64::MAX) {
        let sample = stream.receive_async().await;
        common.step();
        let Some(sample) = sample else {
            assert!(stream.has_ended() && stream.counters().is_none());
            return;
        };
        let number = Some(sample.payload[0]);
        assert!(number > std::mem::replace(&mut last, number), "the order");
    }
    stream.close(Refusal::because("enough"));
}

#[test]
fn a_task_that_can_go_on_after_a_turn_is_woken_by_it() {
    for_each_seed(0..300, |seed| {
        let mut draw = Draw::new(seed);
        let mut world = World::new(seed, &mut draw);
        // In some runs the ends drop the state of their peer on the way, at these steps.
        let closes = draw.chance(30);
        let [closed, connected, over] = [1, 2, 3].map(|part| part * (1 + draw.below(600)));
        let (began, mut steps) = (Instant::now(), 0);
        while !world.is_done() || closes && steps <= over {
            world.step(&mut draw);
            steps += 1;
            match steps {
                _ if !closes => {}
                _ if steps == closed => world.close(RECEIVING),
                _ if steps == connected => world.connect(),
                _ if steps == over => [SENDING, RECEIVING]
                    .iter()
                    .for_each(|end| world.close(*end)),
                _ => {}
            }
            let names: Vec<_> = world.tasks.iter().map(|task| &task.name).collect();
            assert!(began.elapsed() < TIMEOUT, "{names:?} wait");
        }
    });
}
