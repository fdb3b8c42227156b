//! Handles that a forked child inherits are inert. The tests fork for real.

#![expect(unsafe_code, reason = "fork")]

pub mod support;

use nervure_message::Header;
use nervure_protocol::wiring::Policy;
use nervure_shm::{
    Arrival, Budget, ConsumerPair, CountersPage, Inbox, Output, PayloadLoan, ProducerPair,
    ReceivedSample, SendError, Wait,
};
use std::sync::Arc;
use support::{TestNode, connect, queue};

struct Process {
    output: Output,
    inbox: Inbox,
    counters: Arc<CountersPage>,
    budget: Arc<Budget>,
    consumer_pair: Arc<ConsumerPair>,
    producer_pair: Arc<ProducerPair>,
}

/// A process with an output that it receives itself.
fn process() -> Process {
    let node = TestNode::new(1 << 30);
    let (output, inbox) = (node.output(8, 1), node.inbox());
    let pairs = connect(
        0,
        (&node, &output, 8),
        (&node, &inbox),
        queue(Policy::Block, 4, 4),
    );
    Process {
        output,
        inbox,
        counters: node.producer.counters,
        budget: node.producer.budget,
        consumer_pair: pairs.consumer,
        producer_pair: pairs.producer,
    }
}

/// Runs `child` in a forked child, which must return true.
fn in_child(child: impl FnOnce() -> bool) {
    // SAFETY: the child only runs `child`, and exits without running the parent's exit handlers.
    match unsafe { libc::fork() } {
        -1 => panic!("{}", std::io::Error::last_os_error()),
        0 => {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            let code = match outcome {
                Ok(true) => 0,
                Ok(false) => 1,
                Err(_) => 2,
            };
            // SAFETY: ends the child at once, without exit handlers.
            unsafe { libc::_exit(code) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
            assert_eq!(
                (waited, status),
                (pid, 0),
                "1 is false, 2 a panic (times 256)"
            );
        }
    }
}

fn send(output: &Output, byte: u8, bytes: usize) {
    output
        .publish(
            &mut fill(output, byte, bytes),
            Header::default(),
            b"",
            Wait::Never,
        )
        .expect("room");
}

fn fill(output: &Output, byte: u8, bytes: usize) -> PayloadLoan {
    let mut loan = output.loan(bytes, 0, Wait::Never).expect("memory");
    loan.payload_mut().fill(byte);
    loan
}

fn next(inbox: &mut Inbox) -> ReceivedSample {
    match inbox.try_next().expect("not forked") {
        Some(Arrival::Sample { sample, .. }) => sample,
        other => panic!("expected a sample, got {other:?}"),
    }
}

#[test]
fn use_in_a_child_is_an_error() {
    let mut process = process();
    let mut loan = fill(&process.output, 3, 70_000);
    in_child(|| {
        let Process { output, inbox, .. } = &mut process;
        let is_forked = |error: SendError| matches!(error, SendError::Forked(_));
        assert!(output.loan(10, 0, Wait::Forever).is_err_and(is_forked));
        assert!(output.loan(70_000, 0, Wait::Forever).is_err_and(is_forked));
        assert!(
            output
                .publish(&mut loan, Header::default(), b"", Wait::Forever)
                .is_err_and(is_forked)
        );
        assert!(output.announce(1, b"x").is_err_and(is_forked));
        assert!(!output.has_readers());
        assert!(inbox.try_next().is_err() && inbox.take_newest(0).is_err());
        assert!(!inbox.belongs_to_this_process() && !inbox.arm());
        // These return at once.
        inbox.wait(None);
        inbox.handle().wait(None);
        true
    });
}

#[test]
fn a_parent_keeps_what_its_child_drops() {
    let mut process = process();
    for byte in 0..4 {
        send(&process.output, byte, 70_000);
    }
    let held = [next(&mut process.inbox), next(&mut process.inbox)];
    let mut loan = process.output.loan(70_000, 0, Wait::Never).expect("memory");
    let (used, held_before) = (process.budget.used(), process.counters.input(0).held);
    for everything in [false, true] {
        let Process {
            output,
            inbox,
            counters,
            budget,
            consumer_pair,
            producer_pair,
        } = &process;
        let (held, loan) = (&held, &loan);
        in_child(move || {
            // SAFETY: bitwise copies, dropped here in the child, which exits without touching the
            // originals.
            unsafe {
                drop(std::ptr::read(held));
                drop(std::ptr::read(loan));
                if everything {
                    drop(std::ptr::read(inbox));
                    drop(std::ptr::read(output));
                    drop(std::ptr::read(counters));
                    drop(std::ptr::read(budget));
                    drop(std::ptr::read(consumer_pair));
                    drop(std::ptr::read(producer_pair));
                }
            }
            true
        });
        assert_eq!(
            (process.budget.used(), process.counters.input(0).held),
            (used, held_before)
        );
        assert_eq!(
            process.producer_pair.receive(),
            Some(vec![]),
            "no acknowledgement was sent"
        );
    }
    // Two samples are held and two queued. Whatever the child dropped, the edge is still full.
    let refused = process
        .output
        .publish(&mut loan, Header::default(), b"", Wait::Never)
        .expect_err("full");
    assert!(
        matches!(refused, SendError::WouldBlock { .. }),
        "{refused:?}"
    );
    for (byte, sample) in held.iter().enumerate() {
        assert!(sample.payload().iter().all(|&b| usize::from(b) == byte));
    }
    drop(held);
    process
        .output
        .publish(&mut loan, Header::default(), b"", Wait::Never)
        .expect("room");
    assert_eq!(next(&mut process.inbox).payload()[0], 2);
}

#[test]
fn a_child_takes_no_samples_from_its_parent() {
    let mut process = process();
    send(&process.output, 1, 10);
    in_child(|| {
        process.inbox.refresh();
        process.inbox.disarm();
        process.inbox.handle().notify();
        process.inbox.handle().close(0, true);
        process.inbox.try_next().is_err()
    });
    assert_eq!(next(&mut process.inbox).payload().len(), 10);
    assert!(process.inbox.try_next().expect("not forked").is_none());
}

/// A child that only execs or computes must not change anything, nor must a child of the child.
#[test]
fn a_grandchild_is_treated_like_a_child() {
    let mut process = process();
    in_child(|| {
        let result = process.inbox.try_next().is_err();
        in_child(|| process.inbox.try_next().is_err());
        result
    });
    send(&process.output, 1, 10);
    next(&mut process.inbox);
}

/// A child may make handles of its own.
#[test]
fn handles_that_a_child_makes_itself_work() {
    let _parent = process();
    in_child(|| {
        let mut own = process();
        send(&own.output, 9, 70_000);
        next(&mut own.inbox).payload()[0] == 9
    });
}
