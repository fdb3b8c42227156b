use super::*;
use nervure_linkemu::{Queue, Settings};

fn channel(megabits: u64, one_way_millis: f64, queue_millis: u64, loss: f64) -> Settings {
    Settings {
        rate_bits_per_second: Some(megabits * 1_000_000),
        queue: Queue::Time(Duration::from_millis(queue_millis)),
        delay: Duration::from_secs_f64(one_way_millis * 1e-3),
        loss,
        ..Settings::default()
    }
}

fn secs(value: f64) -> Duration {
    Duration::from_secs_f64(value)
}

#[test]
#[ignore = "for looking at"]
fn explore() {
    let arg = |name: &str, default: f64| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let settings = channel(
        arg("MBIT", 300.0) as u64,
        arg("RTT", 2.0) / 2.0,
        arg("QUEUE", 100.0) as u64,
        arg("LOSS", 0.0),
    );
    let settings = Settings { jitter: secs(arg("JITTER", 0.0) * 1e-3), ..settings };
    let duplex = if arg("HALF", 0.0) > 0.0 { Duplex::Half } else { Duplex::Full };
    let mut schedule = Schedule::from(settings);
    if arg("STEP", 0.0) > 0.0 {
        schedule = schedule.during(secs(3.0), secs(3.0), |s| {
            s.rate_bits_per_second = Some(arg("STEP", 0.0) as u64 * 1_000_000)
        });
    }
    if arg("RTTSTEP", 0.0) > 0.0 {
        schedule = schedule.change(secs(3.0), |s| s.delay = secs(arg("RTTSTEP", 0.0) * 0.5e-3));
    }
    if arg("OUTAGE", 0.0) > 0.0 {
        schedule = schedule.outage(secs(3.0), secs(arg("OUTAGE", 0.0)));
    }
    let flows = arg("FLOWS", 1.0) as usize;
    let hosts = if arg("ROBOTS", 0.0) > 0.0 { flows + 1 } else { 2 };
    let mut sim = Simulation::new(duplex, arg("SEED", 1.0) as u64, vec![schedule; hosts]);
    let demand = match arg("SAMPLE", 0.0) {
        0.0 => Demand::Greedy,
        packets => Demand::Samples { packets: packets as u64, period: secs(1.0 / 30.0) },
    };
    for flow in 0..flows {
        let starts = secs(arg("FIRST", 0.0) + flow as f64 * arg("STAGGER", 0.5));
        match arg("ROBOTS", 0.0) > 0.0 {
            true => sim.link(flow + 1, 0, starts, demand),
            false => sim.link(0, 1, starts, demand),
        };
    }
    let cubics = arg("CUBIC", 0.0) as usize;
    for _ in 0..cubics {
        sim.cubic(0, 1, secs(arg("CUBICAT", 2.0)));
    }
    let end = arg("END", 8.0);
    let step = arg("EVERY", 0.25);
    let mut next = step;
    sim.run_watched(secs(end), |now, sim| {
        if now.as_secs_f64() >= next {
            print!("{next:6.2}");
            let skip = arg("SKIP", 0.0) as usize;
            for flow in (skip..flows.min(skip + 3)).chain(flows..flows + cubics) {
                print!(" | {:6.1} Mb", sim.megabits(flow, next - step, next));
                if flow < flows {
                    let s = sim.rate(flow).status();
                    print!(
                        " r {:6.1} bn {:6.1} q {:5.1} rtt {:5.1} p {:.2} {}{}",
                        s.bytes_per_second * 8e-6,
                        s.bottleneck_bytes_per_second * 8e-6,
                        s.queue_delay.as_secs_f64() * 1e3,
                        s.rtt.as_secs_f64() * 1e3,
                        s.loss,
                        sim.rate(flow).control.phase_name(),
                        if s.competing { "!" } else { " " }
                    );
                }
            }
            println!();
            next += step;
        }
    });
    let half = end / 2.0;
    for flow in 0..flows + cubics {
        println!(
            "flow {flow}: {:.1} Mbit/s in the second half, delay p50 {:.1} p99 {:.1} ms",
            sim.megabits(flow, half, end),
            sim.delay_millis(flow, half, end, 50.0),
            sim.delay_millis(flow, half, end, 99.0)
        );
    }
    let rates: Vec<f64> = (0..flows).map(|flow| sim.megabits(flow, half, end)).collect();
    println!("total {:.1}, Jain {:.3}, {rates:.1?}", rates.iter().sum::<f64>(), jain(&rates));
}

#[test]
fn a_flow_fills_a_clean_channel_and_recovers_from_an_outage() {
    let settings = channel(300, 2.0, 100, 0.0);
    let schedule = Schedule::from(settings).outage(secs(3.0), secs(2.0));
    let mut sim = Simulation::new(Duplex::Full, 1, [schedule.clone(), schedule]);
    let flow = sim.link(0, 1, secs(0.0), Demand::Greedy);
    sim.run_until(secs(6.0));
    assert!(sim.megabits(flow, 1.0, 3.0) > 0.97 * 300.0);
    assert!(sim.delay_millis(flow, 1.0, 3.0, 99.0) < 12.0);
    let recovery = sim.time_to_reach(flow, 150.0, 5.0);
    assert!(recovery < 0.1, "{recovery} s until half the channel is used");
}
