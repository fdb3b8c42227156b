//! Runs every cell of the link's targets on the virtual clock, and writes the table.
//!
//! `cargo run --release -p nervure-link --example grid -- --help` lists the options.

mod cells;
#[expect(
    dead_code,
    reason = "only flows of the population have delays of their own"
)]
mod machine;
mod peer;
mod runs;
mod table;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cells::Cell;
use runs::Figures;

const HELP: &str = "usage: grid [--only TEXT]... [--samples 1000] [--seeds 5] [--minutes 120] [--jobs 2] [--out FILE]

Runs the cells whose group and name contain one of the texts, on a virtual clock: the figures are the same on every
machine. Prints each row as soon as it is known, and writes the page to FILE. After that number of minutes no further seed is
begun, and the page reports how many were done. Exit code 1: a target was missed.";

struct Arguments {
    only: Vec<String>,
    samples: u64,
    seeds: u64,
    minutes: u64,
    jobs: usize,
    out: Option<String>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help") {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    let arguments = parse(&words).map_err(|error| format!("{error}\n\n{HELP}"))?;
    let mut cells = cells::cells();
    let named = |cell: &Cell| format!("{}: {}", cell.group, cell.name);
    cells.retain(|cell| {
        arguments.only.is_empty()
            || arguments
                .only
                .iter()
                .any(|text| named(cell).contains(text.as_str()))
    });
    let (figures, seeds) = measure(&cells, &arguments);
    let rows: Vec<_> = cells.iter().zip(figures).collect();
    let missed = rows
        .iter()
        .filter(|(cell, figures)| !table::missed(cell, figures).is_empty())
        .count();
    println!("{}", table::render(&rows));
    println!(
        "{} cells, {seeds} seeds, {missed} missed a target",
        rows.len()
    );
    if let Some(file) = &arguments.out {
        fs::write(file, page(&rows, &arguments, seeds, &words))?;
    }
    Ok(if missed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn parse(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        only: Vec::new(),
        samples: 1000,
        seeds: 5,
        minutes: 120,
        jobs: 2,
        out: None,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{word}: expected a value"))?;
        let number = || {
            value
                .parse()
                .map_err(|_| format!("{word}: expected a number, got `{value}`"))
        };
        match word.as_str() {
            "--only" => arguments.only.push(value.clone()),
            "--samples" => arguments.samples = number()?,
            "--seeds" => arguments.seeds = number()?,
            "--minutes" => arguments.minutes = number()?,
            "--jobs" => arguments.jobs = number()? as usize,
            "--out" => arguments.out = Some(value.clone()),
            _ => return Err(format!("unknown option `{word}`")),
        }
    }
    Ok(arguments)
}

/// The worst of the seeds, cell by cell, and the number of seeds. Threads take one run after the
/// other: all cells with the first seed, then all with the second. A seed that did not finish in
/// time does not count.
fn measure(cells: &[Cell], arguments: &Arguments) -> (Vec<Figures>, u64) {
    let end = Instant::now() + Duration::from_secs(60 * arguments.minutes);
    let runs: Vec<(u64, usize)> = (1..=arguments.seeds)
        .flat_map(|seed| (0..cells.len()).map(move |cell| (seed, cell)))
        .collect();
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<(u64, usize), Figures>> = Mutex::default();
    let work = || {
        while let Some((seed, cell)) = runs.get(next.fetch_add(1, Ordering::Relaxed))
            && (*seed == 1 || Instant::now() < end)
        {
            let figures = cells[*cell].measure(*seed, arguments.samples);
            print!("seed {seed} {}", table::row(&cells[*cell], &figures));
            results
                .lock()
                .expect("no thread has panicked")
                .insert((*seed, *cell), figures);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(work);
        }
    });
    let results = results.into_inner().expect("no thread has panicked");
    let complete = |seed: &u64| (0..cells.len()).all(|cell| results.contains_key(&(*seed, cell)));
    let seeds = (1..=arguments.seeds).take_while(complete).count() as u64;
    let worst = |cell| {
        let runs: Vec<_> = (1..=seeds)
            .map(|seed| results[&(seed, cell)].clone())
            .collect();
        table::worst(&runs)
    };
    ((0..cells.len()).map(worst).collect(), seeds)
}

fn page(rows: &[(&Cell, Figures)], arguments: &Arguments, seeds: u64, words: &[String]) -> String {
    let commit = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .output();
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let commit = commit.unwrap_or_else(|_| "an unknown commit".to_owned());
    let missed = rows
        .iter()
        .filter(|(cell, figures)| !table::missed(cell, figures).is_empty())
        .count();
    let short = match seeds < 5 || arguments.samples < 1000 {
        true => {
            "\n**A short run: it shows where things stand. Claims need five seeds of a thousand samples.**\n"
        }
        false => "",
    };
    format!(
        "# The link, simulated

What the link must reach, and what it does, on a virtual clock: the whole link (sessions, rate control, coding and QUIC
with its encryption) between simulated hosts, over the channel model of the [emulator](../guides/emulated-link.md). The
processor is no part of it: what that costs is in [the link, measured](link.md). The figures are the same on every
machine; this page is written by the command that measures them.

`cargo run --release -p nervure-link --example grid -- {}` at {commit}: {} samples a run, seeds 1 to {}, of each figure
the worst seed. {missed} of {} rows miss a target.
{short}

- *delivered* is the share of the schedule: sample n is due at n / rate whatever became of others. Latencies are from
  when a sample was due. What follows a figure in brackets is its target; where it is missed the figure is bold.
- Loss and delay are those of either direction, and a lost packet has cost its airtime. RTT 2 ms and a queue of 100 ms
  where nothing else is said.
- *of limit* is the delivered payload beside what was offered or the link carries with the loss that the run drew,
  whichever is less. All headers are taken off: of 1500 bytes 1408 are left for the sample.
- *on air* is IP bytes given to the link for each byte delivered.
- Streams are reliable and keep the last ten samples; the last one at 54 Mbit/s and where links share.
{}",
        words.join(" "),
        arguments.samples,
        seeds,
        rows.len(),
        table::render(rows),
    )
}
