//! Judges the link on a population of channels, on the virtual clock.
//!
//! `cargo run --release -p nervure-link --example population -- --help` lists the options.

mod ideal;
#[expect(dead_code, reason = "machines of the population do not pause")]
mod machine;
#[expect(dead_code, reason = "the tests close streams and replace peers")]
mod peer;
mod queues;
mod rfc;
mod score;
mod trial;

use std::collections::BTreeMap;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nervure_link::rate::Constants;
use nervure_link::session::SessionConfig;
use nervure_linkemu::population::{self, Channel, Flow, FlowKind};
use score::{Factor, Score, percentile, score};

const HELP: &str = "usage: population [--seeds development:200] [--jobs 2] [--worst 15] [--json] [--set NAME=VALUE]..
       population --seed N [-v]
       population --rfc | --queues [--only TEXT] [--seeds 1..2] [-v]
       population --ablate | --sensitivity [--seeds development:60] [--jobs 2]

Runs the channels of these seeds with the whole link, scores each, and prints the mean and low percentiles of each
factor, then the worst channels. `--seeds` is development:COUNT, report:COUNT (for the report only: nothing is tuned on
them) or FROM..TO. --json prints one object for each channel in place of the tables. --seed runs one channel;
-v prints what the rate law did in each second.
--set changes a constant of the rate law. --ablate switches off one rule of the law after the other, and --sensitivity halves and
doubles each constant; both print the mean score and factors of each run over the seeds.
--rfc runs the test cases of RFC 8867 and RFC 8869 instead, --queues channels with short queues, with seed 1 or each of the
seeds; both print the rates of the flows in the last quarter, too. Exit code 1: a run panicked.";

struct Arguments {
    channels: Vec<Channel>,
    one: bool,
    verbose: bool,
    json: bool,
    jobs: usize,
    worst: usize,
    config: SessionConfig,
    variants: Option<fn() -> Vec<Variant>>,
}

/// The law with other constants.
struct Variant {
    name: String,
    constants: Constants,
}

/// Rules, and the values of constants with which they do nothing.
const RULES: [(&str, &[(&str, f64)]); 13] = [
    ("drains of the queue", &[("drain_period", 1e9)]),
    (
        "drains of a whole round trip",
        &[("deep_drain_period", 1e9), ("first_deep_drain", 1e9)],
    ),
    ("drains of a queue far above its target", &[("above", 1e9)]),
    (
        "a share claimed beside a flow that fills the queue",
        &[("ours", 0.0)],
    ),
    (
        "no claim beside flows that do not heed loss",
        &[("not_loss_based", 1e9)],
    ),
    (
        "a claim kept while the other flow recovers",
        &[("back_after", 0.0)],
    ),
    (
        "rate never far above what arrives",
        &[("cap", 1e9), ("cap_at_excess", 1e9)],
    ),
    ("lower limit at excess loss", &[("cap_at_excess", 1.1)]),
    ("faster start on a long path", &[("first_rate_growth", 0.0)]),
    (
        "doubt in the end of the start",
        &[("doubt", 1.0), ("refuted", 1e9)],
    ),
    ("end of the start at excess loss", &[("start_excess", 1e9)]),
    ("less where the path passes less", &[("overloaded", 1e9)]),
    ("marks heeded", &[("marked", 1.0)]),
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help") {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    let arguments = parse(&words).map_err(|error| format!("{error}\n\n{HELP}"))?;
    if let Some(variants) = arguments.variants {
        return Ok(compare(arguments, &variants()));
    }
    let results = measure(&arguments);
    let rows: Vec<&Row> = results.iter().flatten().collect();
    if arguments.json {
        rows.iter().for_each(|row| println!("{}", row.json()));
    } else if arguments.one {
        rows.iter().for_each(|row| print!("{}", row.text()));
    } else {
        print!("{}", table(&rows, arguments.worst));
    }
    let panicked = arguments.channels.iter().zip(&results);
    let panicked = panicked.filter(|(_, row)| row.is_none());
    panicked
        .clone()
        .for_each(|(channel, _)| eprintln!("seed {} panicked: {channel}", channel.seed));
    Ok(match panicked.count() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn parse(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        channels: Vec::new(),
        one: false,
        verbose: false,
        json: false,
        jobs: 2,
        worst: 15,
        config: SessionConfig::default(),
        variants: None,
    };
    let mut seeds = None;
    let (mut cases, mut only) = (None, String::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-v" => arguments.verbose = true,
            "--json" => arguments.json = true,
            "--rfc" => cases = Some(rfc::cases()),
            "--queues" => cases = Some(queues::cases()),
            "--ablate" => arguments.variants = Some(ablations),
            "--sensitivity" => arguments.variants = Some(sensitivities),
            "--seeds" | "--seed" | "--jobs" | "--worst" | "--only" | "--set" => {
                let value = words
                    .next()
                    .ok_or_else(|| format!("{word}: expected a value"))?;
                match word.as_str() {
                    "--seeds" => seeds = Some(named_seeds(value)?),
                    "--only" => only.clone_from(value),
                    "--set" => set(&mut arguments.config.rate.constants, value)?,
                    "--seed" => (seeds, arguments.one) = (Some(vec![number(value)?]), true),
                    "--jobs" => arguments.jobs = number(value)?.max(1) as usize,
                    _ => arguments.worst = number(value)? as usize,
                }
            }
            _ => return Err(format!("unknown option `{word}`")),
        }
    }
    arguments.one |= cases.is_some();
    arguments.channels = match (cases, seeds) {
        (Some(cases), seeds) => {
            let seeds = seeds.unwrap_or_else(|| vec![1]);
            let with_seed = |case: &Channel, seed| Channel {
                seed,
                ..case.clone()
            };
            let runs = |case: Channel| {
                seeds
                    .iter()
                    .map(move |seed| with_seed(&case, *seed))
                    .collect::<Vec<_>>()
            };
            cases.into_iter().flat_map(runs).collect()
        }
        (None, seeds) => {
            let seeds = seeds.unwrap_or_else(|| population::development(200).collect());
            seeds.into_iter().map(Channel::draw).collect()
        }
    };
    arguments
        .channels
        .retain(|channel| channel.to_string().contains(&only));
    Ok(arguments)
}

