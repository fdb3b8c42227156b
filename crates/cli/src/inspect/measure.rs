//! `nervure topic hz`, `bw` and `delay`: measures the samples of topics.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::mpsc::{Sender, channel},
    time::{Duration, Instant},
};

use nervure_inspect::{
    daemon, format,
    observing::{begin, locate, next_answer},
    threads,
    topics::select_topics,
};
use nervure_node::{
    Event, Observer, binding::SequenceGaps, meter::Meter, running::DaemonConnection,
};
use nervure_protocol::daemon_to_daemon::{Answer, Figures, Request, Statistics};
use serde_json::{Value, json};

use super::{arguments::MeasureArguments, lower_priority};
use crate::{
    failure::Failure,
    output,
    table::{Align, Table},
};

/// Queue depth of the observer, for the time that a report takes.
const QUEUE_DEPTH: u32 = 4096;

/// The measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    Rate,
    Bandwidth,
    Delay,
}

/// Reports until Ctrl-C, the end of the dataflow, or `--count`.
pub fn measure(arguments: &MeasureArguments, what: Quantity) -> Result<ExitCode, Failure> {
    let program = match what {
        Quantity::Rate => "hz",
        Quantity::Bandwidth => "bw",
        Quantity::Delay => "delay",
    };
    let every = ["*".to_owned()];
    let selected = select_topics(
        match arguments.topics.as_slice() {
            [] => &every,
            topics => topics,
        },
        arguments.target.dataflow.as_deref(),
        program,
    )?;
    let dataflow = selected.state.welcome().dataflow.clone();
    let located = locate(selected);
    lower_priority();
    let (sender, reports) = channel();
    // One report of each place belongs to an interval.
    let places = usize::from(located.connection.is_some()) + located.there.len();
    if let Some(connection) = located.connection {
        let mut observer = Observer::open_through(connection, &located.here, QUEUE_DEPTH)?;
        if what == Quantity::Delay {
            // The latency itself is measured: wake up for each sample.
            observer.set_patience(None);
        }
        let (sender, interval) = (sender.clone(), arguments.interval);
        threads::spawn(move || measure_here(observer, &located.here, interval, &sender))?;
    }
    for ((machine, keeper), topics) in located.there {
        let mut daemon = daemon::connect(program)?;
        let request = Request::Measure {
            keeper,
            program: program.to_owned(),
            topics: topics.clone(),
            interval_nanos: u64::try_from(arguments.interval.as_nanos()).unwrap_or(u64::MAX),
        };
        begin(&mut daemon, &machine, request)?;
        let sender = sender.clone();
        threads::spawn(move || measure_there(daemon, &topics, &sender))?;
    }
    drop(sender);
    let mut left = arguments.count.unwrap_or(u64::MAX);
    while left > 0 {
        let mut rows = Vec::new();
        let mut has_ended = false;
        for _ in 0..places {
            match reports.recv() {
                Ok(report) => {
                    let report = report?;
                    has_ended |= report.is_last;
                    let (topics, seconds) = (report.topics.into_iter(), report.seconds);
                    rows.extend(topics.map(|(topic, figures)| (topic, figures, seconds)));
                }
                Err(_) => has_ended = true,
            }
        }
        rows.sort_by(|one, other| one.0.cmp(&other.0));
        let text = match arguments.target.json {
            true => rows
                .iter()
                .map(|(topic, figures, seconds)| {
                    format!("{}\n", json(topic, figures, what, *seconds))
                })
                .collect(),
            false => table(&rows, what).render(None),
        };
        if !rows.is_empty() {
            output::write_or_end(&text)?;
        }
        left -= 1;
        if has_ended {
            note!("{dataflow} has ended");
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The figures of an interval, from one place.
struct Report {
    topics: Vec<(String, Figures)>,
    seconds: f64,
    is_last: bool,
}

/// Measures topics on this machine until the dataflow ends.
fn measure_here(
    mut observer: Observer,
    topics: &[String],
    interval: Duration,
    sender: &Sender<Result<Report, Failure>>,
) {
    let mut meters: BTreeMap<&str, Meter> = topics
        .iter()
        .map(|topic| (topic.as_str(), Meter::default()))
        .collect();
    let mut gaps = SequenceGaps::default();
    let mut begin = Instant::now();
    // Samples of the output's history arrive at once and do not count for its rate.
    let attached_mono = nervure_node::monotonic_nanos();
    loop {
        let until = begin + interval;
        let is_last = loop {
            let wait = until.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                break false;
            }
            match observer.next_timeout(wait) {
                Some(Event::Input { id, sample }) => {
                    let missed = gaps.record(&id, sample.header());
                    if sample.header().publish_mono >= attached_mono
                        && let Some(meter) = meters.get_mut(&*id)
                    {
                        meter.add(&sample, missed, observer.now());
                    }
                }
                Some(Event::Stop { .. }) => break true,
                Some(_) | None => {}
            }
        };
        let seconds = begin.elapsed().as_secs_f64();
        begin = Instant::now();
        let topics = meters.iter_mut();
        let report = Report {
            topics: topics
                .map(|(topic, meter)| ((*topic).to_owned(), meter.take()))
                .collect(),
            seconds,
            is_last,
        };
        if sender.send(Ok(report)).is_err() || is_last {
            return;
        }
    }
}

/// Takes the figures of topics that another machine measures.
fn measure_there(
    mut daemon: DaemonConnection,
    topics: &[String],
    sender: &Sender<Result<Report, Failure>>,
) {
    loop {
        let report = match next_answer(&mut daemon) {
            Ok((
                Answer::Measured {
                    seconds,
                    topics: figures,
                },
                _,
            )) => Ok(Report {
                topics: topics.iter().cloned().zip(figures).collect(),
                seconds,
                is_last: false,
            }),
            Ok((Answer::Ended { topic: None }, _)) => return,
            Ok(_) => continue,
            Err(error) => Err(error.into()),
        };
        let is_last = report.is_err();
        if sender.send(report).is_err() || is_last {
            return;
        }
    }
}

/// Samples sent per second, missed ones included.
fn rate(figures: &Figures, seconds: f64) -> f64 {
    (figures.samples + figures.missed) as f64 / seconds
}

fn bytes_per_second(figures: &Figures, seconds: f64) -> f64 {
    figures.bytes.mean * rate(figures, seconds)
}

fn json(topic: &str, figures: &Figures, what: Quantity, seconds: f64) -> Value {
    let mut value = json!({"topic": topic, "seconds": seconds, "samples": figures.samples, "missed": figures.missed});
    match what {
        Quantity::Rate => {
            value["rate_hz"] = rate(figures, seconds).into();
            value["interval_nanos"] = statistics_json(figures.intervals);
        }
        Quantity::Bandwidth => {
            value["bytes_per_second"] = bytes_per_second(figures, seconds).into();
            value["bytes"] = statistics_json(figures.bytes);
        }
        Quantity::Delay => {
            value["age_nanos"] = statistics_json(figures.ages);
            value["latency_nanos"] = statistics_json(figures.latencies);
        }
    }
    value
}

fn statistics_json(statistics: Statistics) -> Value {
    let known = |value: f64| known(statistics, value);
    json!({
        "mean": known(statistics.mean),
        "min": known(statistics.min),
        "max": known(statistics.max),
        "deviation": statistics.deviation(),
    })
}

fn known(statistics: Statistics, value: f64) -> Option<f64> {
    (statistics.count > 0).then_some(value)
}

fn table(rows: &[(String, Figures, f64)], what: Quantity) -> Table {
    let heading: &[&str] = match what {
        Quantity::Rate => &["hz", "interval", "min", "max", "deviation"],
        Quantity::Bandwidth => &["bandwidth", "hz", "bytes", "min", "max"],
        Quantity::Delay => &["age", "min", "max", "on the way", "max"],
    };
    let mut columns = vec![("topic", Align::Left)];
    columns.extend(heading.iter().map(|name| (*name, Align::Right)));
    columns.push(("missed", Align::Right));
    let mut table = Table::new(&columns);
    let time =
        |of: Statistics, value: f64| format::latency(known(of, value).map(|nanos| nanos as u64));
    let bytes = |of: Statistics, value: f64| {
        known(of, value).map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0}"))
    };
    for (topic, figures, seconds) in rows {
        let Figures {
            intervals,
            bytes: sizes,
            ages,
            latencies,
            ..
        } = *figures;
        let cells = match what {
            Quantity::Rate => [
                format::rate(rate(figures, *seconds)),
                time(intervals, intervals.mean),
                time(intervals, intervals.min),
                time(intervals, intervals.max),
                time(intervals, intervals.deviation().unwrap_or_default()),
            ],
            Quantity::Bandwidth => [
                format::bandwidth(bytes_per_second(figures, *seconds)),
                format::rate(rate(figures, *seconds)),
                bytes(sizes, sizes.mean),
                bytes(sizes, sizes.min),
                bytes(sizes, sizes.max),
            ],
            Quantity::Delay => [
                time(ages, ages.mean),
                time(ages, ages.min),
                time(ages, ages.max),
                time(latencies, latencies.mean),
                time(latencies, latencies.max),
            ],
        };
        let mut row = vec![topic.clone()];
        row.extend(cells);
        row.push(figures.missed.to_string());
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_samples_count_for_rates() {
        let mut figures = Figures {
            samples: 8,
            missed: 2,
            ..Figures::default()
        };
        figures.bytes.add(1000.0);
        assert_eq!(
            (rate(&figures, 2.0), bytes_per_second(&figures, 2.0)),
            (5.0, 5000.0)
        );
    }
}
