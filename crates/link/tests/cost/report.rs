//! Prints the cost of streams and floods at an end of a link: `cargo run --release -p nervure-link
//! --example cost`.

mod idle;
mod measure;

use std::time::Duration;

use measure::FloodCost;

fn main() {
    println!(
        "| streams | sender, bytes each | receiver, bytes each | idle wake-ups in 10 s | while sending at 1 Hz, bytes more each | CPU a sample |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    for count in [100, 1000, 4000, 16_000] {
        let cost = measure::streams(count, 5);
        assert_eq!(cost.sent, cost.delivered);
        println!(
            "| {count} | {} | {} | {} | {} | {:.1} µs |",
            cost.sender_bytes,
            cost.receiver_bytes,
            cost.idle_wake_ups,
            cost.sending_bytes,
            cost.time_per_sample.as_secs_f64() * 1e6
        );
    }
    println!();
    println!(
        "| flood | packets | heap, at most | answered bytes a byte | attempts kept | CPU a packet |"
    );
    println!("| :--- | ---: | ---: | ---: | ---: | ---: |");
    print_flood(
        "first packets of unknown peers",
        &measure::spoofed_handshakes(5000),
    );
    print_flood(
        "one first packet again",
        &measure::replayed_handshake(100_000),
    );
    print_flood("garbage", &measure::garbage(100_000));
    print_idle();
}

fn print_idle() {
    println!();
    println!("| idle peers | wake-ups a second | packets a second | share of a core |");
    println!("| ---: | ---: | ---: | ---: |");
    for count in [1, 100, 1000] {
        let cost = idle::idle_peers(count, Duration::from_secs(20));
        println!(
            "| {count} | {:.0} | {:.0} | {:.2} % |",
            cost.wake_ups,
            cost.packets,
            cost.core * 100.0
        );
    }
}

fn print_flood(name: &str, cost: &FloodCost) {
    println!(
        "| {name} | {} | {} kB | {:.2} | {} | {:.1} µs |",
        cost.packets,
        cost.peak_bytes / 1000,
        cost.answered,
        cost.half_open,
        cost.time_per_packet.as_secs_f64() * 1e6
    );
}
