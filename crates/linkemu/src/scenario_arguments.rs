//! A scenario from the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::units::{Interruption, Written};
use crate::{Duplex, LinkOptions, Scenario, ScenarioError};

/// What describes a scenario on a command line: a file, or settings, or both.
#[derive(Args, Clone, Debug)]
pub struct ScenarioArguments {
    /// Read hosts, settings and changes from a TOML file; the options below outrank its settings at the start.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// The seed of all draws: the same seed loses the same packets.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// All hosts share one air and take turns.
    #[arg(long)]
    half_duplex: bool,
    /// Interrupt everything at a time for a time, such as `10s:2s`; may be given several times.
    #[arg(long, value_name = "AT:LASTING")]
    outage: Vec<Written<Interruption>>,
    /// The hosts' names, in order, where there is no scenario file or it shall be outranked.
    #[arg(long, value_name = "NAME,NAME,..", value_delimiter = ',')]
    hosts: Vec<String>,
    #[command(flatten)]
    link: LinkOptions,
}

impl ScenarioArguments {
    /// The scenario for `commands` hosts: without a file and names, hosts beyond the second are called `c`, `d`, ..
    ///
    /// # Errors
    ///
    /// What is wrong with the file or the names.
    pub fn scenario(&self, commands: usize) -> Result<Scenario, ScenarioError> {
        let mut scenario = match &self.scenario {
            Some(path) => Scenario::from_file(path)
                .map_err(|error| ScenarioError::Text(format!("{}: {error}", path.display())))?,
            None => Scenario::default(),
        };
        let names = match (&self.hosts, &self.scenario) {
            (names, _) if !names.is_empty() => names.clone(),
            (_, None) => (0..commands.max(2)).map(letter_name).collect(),
            (_, Some(_)) => scenario.hosts.iter().map(|host| host.name.clone()).collect(),
        };
        scenario.rename(&names).map_err(|error| ScenarioError::Text(format!("--hosts: {error}")))?;
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        if self.half_duplex {
            scenario.duplex = Duplex::Half;
        }
        for host in &mut scenario.hosts {
            let mut schedule =
                host.schedule.clone().change(Duration::ZERO, |settings| self.link.apply(settings));
            for outage in &self.outage {
                schedule = schedule.outage(outage.0.at, outage.0.lasting);
            }
            host.schedule = schedule;
        }
        Ok(scenario)
    }
}

/// a, b, .. z, h26, h27, ..
fn letter_name(index: usize) -> String {
    match u8::try_from(index) {
        Ok(index @ 0..26) => char::from(b'a' + index).to_string(),
        _ => format!("h{index}"),
    }
}
