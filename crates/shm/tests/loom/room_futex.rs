//! No wake-up of a producer that waits for room is lost.

use crate::check;
use crate::lock_free::room_futex::{RoomFutex, RoomWaiters};
use crate::lock_free::sync::{AtomicBool, AtomicU32, FutexWord, Ordering::*};
use loom::sync::Arc;
use loom::thread;

#[test]
fn a_waiting_producer_is_always_notified_of_room() {
    check(3, || {
        let futex = Arc::new((FutexWord::new(), AtomicU32::new(0), RoomWaiters::default()));
        let room = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (futex, room) = (futex.clone(), room.clone());
                thread::spawn(move || {
                    room.fetch_add(1, Release);
                    RoomFutex {
                        sequence: &futex.0,
                        waiters: &futex.1,
                    }
                    .notify();
                })
            })
            .collect();
        let view = RoomFutex {
            sequence: &futex.0,
            waiters: &futex.1,
        };
        let all = || (room.load(Acquire) == 2).then_some(());
        while view.wait(&futex.2, 0, all, |_| ()).0.is_err() {}
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(futex.1.load(Relaxed), 0);
    });
}

#[test]
fn a_process_wakes_its_own_producer_whatever_a_peer_writes() {
    check(3, || {
        let futex = Arc::new((FutexWord::new(), AtomicU32::new(0), RoomWaiters::default()));
        let stopping = Arc::new(AtomicBool::new(false));
        let hostile = {
            let futex = futex.clone();
            thread::spawn(move || futex.1.store(0, Relaxed))
        };
        let control = {
            let (futex, stopping) = (futex.clone(), stopping.clone());
            thread::spawn(move || {
                stopping.store(true, Release);
                futex.2.wake(&RoomFutex {
                    sequence: &futex.0,
                    waiters: &futex.1,
                });
            })
        };
        let view = RoomFutex {
            sequence: &futex.0,
            waiters: &futex.1,
        };
        let stopped = || stopping.load(Acquire).then_some(());
        while view.wait(&futex.2, 0, stopped, |_| ()).0.is_err() {}
        hostile.join().unwrap();
        control.join().unwrap();
    });
}
