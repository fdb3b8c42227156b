//! Random operations on two planes, which must behave in the same way.

use crate::content::Content;
use crate::model::Model;
use crate::plane::{
    Arrival, Edge, Limits, Plane, PlaneInbox, PlaneOutput, PlaneSample, Receipt, Received, Refusal,
    SampleOf, Sent, Wait,
};
use nervure_protocol::wiring::{Policy, Queue};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Number of producing processes at a time, each with one output.
const OUTPUTS: usize = 2;
/// Number of consuming processes at a time, each with one input. The order between inputs of one
/// process is not defined, so it cannot be compared.
const CONSUMERS: usize = 3;

/// One step of a run. Numbers are taken modulo the number of objects.
#[derive(Clone, Debug)]
enum Operation {
    Connect {
        output: usize,
        consumer: usize,
        queue: Queue,
    },
    Publish {
        output: usize,
        payload_bytes: usize,
        head_bytes: usize,
    },
    Loan {
        output: usize,
        payload_bytes: usize,
    },
    PublishLoan,
    DropLoan,
    Receive {
        consumer: usize,
    },
    TakeNewest {
        consumer: usize,
    },
    DropHeld {
        consumer: usize,
        index: usize,
    },
    CloneHeld {
        consumer: usize,
        index: usize,
    },
    ConsumerDies {
        consumer: usize,
        restarts: bool,
    },
    ConsumerStarts {
        consumer: usize,
    },
    ProducerDies {
        output: usize,
        last: bool,
        history: u32,
    },
    Wake {
        consumer: usize,
    },
    Serve,
}

/// The observable result of a step.
#[derive(Debug, PartialEq)]
enum Outcome {
    Nothing,
    Published(Result<Receipt, Refusal>),
    Received(Option<Content>),
    Closed,
    Edge(Edge),
}

/// Performs `cases` random runs on a plane and on the model.
///
/// # Panics
/// If the results differ. The message has the shortest run in which they do.
pub fn compare_with_model<P: Plane>(plane: impl Fn() -> P, cases: u32) {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let outcome =
        TestRunner::new(config).run(&prop::collection::vec(operation(), 1..120), |operations| {
            let (mut tested, mut model) = (World::new(plane()), World::new(Model::default()));
            for (step, operation) in operations.iter().enumerate() {
                let (got, expected) = (tested.perform(operation), model.perform(operation));
                prop_assert_eq!(got, expected, "step {}: {:?}", step, operation);
                prop_assert_eq!(
                    tested.counters(),
                    model.counters(),
                    "after step {}: {:?}",
                    step,
                    operation
                );
            }
            prop_assert_eq!(tested.finish(), model.finish());
            Ok(())
        });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let output = 0..OUTPUTS;
    let consumer = 0..CONSUMERS;
    let payload = prop_oneof![Just(0), 1..300_usize, Just(2000), Just(70_000)];
    let head = prop_oneof![4 => Just(0), 1 => 1..300_usize];
    prop_oneof![
        3 => (output.clone(), consumer.clone(), queue())
            .prop_map(|(output, consumer, queue)| Connect { output, consumer, queue }),
        20 => (output.clone(), payload.clone(), head)
            .prop_map(|(output, payload_bytes, head_bytes)| Publish { output, payload_bytes, head_bytes }),
        2 => (output.clone(), payload).prop_map(|(output, payload_bytes)| Loan { output, payload_bytes }),
        2 => Just(PublishLoan),
        1 => Just(DropLoan),
        16 => consumer.clone().prop_map(|consumer| Receive { consumer }),
        1 => consumer.clone().prop_map(|consumer| TakeNewest { consumer }),
        10 => (consumer.clone(), any::<usize>())
            .prop_map(|(consumer, index)| DropHeld { consumer, index }),
        1 => (consumer.clone(), any::<usize>())
            .prop_map(|(consumer, index)| CloneHeld { consumer, index }),
        1 => (consumer.clone(), any::<bool>())
            .prop_map(|(consumer, restarts)| ConsumerDies { consumer, restarts }),
        2 => consumer.clone().prop_map(|consumer| ConsumerStarts { consumer }),
        1 => (output, any::<bool>(), 0..4_u32)
            .prop_map(|(output, last, history)| ProducerDies { output, last, history }),
        1 => consumer.prop_map(|consumer| Wake { consumer }),
        1 => Just(Serve),
    ]
}