/// `NAME=VALUE`.
fn set(constants: &mut Constants, text: &str) -> Result<(), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("--set: expected NAME=VALUE, got `{text}`"))?;
    let value = value
        .parse()
        .map_err(|_| format!("--set: expected a number, got `{value}`"))?;
    let mut all = constants.by_name();
    let named = all.iter_mut().find(|(known, _)| *known == name);
    let Some((_, constant)) = named else {
        let names: Vec<_> = all.iter().map(|(known, _)| *known).collect();
        return Err(format!(
            "--set: no constant `{name}`, there are {}",
            names.join(", ")
        ));
    };
    **constant = value;
    Ok(())
}

fn number(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("expected a number, got `{text}`"))
}

fn named_seeds(text: &str) -> Result<Vec<u64>, String> {
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

fn ablations() -> Vec<Variant> {
    let without = |(name, sets): &(&str, &[(&str, f64)])| {
        let mut constants = Constants::default();
        for (wanted, value) in *sets {
            let mut all = constants.by_name();
            let named = all.iter_mut().find(|(name, _)| name == wanted);
            *named.expect("there is such a constant").1 = *value;
        }
        Variant {
            name: format!("without: {name}"),
            constants,
        }
    };
    RULES.iter().map(without).collect()
}

fn sensitivities() -> Vec<Variant> {
    let count = Constants::default().by_name().len();
    let changed = |(number, factor): (usize, f64)| {
        let mut constants = Constants::default();
        let mut all = constants.by_name();
        let (name, value) = &mut all[number];
        **value *= factor;
        let name = format!("{name} = {}", **value);
        Variant { name, constants }
    };
    let numbers = (0..count).flat_map(|number| [(number, 0.5), (number, 2.0)]);
    numbers.map(changed).collect()
}

/// Prints the mean score and factors of the law, and of each variant.
fn compare(mut arguments: Arguments, variants: &[Variant]) -> ExitCode {
    let names = Factor::ALL.map(Factor::name).join(" | ");
    println!(
        "| | score | {names} |\n| :--- | ---: |{}",
        " ---: |".repeat(Factor::ALL.len())
    );
    let law = Variant {
        name: "the law".into(),
        constants: arguments.config.rate.constants,
    };
    let mut code = ExitCode::SUCCESS;
    for variant in std::iter::once(&law).chain(variants) {
        arguments.config.rate.constants = variant.constants;
        let results = measure(&arguments);
        let rows: Vec<&Row> = results.iter().flatten().collect();
        if rows.len() < results.len() {
            eprintln!(
                "{}: {} runs panicked",
                variant.name,
                results.len() - rows.len()
            );
            code = ExitCode::FAILURE;
        }
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let score = mean(rows.iter().map(|row| row.value).collect());
        let of = |factor| {
            let values = rows.iter().filter_map(|row| row.factors.get(&factor));
            format!("{:.3}", mean(values.copied().collect()))
        };
        let factors = Factor::ALL.map(of).join(" | ");
        println!("| {} | {score:.3} | {factors} |", variant.name);
    }
    code
}

/// Runs the channels, in order; `None` for one that panicked.
fn measure(arguments: &Arguments) -> Vec<Option<Row>> {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(BTreeMap::new());
    let interval = |channel: &Channel| match arguments.verbose {
        true => Duration::from_secs(1),
        false => channel.length / 4,
    };
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(channel) = arguments.channels.get(number) else {
                break;
            };
            let row = catch_unwind(AssertUnwindSafe(|| {
                let score = score(channel, interval(channel), arguments.config);
                if arguments.verbose {
                    print!("{}", trace(channel, &score));
                }
                Row::new(channel.clone(), &score)
            }));
            let mut rows = rows.lock().expect("no thread panics with the lock");
            rows.insert(number, row.ok());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(work);
        }
    });
    let rows = rows.into_inner().expect("all threads have ended");
    rows.into_values().collect()
}

