//! Judges the link on a population of channels, on the virtual clock.
//!
//! `cargo run --release -p nervure-link --example population -- --help` lists the options.

mod ideal;
#[expect(dead_code, reason = "machines of the population do not pause")]
mod machine;
#[expect(dead_code, reason = "the tests close streams and replace peers")]
mod peer;
mod score;
mod trial;

use std::collections::BTreeMap;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nervure_linkemu::population::{self, Channel};
use score::{Factor, Score, percentile, score};

const HELP: &str = "usage: population [--seeds development:200] [--jobs 2] [--worst 15] [--json]
       population --seed N [-v]

Runs the channels of these seeds with the whole link, scores each, and prints the mean and low percentiles of each
factor, then the worst channels. `--seeds` is development:COUNT, report:COUNT (for the report only: nothing is tuned on
them) or FROM..TO. --json prints one object for each channel in place of the tables. --seed runs one channel;
-v prints what the rate law did in each second. Exit code 1: a run panicked.";

const WHOLE_RUN: Duration = Duration::from_secs(3600);

struct Arguments {
    seeds: Vec<u64>,
    one: bool,
    verbose: bool,
    json: bool,
    jobs: usize,
    worst: usize,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help") {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    let arguments = parse(&words).map_err(|error| format!("{error}\n\n{HELP}"))?;
    let results = measure(&arguments);
    let panicked: Vec<_> = results.iter().filter(|(_, row)| row.is_none()).collect();
    let rows: BTreeMap<u64, &Row> = results
        .iter()
        .filter_map(|(seed, row)| Some((*seed, row.as_ref()?)))
        .collect();
    if arguments.json {
        rows.values().for_each(|row| println!("{}", row.json()));
    } else if arguments.one {
        rows.values().for_each(|row| print!("{}", row.text()));
    } else {
        print!("{}", table(&rows, arguments.worst));
    }
    for (seed, _) in &panicked {
        eprintln!("seed {seed} panicked: {}", Channel::draw(**seed));
    }
    Ok(if panicked.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn parse(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        seeds: population::development(200).collect(),
        one: false,
        verbose: false,
        json: false,
        jobs: 2,
        worst: 15,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-v" => arguments.verbose = true,
            "--json" => arguments.json = true,
            "--seeds" | "--seed" | "--jobs" | "--worst" => {
                let value = words
                    .next()
                    .ok_or_else(|| format!("{word}: expected a value"))?;
                match word.as_str() {
                    "--seeds" => arguments.seeds = seeds(value)?,
                    "--seed" => (arguments.seeds, arguments.one) = (vec![number(value)?], true),
                    "--jobs" => arguments.jobs = number(value)?.max(1) as usize,
                    _ => arguments.worst = number(value)? as usize,
                }
            }
            _ => return Err(format!("unknown option `{word}`")),
        }
    }
    Ok(arguments)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("expected a number, got `{text}`"))
}

fn seeds(text: &str) -> Result<Vec<u64>, String> {
    if let Some((from, to)) = text.split_once("..") {
        return Ok((number(from)?..number(to)?).collect());
    }
    match text.split_once(':') {
        Some(("development", count)) => Ok(population::development(number(count)?).collect()),
        Some(("report", count)) => Ok(population::report(number(count)?).collect()),
        _ => Err(format!(
            "--seeds: expected development:N, report:N or A..B, got `{text}`"
        )),
    }
}

/// Runs the channels; `None` for one that panicked.
fn measure(arguments: &Arguments) -> BTreeMap<u64, Option<Row>> {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(BTreeMap::new());
    let interval = if arguments.verbose {
        Duration::from_secs(1)
    } else {
        WHOLE_RUN
    };
    let work = || {
        while let Some(seed) = arguments.seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = catch_unwind(AssertUnwindSafe(|| {
                let channel = Channel::draw(*seed);
                let score = score(&channel, interval);
                if arguments.verbose {
                    print!("{}", trace(&channel, &score));
                }
                Row::new(channel, &score)
            }));
            let mut rows = rows.lock().expect("no thread panics with the lock");
            rows.insert(*seed, row.ok());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(work);
        }
    });
    rows.into_inner().expect("all threads have ended")
}

/// What is printed of a channel.
struct Row {
    channel: Channel,
    value: f64,
    factors: BTreeMap<Factor, f64>,
    figures: String,
    json: String,
}