fn queue() -> impl Strategy<Value = Queue> {
    let policy = prop::sample::select(&Policy::ALL);
    (policy, 1..6_u32, 1..8_u32).prop_map(|(policy, depth, max_held)| Queue {
        policy,
        depth,
        max_held,
    })
}

struct World<P: Plane> {
    plane: P,
    outputs: Vec<P::Output>,
    consumers: Vec<ConsumerSlot<P>>,
    loan: Option<(usize, Content, <P::Output as PlaneOutput>::Loan)>,
    edges: Vec<Edge>,
    next_number: u64,
    incarnation: u32,
}

struct ConsumerSlot<P: Plane> {
    /// `None` while it is dead.
    alive: Option<Alive<P>>,
    /// Edges that a restarted process gets, with the slots of their producers.
    edges: Vec<(usize, Edge)>,
    /// Whether its input has been closed for good.
    is_over: bool,
}

struct Alive<P: Plane> {
    handle: P::Consumer,
    inbox: P::Inbox,
    held: Vec<SampleOf<P>>,
}

impl<P: Plane> World<P> {
    fn new(plane: P) -> Self {
        let outputs = (0..OUTPUTS).map(|history| {
            plane.producer(Limits {
                history: history as u32 * 2,
                ..Limits::default()
            })
        });
        let consumers = (0..CONSUMERS).map(|_| ConsumerSlot::start(&plane, Vec::new()));
        let (outputs, consumers) = (outputs.collect(), consumers.collect());
        Self {
            plane,
            outputs,
            consumers,
            loan: None,
            edges: Vec::new(),
            next_number: 0,
            incarnation: 0,
        }
    }

    fn perform(&mut self, operation: &Operation) -> Outcome {
        match *operation {
            Operation::Connect {
                output,
                consumer,
                queue,
            } => {
                let slot = &mut self.consumers[consumer];
                let Some(alive) = slot.alive.as_ref().filter(|_| !slot.is_over) else {
                    return Outcome::Nothing;
                };
                let edge = self
                    .plane
                    .connect(&self.outputs[output], &alive.handle, 0, queue);
                slot.edges.push((output, edge));
                self.edges.push(edge);
                return Outcome::Edge(edge);
            }
            Operation::Publish {
                output,
                payload_bytes,
                head_bytes,
            } => {
                let content = self.next_content(payload_bytes).with_head(head_bytes);
                return Outcome::Published(content.send(&self.outputs[output], Wait::Never));
            }
            Operation::Loan {
                output,
                payload_bytes,
            } => {
                let content = self.next_content(payload_bytes);
                match self.outputs[output].loan(payload_bytes, 0, Wait::Never) {
                    Ok(loan) => self.loan = Some((output, content, loan)),
                    Err(refusal) => return Outcome::Published(Err(refusal)),
                }
            }
            Operation::PublishLoan => return self.publish_loan(),
            Operation::DropLoan => self.loan = None,
            Operation::Receive { consumer } => return self.consumers[consumer].receive(),
            Operation::TakeNewest { consumer } => return self.consumers[consumer].take_newest(),
            Operation::DropHeld { consumer, index } => {
                self.consumers[consumer].with_held(index, |held, at| {
                    drop(held.swap_remove(at));
                })
            }
            Operation::CloneHeld { consumer, index } => {
                self.consumers[consumer].with_held(index, |held, at| held.push(held[at].clone()));
            }
            Operation::ConsumerDies { consumer, restarts } => {
                let slot = &mut self.consumers[consumer];
                if let Some(Alive {
                    handle,
                    inbox,
                    held,
                }) = slot.alive.take()
                {
                    self.plane.consumer_died(&handle, inbox, held, restarts);
                    if !restarts {
                        slot.edges.clear();
                    }
                }
            }
            Operation::ConsumerStarts { consumer } => {
                if self.consumers[consumer].alive.is_none() {
                    let edges = std::mem::take(&mut self.consumers[consumer].edges);
                    self.consumers[consumer] = ConsumerSlot::start(&self.plane, edges);
                    self.edges
                        .extend(self.consumers[consumer].edges.iter().map(|&(_, edge)| edge));
                }
            }
            Operation::ProducerDies {
                output,
                last,
                history,
            } => self.producer_dies(output, last, history),
            Operation::Wake { consumer } => {
                if let Some(alive) = &self.consumers[consumer].alive {
                    self.plane.wake(&alive.handle);
                }
            }
            Operation::Serve => self.plane.serve(),
        }
        Outcome::Nothing
    }

