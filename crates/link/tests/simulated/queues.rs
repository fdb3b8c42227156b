//! Channels with a short queue, alone and beside flows that take loss for congestion, a cellular one and
//! one with fades: samples of 512 KB at 30 Hz, the newest only where nothing else is said.

use std::time::Duration;

use nervure_linkemu::population::{Channel, Flow, FlowKind, History, Load};
use nervure_linkemu::{Bursts, Duplex, Queue, Settings};

/// All cases.
pub fn cases() -> Vec<Channel> {
    let cubic = Flow::new(FlowKind::Cubic);
    let own = Flow::new(FlowKind::Own(LOAD));
    let shared = Channel {
        duplex: Duplex::Half,
        ..case(150, 0, 100, 2, [own, cubic, cubic, cubic, cubic].into())
    };
    let cellular = Channel {
        load: Load {
            sample_bytes: 64_000,
            rate_hz: 10.0,
            ..LOAD
        },
        ..case(10, 3, 100, 80, Vec::new())
    };
    vec![
        case(100, 0, 3, 20, Vec::new()),
        case(54, 10, 3, 2, Vec::new()),
        case(30, 0, 5, 50, Vec::new()),
        case(100, 0, 3, 20, vec![cubic]),
        case(100, 0, 5, 20, vec![cubic]),
        case(30, 0, 10, 20, vec![cubic]),
        case(100, 0, 20, 20, vec![cubic]),
        shared,
        cellular,
        fading(),
    ]
}

/// Fades of 60 ms, a tenth of the time, and the last ten samples.
fn fading() -> Channel {
    let mut channel = case(217, 13, 100, 2, Vec::new());
    for direction in [&mut channel.forward, &mut channel.reverse] {
        let mut settings = *direction.at(Duration::ZERO);
        settings.bursts = Some(Bursts {
            good_mean: Duration::from_millis(540),
            bad_mean: Duration::from_millis(60),
            loss: 1.0,
        });
        *direction = settings.into();
    }
    channel.load.history = History::KeepLast(10);
    channel
        .description
        .push_str(", fades of 60 ms (540 ms good), the last ten samples kept");
    channel
}

const LOAD: Load = Load {
    history: History::KeepLast(1),
    sample_bytes: 512_000,
    rate_hz: 30.0,
};

/// Mbit/s, per cent of loss, and milliseconds of queue and round trip.
fn case(rate: u64, loss: u64, queue: u64, rtt: u64, flows: Vec<Flow>) -> Channel {
    let settings = Settings {
        rate_bits_per_second: Some(rate * 1_000_000),
        loss: loss as f64 / 100.0,
        queue: Queue::Time(Duration::from_millis(queue)),
        delay: Duration::from_millis(rtt) / 2,
        ..Settings::default()
    };
    let beside = match flows.len() {
        0 => String::new(),
        1 => ", beside a Cubic flow".into(),
        _ => ", half-duplex, two links and four Cubic flows".into(),
    };
    Channel {
        seed: 1,
        duplex: Duplex::Full,
        forward: settings.into(),
        reverse: settings.into(),
        flows,
        load: LOAD,
        length: Duration::from_secs(40),
        changes: Vec::new(),
        description: format!(
            "{rate} Mbit/s, {loss} % loss, queue {queue} ms, RTT {rtt} ms{beside}"
        ),
    }
}