impl Row {
    fn new(channel: Channel, score: &Score) -> Self {
        let [p50, p95, ideal_p50, ideal_p95] = score.millis;
        let figures = format!(
            "delivered {:.3} of the possible ({:.3} of the capacity), p50 {p50:.1} ms (ideal {ideal_p50:.1}), p95 {p95:.1} ms \
             (ideal {ideal_p95:.1}), {:.2} bytes sent for each delivered",
            score.delivered, score.of_capacity, score.bytes
        );
        let finite = |value: f64| {
            if value.is_finite() {
                format!("{value:.4}")
            } else {
                "null".into()
            }
        };
        let factors: Vec<String> = score
            .factors
            .iter()
            .map(|(factor, value)| format!("\"{}\":{value:.4}", factor.name()))
            .collect();
        let json = format!(
            "\"delivered_of_possible\":{},\"delivered_of_capacity\":{},\"p50_ms\":{},\"p95_ms\":{},\"ideal_p50_ms\":{},\"ideal_p95_ms\":{},\
             \"bytes_per_byte\":{},\"factors\":{{{}}}",
            finite(score.delivered),
            finite(score.of_capacity),
            finite(p50),
            finite(p95),
            finite(ideal_p50),
            finite(ideal_p95),
            finite(score.bytes),
            factors.join(",")
        );
        let (value, factors) = (score.value(), score.factors.clone());
        Self {
            channel,
            value,
            factors,
            figures,
            json,
        }
    }

    fn json(&self) -> String {
        // A description has neither quotes nor backslashes.
        format!(
            "{{\"seed\":{},\"score\":{:.4},{},\"channel\":\"{}\"}}",
            self.channel.seed, self.value, self.json, self.channel
        )
    }

    fn text(&self) -> String {
        let factors = self
            .factors
            .iter()
            .map(|(factor, value)| format!("{} {value:.2}", factor.name()));
        let factors: Vec<_> = factors.collect();
        format!(
            "seed {}: {:.3} ({})\n    {}\n    {}\n",
            self.channel.seed,
            self.value,
            factors.join(", "),
            self.channel,
            self.figures
        )
    }
}

fn table(rows: &BTreeMap<u64, &Row>, worst: usize) -> String {
    let mut text = "| factor | channels | mean | 5th percentile | 25th percentile |\n".to_owned();
    text.push_str("| :--- | ---: | ---: | ---: | ---: |\n");
    let mut line = |name: &str, mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let [low, quarter] = [0.05, 0.25].map(|share| percentile(&values, share, f64::NAN));
        let count = values.len();
        text.push_str(&format!(
            "| {name} | {count} | {mean:.3} | {low:.3} | {quarter:.3} |\n"
        ));
    };
    for factor in Factor::ALL {
        let values = rows
            .values()
            .filter_map(|row| row.factors.get(&factor).copied());
        line(factor.name(), values.collect());
    }
    line("**score**", rows.values().map(|row| row.value).collect());
    let mut order: Vec<&&Row> = rows.values().collect();
    order.sort_by(|a, b| a.value.total_cmp(&b.value));
    text.push('\n');
    order
        .iter()
        .take(worst)
        .for_each(|row| text.push_str(&row.text()));
    text
}

/// What the link did in each second.
fn trace(channel: &Channel, score: &Score) -> String {
    let mut text = format!("seed {}: {channel}\n", channel.seed);
    text.push_str(
        "      s | capacity possible delivered | rate bottleneck Mbit/s |  rtt queue ms |  loss | flight kB | \
         queued dropped | others Mbit/s | phase\n",
    );
    let end = score
        .trial
        .snapshots
        .last()
        .map_or(Duration::ZERO, |last| last.at);
    let capacity = channel.deliverable_bits(end);
    for pair in score.trial.snapshots.windows(2) {
        let [before, after] = pair else { continue };
        let Some(status) = after.status else { continue };
        let seconds = (after.at - before.at).as_secs_f64();
        let megabits = |bytes: f64| 8e-6 * bytes / seconds;
        let between = |at: Duration| before.at < at && at <= after.at;
        let ideal = score
            .ideal
            .iter()
            .filter(|served| between(served.arrived))
            .count();
        let steps = before.at.as_millis() as usize..after.at.as_millis() as usize;
        let arrived = |socket: usize| after.payload_bytes[socket] - before.payload_bytes[socket];
        let others: Vec<_> = (1..after.payload_bytes.len())
            .map(|socket| format!("{:.1}", megabits(arrived(socket) as f64)))
            .collect();
        let path = status.path;
        let phase = match (path.silent, path.starting, path.competing) {
            (true, ..) => "silent",
            (_, true, _) => "starting",
            (.., true) => "competing",
            _ => "steady",
        };
        text.push_str(&format!(
            "{:7.2} | {:8.2} {:8.2} {:9.2} | {:8.2} {:8.2} | {:7.1} {:7.1} | {:4.1} % | {:8.1} | {:6} {:6} | {} | {phase}\n",
            after.at.as_secs_f64(),
            capacity[steps].iter().sum::<f64>() / seconds / 1e6,
            megabits((ideal * channel.load.sample_bytes) as f64),
            megabits(arrived(0) as f64),
            8e-6 * path.bytes_per_second,
            8e-6 * path.bottleneck_bytes_per_second,
            path.rtt.as_secs_f64() * 1e3,
            path.queue_delay.as_secs_f64() * 1e3,
            100.0 * path.loss,
            path.in_flight_bytes as f64 / 1e3,
            after.queued,
            after.dropped.packets - before.dropped.packets,
            others.join(" "),
        ));
    }
    text
}
