//! `nervure telemetry`: the figures and the traces, for a receiver of OpenTelemetry.

use std::{process::ExitCode, sync::mpsc::channel, time::Duration};

use clap::Args;
use nervure_api::telemetry::{Settings, send};
use nervure_inspect::threads;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{failure::Failure, option_values::parse_duration, output};

/// The environment variable of OpenTelemetry with the address of the receiver.
const ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The receiver unless another is named: a collector on this host.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

/// The shortest interval: readings cost keepers and links something.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct TelemetryArguments {
    /// The address of the receiver, to which /v1/metrics and /v1/traces are added. Default:
    /// OTEL_EXPORTER_OTLP_ENDPOINT, or http://localhost:4318.
    #[arg(value_name = "URL")]
    endpoint: Option<String>,
    /// Send metrics at this interval.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_interval)]
    every: Duration,
    /// Send traces only: another machine of the fleet sends the metrics of all.
    #[arg(long)]
    no_metrics: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    match interval < MIN_INTERVAL {
        true => Err("the shortest interval is 1s".to_owned()),
        false => Ok(interval),
    }
}

/// Sends until a signal.
pub fn telemetry(arguments: &TelemetryArguments) -> Result<ExitCode, Failure> {
    let named = arguments.endpoint.clone();
    let of_environment = || std::env::var(ENDPOINT_VARIABLE).ok();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::internal("cannot watch for signals").because(error))?;
    let (sender, ended) = channel();
    threads::spawn(move || {
        signals.forever().next();
        let _ = sender.send(());
    })?;
    let settings = Settings {
        endpoint: named
            .or_else(of_environment)
            .unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned()),
        interval: arguments.every,
        has_metrics: !arguments.no_metrics,
        note: output::write_note,
    };
    send(&settings, &ended)?;
    Ok(ExitCode::SUCCESS)
}
