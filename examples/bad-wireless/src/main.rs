//! Sends a video over the link, frame by frame.
//!
//! - `bad-wireless key KEY_FILE` prints the public key of a host.
//! - `bad-wireless send KEY_FILE RECEIVER_KEY ADDRESS VIDEO FRAME_BYTES RATE_HZ COUNT` sends
//!   `COUNT` frames of a raw video, which repeats, and prints the status of the link ten times a
//!   second.
//! - `bad-wireless receive KEY_FILE SENDER_KEY ADDRESS OUTPUT` writes every frame with its number
//!   and times.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use nervure_link::carrier::KeyPair;
use nervure_link::qos::{Delivery, Qos};
use nervure_link::shell::{Link, LinkConfig, LinkEvent, Peer};
use rustix::time::{ClockId, clock_gettime};

/// Age beyond which a frame is of no use to a driver.
const LIFESPAN: Duration = Duration::from_millis(400);
/// Longest wait for the end of the stream to reach the receiver.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
const STATUS_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for a connection, or for the next frame: the outage is shorter.
const FRAME_TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["key", key] => println!("{}", KeyPair::load_or_generate(Path::new(key))?.public()),
        [
            "send",
            key,
            receiver,
            address,
            video,
            frame_bytes,
            rate_hz,
            count,
        ] => {
            let config = LinkConfig::new(
                "0.0.0.0:0".parse()?,
                KeyPair::load_or_generate(Path::new(key))?,
            );
            let link = Link::bind(config)?;
            let peer = link.connect(address.parse()?, receiver.parse()?)?;
            let frames = std::fs::read(video)?;
            let schedule = Schedule {
                rate_hz: rate_hz.parse()?,
                count: count.parse()?,
            };
            send(
                &link,
                &peer,
                frames.chunks_exact(frame_bytes.parse()?),
                &schedule,
            )?;
        }
        ["receive", key, sender, address, output] => {
            let mut config =
                LinkConfig::new(address.parse()?, KeyPair::load_or_generate(Path::new(key))?);
            config.allow.push(sender.parse()?);
            receive(&Link::bind(config)?, BufWriter::new(File::create(output)?))?;
        }
        _ => return Err("expected `key ..`, `send ..` or `receive ..`: see run.py".into()),
    }
    Ok(())
}

struct Schedule {
    rate_hz: f64,
    count: u64,
}

/// Sends each frame when it is due, whether earlier ones have arrived or not.
fn send<'a>(
    link: &Link,
    peer: &Peer,
    frames: impl Iterator<Item = &'a [u8]> + Clone,
    schedule: &Schedule,
) -> Result<(), Box<dyn Error>> {
    let video = peer.open(
        "video",
        Qos {
            lifespan: Some(LIFESPAN),
            ..Qos::new(Delivery::keep_last(1))
        },
    )?;
    while !matches!(
        link.next_event(FRAME_TIMEOUT),
        Some(LinkEvent::Connected { .. })
    ) {}
    let start = monotonic();
    let mut next_status = start;
    for (number, frame) in (0..schedule.count).zip(frames.cycle()) {
        let due = start + Duration::from_secs_f64(number as f64 / schedule.rate_hz);
        while monotonic() < due {
            std::thread::sleep(due.min(next_status).saturating_sub(monotonic()));
            if monotonic() >= next_status {
                print_status(peer, next_status - start);
                next_status += STATUS_INTERVAL;
            }
        }
        let mut sample = (due.as_nanos() as u64).to_le_bytes().to_vec();
        sample.extend(number.to_le_bytes());
        sample.extend(frame);
        video.send(sample)?;
    }
    video.flush(LIFESPAN);
    if let Some(counters) = video.counters() {
        eprintln!(
            "of {} frames {} were delivered",
            schedule.count, counters.delivered
        );
    }
    // Closing the stream ends the receiver's loop.
    drop(video);
    peer.flush(CLOSE_TIMEOUT);
    Ok(())
}

/// Prints the status of the link as a line of JSON.
fn print_status(peer: &Peer, at: Duration) {
    if let Some(status) = peer.status() {
        let path = status.path;
        println!(
            "{{\"seconds\":{:.3},\"loss\":{:.4},\"rtt_ms\":{:.3},\"rate_mbit\":{:.3},\"silent\":{}}}",
            at.as_secs_f64(),
            path.loss,
            path.rtt.as_secs_f64() * 1e3,
            path.bytes_per_second * 8e-6,
            path.silent,
        );
    }
}

/// Writes each frame after a header of four 64-bit words: its number, the time at which it was due,
/// the time of its arrival (nanoseconds) and its length in bytes.
fn receive(link: &Link, mut output: impl Write) -> Result<(), Box<dyn Error>> {
    let video = loop {
        if let LinkEvent::Opened { stream, .. } = link
            .next_event(FRAME_TIMEOUT)
            .ok_or("no sender connected")?
        {
            break stream;
        }
    };
    let mut last_arrival = monotonic();
    // A stream that has ended has no counters.
    while video.counters().is_some() && monotonic() < last_arrival + FRAME_TIMEOUT {
        let Some(sample) = video.receive(STATUS_INTERVAL) else {
            continue;
        };
        last_arrival = monotonic();
        let now = monotonic().as_nanos() as u64;
        let payload = &sample.payload;
        let (Some(due), Some(number), Some(frame)) =
            (payload.get(..8), payload.get(8..16), payload.get(16..))
        else {
            return Err(format!("a sample of {} bytes is not a frame", payload.len()).into());
        };
        output.write_all(number)?;
        output.write_all(due)?;
        output.write_all(&now.to_le_bytes())?;
        output.write_all(&(frame.len() as u64).to_le_bytes())?;
        output.write_all(frame)?;
    }
    output.flush()?;
    Ok(())
}

/// The clock that both hosts share: they are on one machine.
fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}