/// A printed row: the results of a channel.
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
             (ideal {ideal_p95:.1}), {:.2} bytes sent and {:.3} returned for each delivered",
            score.delivered,
            score.of_capacity,
            score.bytes,
            score.returned_bytes()
        ) + &shares(&channel, score);
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

/// The payload rates of the load and the flows in the last quarter of the run, and how fair they are
/// among the flows of the link's own kind that send the same way.
fn shares(channel: &Channel, score: &Score) -> String {
    let own = |flow: &&Flow| matches!(flow.kind, FlowKind::Own(_)) && !flow.is_reverse;
    let Some(last) = score
        .trial
        .snapshots
        .last()
        .filter(|_| !channel.flows.is_empty())
    else {
        return String::new();
    };
    let from = last.at.saturating_sub(channel.length / 4);
    let before = score
        .trial
        .snapshots
        .iter()
        .rfind(|snapshot| snapshot.at <= from);
    let Some(before) = before else {
        return String::new();
    };
    let seconds = (last.at - before.at).as_secs_f64();
    let rate = |socket: usize| {
        8e-6 * (last.payload_bytes[socket] - before.payload_bytes[socket]) as f64 / seconds
    };
    let rates: Vec<_> = (0..=channel.flows.len())
        .map(|n| format!("{:.2}", rate(n)))
        .collect();
    let mut text = format!("\n    at the end {} Mbit/s", rates.join(", "));
    if channel.flows.iter().any(|flow| own(&flow)) {
        let flows = channel
            .flows
            .iter()
            .enumerate()
            .filter(|(_, flow)| own(flow));
        let rates = std::iter::once(0)
            .chain(flows.map(|(number, _)| number + 1))
            .map(rate);
        let (count, sum, squares) = rates.fold((0.0, 0.0, 0.0), |(count, sum, squares), rate| {
            (count + 1.0, sum + rate, squares + rate * rate)
        });
        // Jain, Chiu, Hawe, DEC-TR-301, 1984.
        text.push_str(&format!(", Jain {:.2}", sum * sum / (count * squares)));
    }
    text
}

fn table(rows: &[&Row], worst: usize) -> String {
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
            .iter()
            .filter_map(|row| row.factors.get(&factor).copied());
        line(factor.name(), values.collect());
    }
    line("**score**", rows.iter().map(|row| row.value).collect());
    let mut order = rows.to_vec();
    order.sort_by(|a, b| a.value.total_cmp(&b.value));
    text.push('\n');
    order
        .iter()
        .take(worst)
        .for_each(|row| text.push_str(&row.text()));
    text
}

/// The state of the link in each second.
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
