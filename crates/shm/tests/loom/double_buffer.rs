//! Readers get consistent copies, and never an older one than before.

use crate::check;
use crate::lock_free::double_buffer::DoubleBuffer;
use crate::lock_free::sync::AtomicU64;
use loom::sync::Arc;
use loom::thread;

#[test]
fn readers_get_consistent_copies_and_never_older_ones() {
    check(4, || {
        let memory = Arc::new((AtomicU64::new(0), [0, 1, 2, 3].map(|_| AtomicU64::new(0))));
        let view = |memory: &(AtomicU64, [AtomicU64; 4])| -> [u64; 2] {
            let (even, odd) = memory.1.split_at(2);
            DoubleBuffer {
                version: &memory.0,
                copies: [even, odd],
            }
            .read()
        };
        let writer = memory.clone();
        let thread = thread::spawn(move || {
            for value in 1..=3 {
                let (even, odd) = writer.1.split_at(2);
                DoubleBuffer {
                    version: &writer.0,
                    copies: [even, odd],
                }
                .write(&[value, value]);
            }
        });
        let (first, second) = (view(&memory), view(&memory));
        thread.join().unwrap();
        assert!(
            first[0] == first[1] && second[0] == second[1],
            "torn: {first:?} {second:?}"
        );
        assert!(first[0] <= second[0]);
        assert_eq!(view(&memory), [3, 3]);
    });
}
