//! `nervure topic hz`, `bw` and `delay`: measures the samples of topics.

use std::{collections::BTreeMap, process::ExitCode, time::Instant};

use nervure_node::binding::SequenceGaps;
use nervure_node::{Event, Observer, Sample};
use serde_json::{Value, json};

use super::{arguments::MeasureArguments, lower_priority, topics::select_to_observe};
use crate::{
    failure::Failure,
    format, output,
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
    let (names, connection) = select_to_observe(
        &arguments.topics,
        arguments.target.dataflow.as_deref(),
        program,
    )?;
    lower_priority();
    let mut observer = Observer::open_through(connection, &names, QUEUE_DEPTH)?;
    if what == Quantity::Delay {
        // The latency itself is measured: wake up for each sample.
        observer.set_patience(None);
    }
    let mut windows: BTreeMap<String, Window> = names
        .into_iter()
        .map(|name| (name, Window::default()))
        .collect();
    let mut gaps = SequenceGaps::default();
    let mut left = arguments.count.unwrap_or(u64::MAX);
    let mut begin = Instant::now();
    // Samples of the output's history arrive at once and do not count for its rate.
    let attached_mono = nervure_node::monotonic_nanos();
    while left > 0 {
        let until = begin + arguments.interval;
        let is_over = loop {
            let wait = until.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                break false;
            }
            match observer.next_timeout(wait) {
                Some(Event::Input { id, sample }) => {
                    let missed = gaps.record(&id, sample.header());
                    if sample.header().publish_mono >= attached_mono
                        && let Some(window) = windows.get_mut(&*id)
                    {
                        window.add(&sample, missed, observer.now());
                    }
                }
                Some(Event::Stop { .. }) => break true,
                Some(_) | None => {}
            }
        };
        let seconds = begin.elapsed().as_secs_f64();
        begin = Instant::now();
        let text = match arguments.target.json {
            true => windows
                .iter()
                .map(|(topic, window)| format!("{}\n", window.json(topic, what, seconds)))
                .collect(),
            false => table(&windows, what, seconds).render(None),
        };
        output::write_or_end(&text)?;
        windows.values_mut().for_each(Window::restart);
        left -= 1;
        if is_over {
            note!("{} has ended", observer.dataflow());
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The samples of a topic since the last report.
#[derive(Debug, Default)]
struct Window {
    last_published: Option<u64>,
    count: u64,
    missed: u64,
    intervals: RunningStatistics,
    bytes: RunningStatistics,
    ages: RunningStatistics,
    latencies: RunningStatistics,
}

impl Window {
    fn add(&mut self, sample: &Sample, missed: u64, now: i64) {
        let published = sample.header().publish_mono;
        // Only between consecutive samples: the times of missed ones are unknown.
        if let (Some(last), 0) = (self.last_published, missed) {
            self.intervals.add(published.saturating_sub(last) as f64);
        }
        self.last_published = Some(published);
        self.count += 1;
        self.missed += missed;
        self.bytes.add(sample.bytes().len() as f64);
        self.ages.add(sample.age(now).as_nanos() as f64);
        self.latencies.add(sample.latency().as_nanos() as f64);
    }

    fn restart(&mut self) {
        *self = Self {
            last_published: self.last_published,
            ..Self::default()
        };
    }

    /// Samples sent per second, missed ones included.
    fn rate(&self, seconds: f64) -> f64 {
        (self.count + self.missed) as f64 / seconds
    }

    fn bytes_per_second(&self, seconds: f64) -> f64 {
        self.bytes.mean().unwrap_or(0.0) * self.rate(seconds)
    }

    fn json(&self, topic: &str, what: Quantity, seconds: f64) -> Value {
        let mut value = json!({"topic": topic, "seconds": seconds, "samples": self.count, "missed": self.missed});
        match what {
            Quantity::Rate => {
                value["rate_hz"] = self.rate(seconds).into();
                value["interval_nanos"] = self.intervals.json();
            }
            Quantity::Bandwidth => {
                value["bytes_per_second"] = self.bytes_per_second(seconds).into();
                value["bytes"] = self.bytes.json();
            }
            Quantity::Delay => {
                value["age_nanos"] = self.ages.json();
                value["latency_nanos"] = self.latencies.json();
            }
        }
        value
    }
}

fn table(windows: &BTreeMap<String, Window>, what: Quantity, seconds: f64) -> Table {
    let heading: &[&str] = match what {
        Quantity::Rate => &["hz", "interval", "min", "max", "deviation"],
        Quantity::Bandwidth => &["bandwidth", "hz", "bytes", "min", "max"],
        Quantity::Delay => &["age", "min", "max", "on the way", "max"],
    };
    let mut columns = vec![("topic", Align::Left)];
    columns.extend(heading.iter().map(|name| (*name, Align::Right)));
    columns.push(("missed", Align::Right));
    let mut table = Table::new(&columns);
    let time = |nanos: Option<f64>| format::latency(nanos.map(|nanos| nanos as u64));
    let bytes =
        |bytes: Option<f64>| bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0}"));
    for (topic, window) in windows {
        let (intervals, sizes) = (&window.intervals, &window.bytes);
        let figures = match what {
            Quantity::Rate => [
                format::rate(window.rate(seconds)),
                time(intervals.mean()),
                time(intervals.min()),
                time(intervals.max()),
                time(intervals.deviation()),
            ],
            Quantity::Bandwidth => [
                format::bandwidth(window.bytes_per_second(seconds)),
                format::rate(window.rate(seconds)),
                bytes(sizes.mean()),
                bytes(sizes.min()),
                bytes(sizes.max()),
            ],
            Quantity::Delay => [
                time(window.ages.mean()),
                time(window.ages.min()),
                time(window.ages.max()),
                time(window.latencies.mean()),
                time(window.latencies.max()),
            ],
        };
        let mut row = vec![topic.clone()];
        row.extend(figures);
        row.push(window.missed.to_string());
        table.row(row);
    }
    table
}

/// Mean, extremes and standard deviation of a stream of numbers (Welford's method: B. P. Welford,
/// Technometrics 4, 1962).
#[derive(Clone, Copy, Debug, Default)]
struct RunningStatistics {
    count: u64,
    mean: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl RunningStatistics {
    fn add(&mut self, value: f64) {
        self.count += 1;
        let delta = value - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (value - self.mean);
        let is_first = self.count == 1;
        self.min = if is_first { value } else { self.min.min(value) };
        self.max = if is_first { value } else { self.max.max(value) };
    }

    fn of(self, value: f64) -> Option<f64> {
        (self.count > 0).then_some(value)
    }

    fn mean(self) -> Option<f64> {
        self.of(self.mean)
    }

    fn min(self) -> Option<f64> {
        self.of(self.min)
    }

    fn max(self) -> Option<f64> {
        self.of(self.max)
    }

    /// Population standard deviation, not that of a sample.
    fn deviation(self) -> Option<f64> {
        self.of((self.squares / self.count.max(1) as f64).sqrt())
    }

    fn json(self) -> Value {
        json!({"mean": self.mean(), "min": self.min(), "max": self.max(), "deviation": self.deviation()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_match_a_textbook_example() {
        let mut spread = RunningStatistics::default();
        assert_eq!((spread.mean(), spread.deviation()), (None, None));
        for value in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0] {
            spread.add(value);
        }
        let figures = (
            spread.mean(),
            spread.deviation(),
            spread.min(),
            spread.max(),
        );
        assert_eq!(figures, (Some(5.0), Some(2.0), Some(2.0), Some(9.0)));
    }

    #[test]
    fn missed_samples_count_for_rates() {
        let mut window = Window {
            count: 8,
            missed: 2,
            ..Window::default()
        };
        window.bytes.add(1000.0);
        assert_eq!(
            (window.rate(2.0), window.bytes_per_second(2.0)),
            (5.0, 5000.0)
        );
    }
}
