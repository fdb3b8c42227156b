//! An edge that gives way when memory is short: an observer's.

use nervure_protocol::wiring::{Policy, Queue};
use nervure_shm::{
    Arrival, Budget, ConsumerPair, CountersPage, EdgeRegion, Inbox, InputEdge, Output, OutputEdge,
    OwnWakePage, Producer, ProducerPair, Seqpacket, Wait, WakePage, eventfd,
};
use std::sync::Arc;

const BLOCKS: u32 = 64;
const SAMPLE_BYTES: usize = 1 << 20;

fn output(budget: u64) -> (Output, Arc<CountersPage>) {
    let counters = CountersPage::create(2, 1).expect("memory");
    let counters = Arc::new(CountersPage::map(&counters, true).expect("counters"));
    let producer = Producer {
        budget: Budget::new(budget),
        wake: Arc::new(
            OwnWakePage::map(&WakePage::create(0).expect("memory").1, 0, counters.clone())
                .expect("a wake page"),
        ),
        counters: counters.clone(),
        incarnation: 0,
        stopping: Arc::default(),
        on_misbehaviour: Arc::new(|edge, what| panic!("edge {edge}: {what}")),
    };
    (
        Output::new("output".to_owned(), BLOCKS, 0, producer),
        counters,
    )
}

fn attach(output: &Output, edge: u32, counters: &Arc<CountersPage>) -> Inbox {
    let (_, wake) = WakePage::create(1).expect("memory");
    let eventfd = Arc::new(eventfd().expect("a descriptor"));
    let inbox = Inbox::new(
        Arc::new(OwnWakePage::map(&wake, 1, counters.clone()).expect("a wake page")),
        eventfd.clone(),
    );
    let region = EdgeRegion::create(16, BLOCKS).expect("memory");
    let (a, b) = Seqpacket::pair().expect("a socket");
    inbox.handle().attach(InputEdge {
        id: edge,
        input: 0,
        policy: Policy::DropOldest,
        region: EdgeRegion::map(&region).expect("a region"),
        pair: Arc::new(ConsumerPair::new(b)),
        producer_wake: Arc::new(WakePage::create(0).expect("memory").0),
        counters: counters.clone(),
    });
    let attached = output.attach(OutputEdge {
        id: edge,
        consumer: format!("consumer{edge}/input"),
        input: 0,
        queue: Queue {
            policy: Policy::DropOldest,
            depth: 16,
            max_held: 16,
        },
        counters_row: edge,
        region: EdgeRegion::map(&region).expect("a region"),
        bell: Arc::new(WakePage::map(&wake).expect("a wake page")),
        eventfd,
        pair: Arc::new(ProducerPair::new(a, edge)),
    });
    attached.expect("it fits");
    inbox
}

fn received(inbox: &mut Inbox) -> Vec<u64> {
    let arrivals = std::iter::from_fn(|| inbox.try_next().expect("not forked"));
    let sequence = |arrival| match arrival {
        Arrival::Sample { sample, .. } => Some(sample.header().sequence),
        _ => None,
    };
    arrivals.filter_map(sequence).collect()
}

#[test]
fn an_observer_that_takes_nothing_costs_the_others_no_sample() {
    let (output, counters) = output(4 * SAMPLE_BYTES as u64);
    let mut robot = attach(&output, 0, &counters);
    let mut observer = attach(&output, 1, &counters);
    output.mark_as_observer(1);
    for number in 0..20 {
        let mut loan = output
            .loan(SAMPLE_BYTES, 0, Wait::Never)
            .expect("memory that the observer gave up");
        output
            .publish(
                &mut loan,
                nervure_message::Header::default(),
                b"",
                Wait::Never,
            )
            .expect("room");
        assert_eq!(received(&mut robot), [number]);
    }
    let (own, observers) = (counters.output(0), counters.output(1));
    assert_eq!((own.sent, own.lost()), (20, 0));
    let left = received(&mut observer);
    assert_eq!(
        observers.dropped_oldest,
        20 - left.len() as u64,
        "counted on its own edge alone"
    );
    assert_eq!(
        left,
        (20 - left.len() as u64..20).collect::<Vec<_>>(),
        "and the newest are there"
    );
    assert!(!left.is_empty());
}

#[test]
fn an_edge_of_the_dataflow_does_not_give_way() {
    let (output, counters) = output(4 * SAMPLE_BYTES as u64);
    let _idle = attach(&output, 0, &counters);
    let sent = (0..20).take_while(|_| {
        output
            .loan(SAMPLE_BYTES, 0, Wait::Never)
            .is_ok_and(|mut loan| {
                output
                    .publish(
                        &mut loan,
                        nervure_message::Header::default(),
                        b"",
                        Wait::Never,
                    )
                    .is_ok()
            })
    });
    assert!(
        sent.count() < 20,
        "what waits for a node of the dataflow stays"
    );
    assert_eq!(counters.output(0).dropped_oldest, 0);
}
