//! Measures the cost of sending and receiving a sample in a program that has slept: the node of
//! the lab's experiment `cold`.
//!
//! The node sends to itself. Before each send and each receive it sleeps, and then writes to more
//! memory than the caches of a core hold, as other programs of a robot do meanwhile. No process has
//! to be woken, so that the library alone is measured.

use std::hint::black_box;
use std::time::{Duration, Instant};

use nervure_node::{Event, Node};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [samples, bytes, sleep_micros, swept_bytes] = &arguments[..] else {
        return Err("expected: SAMPLES BYTES SLEEP_MICROSECONDS SWEPT_BYTES".into());
    };
    let (samples, bytes) = (samples.parse::<usize>()?, bytes.parse::<usize>()?);
    let sleep = Duration::from_micros(sleep_micros.parse()?);
    let mut swept = vec![0_u8; swept_bytes.parse()?];
    let mut cool_caches = || {
        if !sleep.is_zero() {
            std::thread::sleep(sleep);
        }
        swept
            .iter_mut()
            .step_by(64)
            .for_each(|byte| *byte = byte.wrapping_add(1));
        black_box(&mut swept);
    };

    let mut node = Node::connect()?;
    let publisher = node.output("out")?;
    let (mut loans, mut sends, mut takes) = (Vec::new(), Vec::new(), Vec::new());
    while takes.len() < samples {
        cool_caches();
        let begin = Instant::now();
        let mut loan = publisher.loan::<u8>(&[bytes])?;
        loan.fill(takes.len() as u8);
        let filled = Instant::now();
        loan.send()?;
        sends.push(filled.elapsed());
        loans.push(filled - begin);
        loop {
            cool_caches();
            let begin = Instant::now();
            match node.try_next() {
                Some(Event::Input { sample, .. }) => {
                    takes.push(begin.elapsed());
                    black_box(sample.bytes());
                    break;
                }
                Some(Event::Stop { .. }) => return Err("stopped before the end".into()),
                Some(_) | None => {}
            }
        }
        // The check that a node makes before it sleeps.
        black_box(node.try_next());
    }
    for (name, mut times) in [("loan", loans), ("send", sends), ("take", takes)] {
        times.sort_unstable();
        let nanos = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos();
        println!("{name} {} {}", nanos(0.5), nanos(0.99));
    }
    Ok(())
}
