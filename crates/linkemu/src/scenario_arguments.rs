//! A scenario from the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::units::{Interruption, Written};
use crate::{Duplex, LinkOptions, Scenario, ScenarioError};

/// The options that describe a scenario: a file, or settings, or both.
#[derive(Args, Clone, Debug)]
pub struct ScenarioArguments {
    /// Read hosts, settings and changes from a TOML file; options given beside it hold for all
    /// hosts at all times.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Seed all draws: the same seed loses the same packets.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Let all hosts share one air and take turns.
    #[arg(long)]
    half_duplex: bool,
    /// Interrupt everything at a time for a time, such as `10s:2s`; may be given several times.
    #[arg(long, value_name = "AT:LASTING")]
    outage: Vec<Written<Interruption>>,
    /// Name the hosts, in order, where there is no scenario file or its names shall be replaced.
    #[arg(long, value_name = "NAME,NAME,..", value_delimiter = ',')]
    hosts: Vec<String>,
    #[command(flatten)]
    link: LinkOptions,
}

impl ScenarioArguments {
    /// The scenario for `commands` hosts: without a file and names, hosts beyond the second are
    /// called `c`, `d`, ..
    ///
    /// # Errors
    ///
    /// If the file or the names are wrong, with the reason.
    pub fn scenario(&self, commands: usize) -> Result<Scenario, ScenarioError> {
        let mut scenario = match &self.scenario {
            Some(path) => Scenario::from_file(path)
                .map_err(|error| ScenarioError::Text(format!("{}: {error}", path.display())))?,
            None => Scenario::default(),
        };
        let names = match (&self.hosts, &self.scenario) {
            (names, _) if !names.is_empty() => names.clone(),
            (_, None) => (0..commands.max(2)).map(letter_name).collect(),
            (_, Some(_)) => scenario
                .hosts
                .iter()
                .map(|host| host.name.clone())
                .collect(),
        };
        scenario
            .rename(&names)
            .map_err(|error| ScenarioError::Text(format!("--hosts: {error}")))?;
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        if self.half_duplex {
            scenario.duplex = Duplex::Half;
        }
        for host in &mut scenario.hosts {
            let mut schedule = host
                .schedule
                .clone()
                .change(Duration::ZERO, |settings| self.link.apply(settings));
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

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        scenario: ScenarioArguments,
    }

    fn scenario(words: &[&str], commands: usize) -> Result<Scenario, ScenarioError> {
        Line::try_parse_from([&["program"], words].concat())
            .unwrap()
            .scenario
            .scenario(commands)
    }

    #[test]
    fn options_outrank_the_file_for_everyone_at_all_times() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scenario.toml");
        let text = "[link]\nloss = \"10%\"\nrate = \"1mbit\"\n[[change]]\nat = \"1s\"\nlink = { loss = \"50%\" }";
        fs::write(&path, text).unwrap();
        let options = [
            "--scenario",
            path.to_str().unwrap(),
            "--loss",
            "0%",
            "--seed",
            "9",
            "--outage",
            "2s:1s",
        ];
        let scenario = scenario(&options, 2).unwrap();
        assert_eq!(scenario.seed, 9);
        for host in &scenario.hosts {
            let at = |seconds| *host.schedule.at(Duration::from_secs(seconds));
            assert_eq!([at(0).loss, at(1).loss], [0.0, 0.0]);
            assert_eq!(at(0).rate_bits_per_second, Some(1_000_000));
            assert_eq!(
                [at(1), at(2), at(3)].map(|settings| settings.outage.is_some()),
                [false, true, false]
            );
        }
    }

    #[test]
    fn there_is_a_host_for_each_command() {
        let names = |scenario: Scenario| -> Vec<String> {
            scenario.hosts.into_iter().map(|host| host.name).collect()
        };
        assert_eq!(names(scenario(&[], 3).unwrap()), ["a", "b", "c"]);
        assert_eq!(
            names(scenario(&["--hosts", "robot,base"], 2).unwrap()),
            ["robot", "base"]
        );
        assert_eq!(names(scenario(&[], 28).unwrap())[25..], ["z", "h26", "h27"]);
        assert!(
            scenario(&["--hosts", "robot,robot"], 2)
                .unwrap_err()
                .to_string()
                .contains("twice")
        );
        assert!(scenario(&[], 201).is_err());
    }
}
