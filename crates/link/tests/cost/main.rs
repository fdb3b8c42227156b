//! Bounds on the cost of streams and floods, by counting. `cargo run --release -p nervure-link
//! --example cost` prints the cost.

#[expect(dead_code, reason = "times are for the report")]
mod idle;
#[expect(dead_code, reason = "times are for the report")]
mod measure;

/// A single test, as the heap of the whole process is counted.
#[test]
fn streams_and_floods_cost_no_more_than_this() {
    let cost = measure::streams(2000, 2);
    assert_eq!((cost.sent, cost.delivered), (4000, 4000), "{cost:?}");
    assert_eq!(cost.idle_wake_ups, 0, "{cost:?}");
    assert!(
        cost.sender_bytes <= 1200 && cost.receiver_bytes <= 1000,
        "{cost:?}"
    );
    assert!(cost.sending_bytes <= 800, "{cost:?}");

    // Opening this many takes several times the credit of control messages, which is fixed.
    let cost = measure::streams(12_000, 1);
    assert_eq!(
        (cost.sent, cost.delivered, cost.idle_wake_ups),
        (12_000, 12_000, 0),
        "{cost:?}"
    );

    // An idle peer costs a packet and its answer a second.
    let cost = idle::idle_peers(40, std::time::Duration::from_secs(20));
    assert!(
        cost.packets <= 40.0 * 2.5 && cost.wake_ups <= 40.0 * 4.0,
        "{cost:?}"
    );

    for cost in [
        measure::spoofed_handshakes(600),
        measure::replayed_handshake(2000),
        measure::garbage(2000),
    ] {
        assert!(cost.peak_bytes <= 1 << 20, "{cost:?}");
        assert!(cost.half_open <= 64 && cost.answered <= 3.0, "{cost:?}");
    }
}