    fn next_content(&mut self, payload_bytes: usize) -> Content {
        self.next_number += 1;
        Content::new(self.next_number, payload_bytes)
    }

    fn publish_loan(&mut self) -> Outcome {
        use crate::plane::PlaneLoan;
        let Some((output, content, mut loan)) = self.loan.take() else {
            return Outcome::Nothing;
        };
        content.fill(loan.payload_mut());
        match self.outputs[output].publish(loan, content.header(), b"", Wait::Never) {
            Ok(receipt) => Outcome::Published(Ok(receipt)),
            Err((loan, refusal)) => {
                self.loan = Some((output, content, loan));
                Outcome::Published(Err(refusal))
            }
        }
    }

    fn producer_dies(&mut self, output: usize, last: bool, history: u32) {
        self.loan = self.loan.take().filter(|(of, ..)| *of != output);
        self.plane.producer_gone(&self.outputs[output], last);
        for slot in &mut self.consumers {
            let before = slot.edges.len();
            slot.edges.retain(|(of, _)| *of != output);
            slot.is_over |= last && slot.edges.len() < before;
        }
        self.incarnation += 1;
        let limits = Limits {
            history,
            incarnation: self.incarnation,
            ..Limits::default()
        };
        self.outputs[output] = self.plane.producer(limits);
    }

    fn counters(&self) -> (Vec<Sent>, Vec<Received>) {
        let sent = self.edges.iter().map(|&edge| self.plane.sent(edge));
        let alive = self.consumers.iter().filter_map(|slot| slot.alive.as_ref());
        (
            sent.collect(),
            alive
                .map(|alive| self.plane.received(&alive.handle, 0))
                .collect(),
        )
    }

    /// Receives all remaining samples. Checks that every held sample is unchanged.
    fn finish(&mut self) -> Vec<Vec<Outcome>> {
        let drain = |slot: &mut ConsumerSlot<P>| {
            let left: Vec<_> = std::iter::repeat_with(|| slot.receive())
                .take_while(|outcome| {
                    !matches!(outcome, Outcome::Nothing | Outcome::Received(None))
                })
                .collect();
            for sample in slot.alive.iter().flat_map(|alive| &alive.held) {
                Content::check(sample);
            }
            left
        };
        self.consumers.iter_mut().map(drain).collect()
    }
}

impl<P: Plane> ConsumerSlot<P> {
    fn start(plane: &P, edges: Vec<(usize, Edge)>) -> Self {
        let (handle, inbox) = plane.consumer(1);
        let edges = edges
            .into_iter()
            .map(|(output, edge)| (output, plane.reconnect(edge, &handle)))
            .collect();
        Self {
            alive: Some(Alive {
                handle,
                inbox,
                held: Vec::new(),
            }),
            edges,
            is_over: false,
        }
    }

    fn receive(&mut self) -> Outcome {
        let Some(Alive { inbox, held, .. }) = &mut self.alive else {
            return Outcome::Nothing;
        };
        match inbox.try_next() {
            None => Outcome::Received(None),
            Some(Arrival::Closed(_)) => Outcome::Closed,
            Some(Arrival::Sample(_, sample)) => Outcome::Received(Some(take(sample, held))),
        }
    }

    fn take_newest(&mut self) -> Outcome {
        let Some(Alive { inbox, held, .. }) = &mut self.alive else {
            return Outcome::Nothing;
        };
        Outcome::Received(inbox.take_newest(0).map(|sample| take(sample, held)))
    }

    fn with_held(&mut self, index: usize, act: impl FnOnce(&mut Vec<SampleOf<P>>, usize)) {
        if let Some(Alive { held, .. }) = &mut self.alive
            && !held.is_empty()
        {
            let at = index % held.len();
            act(held, at);
        }
    }
}

fn take<S: PlaneSample>(sample: S, held: &mut Vec<S>) -> Content {
    let content = Content::check(&sample);
    held.push(sample);
    content
}
