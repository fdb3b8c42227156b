//! Captured traces: rate, loss and delay over time.

use std::time::Duration;

use crate::{Outage, Schedule, Settings, nanos};

/// The most rows of a trace: a day at a hundred rows a second.
const MAX_ROWS: usize = 10_000_000;

/// Applies a captured trace on top of `settings`.
///
/// A trace is CSV with a header: the column `seconds`, rising, and any of `rate_mbit`,
/// `loss_percent` and `delay_ms`. A row holds until the next one; missing columns keep the values
/// of `settings`. While the rate is 0, packets wait.
///
/// # Errors
/// The line, and the expected text there.
pub fn replay_trace(settings: Settings, csv: &str) -> Result<Schedule, String> {
    let mut lines = csv
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines
        .next()
        .ok_or("expected a header such as `seconds,rate_mbit,loss_percent,delay_ms`")?;
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    check_header(&columns)?;
    let mut rows: Vec<(Duration, Settings)> = Vec::new();
    for (index, line) in lines {
        let row = read_row(settings, &columns, line)
            .map_err(|error| format!("line {}: {error}", index + 1))?;
        if rows.last().is_some_and(|last| last.0 >= row.0) {
            return Err(format!(
                "line {}: expected a later time than in the row before",
                index + 1
            ));
        }
        if rows.len() == MAX_ROWS {
            return Err(format!(
                "line {}: expected at most {MAX_ROWS} rows",
                index + 1
            ));
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return Err("expected a row below the header".to_owned());
    }
    Ok(Schedule::steps(
        settings,
        rows.into_iter().map(|(at, settings)| (nanos(at), settings)),
    ))
}

fn check_header(columns: &[&str]) -> Result<(), String> {
    const KNOWN: [&str; 4] = ["seconds", "rate_mbit", "loss_percent", "delay_ms"];
    if let Some(unknown) = columns.iter().find(|column| !KNOWN.contains(column)) {
        return Err(format!(
            "line 1: expected the columns {}, got `{unknown}`",
            KNOWN.join(", ")
        ));
    }
    if let Some(column) = KNOWN
        .iter()
        .find(|known| columns.iter().filter(|column| column == known).count() > 1)
    {
        return Err(format!("line 1: the column `{column}` is there twice"));
    }
    if !columns.contains(&"seconds") {
        return Err("line 1: expected a column `seconds`".to_owned());
    }
    Ok(())
}

fn read_row(
    mut settings: Settings,
    columns: &[&str],
    line: &str,
) -> Result<(Duration, Settings), String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    if cells.len() != columns.len() {
        return Err(format!(
            "expected {} values, got {}",
            columns.len(),
            cells.len()
        ));
    }
    let mut at = Duration::ZERO;
    for (&column, cell) in columns.iter().zip(cells) {
        let (limit, unit) = match column {
            "loss_percent" => (100.0, "percent"),
            "rate_mbit" => (1e6, "Mbit/s"),
            _ => (
                1e6,
                if column == "seconds" {
                    "seconds"
                } else {
                    "milliseconds"
                },
            ),
        };
        let value = cell
            .parse::<f64>()
            .ok()
            .filter(|value| (0.0..=limit).contains(value));
        let value = value.ok_or_else(|| {
            format!("{column}: expected a number of {unit} from 0 to {limit}, got `{cell}`")
        })?;
        match column {
            "seconds" => at = Duration::from_secs_f64(value),
            "loss_percent" => settings.loss = value / 100.0,
            "delay_ms" => settings.delay = Duration::from_secs_f64(value / 1000.0),
            // The configured rate still measures the queue.
            _ if value == 0.0 => settings.outage = Some(Outage::Hold),
            _ => settings.rate_bits_per_second = Some((value * 1e6).round().max(1.0) as u64),
        }
    }
    Ok((at, settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_until_the_next() {
        let base = Settings {
            loss: 0.1,
            rate_bits_per_second: Some(5_000_000),
            ..Settings::default()
        };
        let schedule = replay_trace(
            base,
            "seconds,rate_mbit,delay_ms\n1,54,2\n2.5, 0, 2\n3,6.5,40\n",
        )
        .unwrap();
        let at = |seconds| *schedule.at(Duration::from_secs_f64(seconds));
        assert_eq!(at(0.5), base);
        assert_eq!(at(1.0).rate_bits_per_second, Some(54_000_000));
        assert_eq!(at(1.0).loss, 0.1);
        assert_eq!(at(2.6).outage, Some(Outage::Hold));
        assert_eq!(
            (at(9.0).outage, at(9.0).delay),
            (None, Duration::from_millis(40))
        );
    }

    #[test]
    fn faults_name_the_line_and_what_was_expected() {
        for (csv, expected) in [
            ("", "expected a header"),
            ("seconds,speed\n", "line 1: expected the columns"),
            ("rate_mbit\n1\n", "line 1: expected a column `seconds`"),
            (
                "seconds,seconds\n",
                "line 1: the column `seconds` is there twice",
            ),
            ("seconds\n", "expected a row"),
            (
                "seconds,rate_mbit\n0,5\n1\n",
                "line 3: expected 2 values, got 1",
            ),
            (
                "seconds,rate_mbit\n0,fast\n",
                "line 2: rate_mbit: expected a number of Mbit/s from 0 to",
            ),
            (
                "seconds,loss_percent\n0,101\n",
                "line 2: loss_percent: expected a number of percent from 0 to 100",
            ),
            ("seconds\n1\n1\n", "line 3: expected a later time"),
            ("seconds\nNaN\n", "line 2: seconds: expected"),
        ] {
            let error = replay_trace(Settings::default(), csv).unwrap_err();
            assert!(error.contains(expected), "{csv:?}: {error}");
        }
    }
}
