//! Scenario files: hosts, links and changes over time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::units::Written;
use crate::{Air, Duplex, LinkOptions, Schedule, Settings, replay_trace};

/// The most hosts of a scenario; the emulator runs two processes for each.
const MAX_HOSTS: usize = 200;

/// Hosts, the links between them, and their changes over time. The same file runs in the emulator
/// and, through [`Scenario::air`], in a simulated network.
///
/// ```
/// use nervure_linkemu::Scenario;
///
/// let scenario = Scenario::from_toml(r#"
///     seed = 7
///     duplex = "half"
///     hosts = ["robot", "base"]
///
///     [link]                      # what every host sends
///     rate = "54mbit"
///     loss = "20%"
///     delay = "1ms"
///
///     [from.base]                 # what differs for one
///     rate = "300mbit"
///
///     [[change]]
///     at = "10s"
///     link = { rate = "300mbit" }
///
///     [[change]]
///     at = "15s"
///     lasting = "2s"
///     link = { outage = "lose" }
/// "#, std::path::Path::new(".")).unwrap();
/// let mut air = scenario.air::<Vec<u8>>();
/// assert_eq!(air.hosts(), 2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The seed of all draws.
    pub seed: u64,
    /// Whether the hosts share one air.
    pub duplex: Duplex,
    /// The hosts, in order.
    pub hosts: Vec<Host>,
}

/// A host, and the settings for the packets that it sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its name: letters, digits and `-`.
    pub name: String,
    /// The settings for its packets, over time.
    pub schedule: Schedule,
}

/// Why a scenario cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// The text is wrong. Names line, column and the expected text.
    #[error("{0}")]
    Text(String),
}

/// The structure of a scenario file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default = "default_seed")]
    seed: u64,
    #[serde(default)]
    duplex: WrittenDuplex,
    #[serde(default = "default_hosts")]
    hosts: Vec<String>,
    #[serde(default)]
    link: LinkOptions,
    #[serde(default)]
    from: BTreeMap<String, LinkOptions>,
    #[serde(default)]
    change: Vec<Change>,
    #[serde(default)]
    trace: Vec<Trace>,
    repeat: Option<Written<Duration>>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WrittenDuplex {
    #[default]
    Full,
    Half,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Change {
    at: Written<Duration>,
    lasting: Option<Written<Duration>>,
    /// The sender of the packets concerned; all hosts if left out.
    from: Option<String>,
    link: LinkOptions,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Trace {
    file: PathBuf,
    from: Option<String>,
}

fn default_seed() -> u64 {
    1
}

fn default_hosts() -> Vec<String> {
    vec!["a".to_owned(), "b".to_owned()]
}

impl Default for Scenario {
    /// Two hosts, `a` and `b`, with a perfect link.
    fn default() -> Self {
        let host = |name| Host {
            name,
            schedule: Schedule::from(Settings::default()),
        };
        Self {
            seed: 1,
            duplex: Duplex::Full,
            hosts: default_hosts().into_iter().map(host).collect(),
        }
    }
}

impl Scenario {
    /// Reads a file. Paths of traces are relative to it.
    ///
    /// # Errors
    /// If the file is wrong, with line, column and the expected text.
    pub fn from_file(path: &Path) -> Result<Self, ScenarioError> {
        let text = fs::read_to_string(path).map_err(|cause| ScenarioError::File {
            path: path.to_owned(),
            cause,
        })?;
        Self::from_toml(&text, path.parent().unwrap_or(Path::new(".")))
    }

    /// Reads the text of a file that lies in `folder`.
    ///
    /// # Errors
    ///
    /// If the text is wrong, with line, column and the expected text; or if a trace that it names
    /// is.
    pub fn from_toml(text: &str, folder: &Path) -> Result<Self, ScenarioError> {
        let file: File = toml::from_str(text)
            .map_err(|error| ScenarioError::Text(error.to_string().trim_end().to_owned()))?;
        file.check().map_err(ScenarioError::Text)?;
        let mut hosts = Vec::new();
        for name in &file.hosts {
            hosts.push(Host {
                name: name.clone(),
                schedule: file.schedule(name, folder)?,
            });
        }
        let duplex = match file.duplex {
            WrittenDuplex::Full => Duplex::Full,
            WrittenDuplex::Half => Duplex::Half,
        };
        Ok(Self {
            seed: file.seed,
            duplex,
            hosts,
        })
    }

    /// The model of this scenario.
    pub fn air<P>(&self) -> Air<P> {
        Air::new(
            self.duplex,
            self.seed,
            self.hosts.iter().map(|host| host.schedule.clone()),
        )
    }

    /// Renames the hosts, and makes as many hosts as there are names: additional hosts are like the
    /// last.
    ///
    /// # Errors
    /// When a name is invalid or there twice, or there are too few or too many names.
    pub fn rename(&mut self, names: &[String]) -> Result<(), String> {
        check_names(names)?;
        let schedules: Vec<_> = self.hosts.drain(..).map(|host| host.schedule).collect();
        let schedule = |index: usize| schedules[index.min(schedules.len() - 1)].clone();
        self.hosts = names
            .iter()
            .enumerate()
            .map(|(index, name)| Host {
                name: name.clone(),
                schedule: schedule(index),
            })
            .collect();
        Ok(())
    }
}

impl File {
    /// Checks conditions that the structure of the file does not guarantee.
    fn check(&self) -> Result<(), String> {
        check_names(&self.hosts).map_err(|error| format!("hosts: {error}"))?;
        let changes = self
            .change
            .iter()
            .filter_map(|change| change.from.as_ref().map(|name| ("change", name)));
        let traces = self
            .trace
            .iter()
            .filter_map(|trace| trace.from.as_ref().map(|name| ("trace", name)));
        let tables = self.from.keys().map(|name| ("from", name));
        for (place, name) in tables.chain(changes).chain(traces) {
            if !self.hosts.contains(name) {
                return Err(format!(
                    "{place}: expected one of the hosts {}, got `{name}`",
                    self.hosts.join(", ")
                ));
            }
        }
        if self.repeat.is_some_and(|repeat| repeat.0.is_zero()) {
            return Err("repeat: expected more than no time".to_owned());
        }
        Ok(())
    }

    fn schedule(&self, host: &str, folder: &Path) -> Result<Schedule, ScenarioError> {
        let concerns = |from: &Option<String>| from.as_deref().is_none_or(|name| name == host);
        let mut settings = Settings::default();
        self.link.apply(&mut settings);
        if let Some(options) = self.from.get(host) {
            options.apply(&mut settings);
        }
        let mut schedule = Schedule::from(settings);
        if let Some(trace) = self.trace.iter().rfind(|trace| concerns(&trace.from)) {
            let path = folder.join(&trace.file);
            let csv = fs::read_to_string(&path).map_err(|cause| ScenarioError::File {
                path: path.clone(),
                cause,
            })?;
            schedule = replay_trace(settings, &csv)
                .map_err(|error| ScenarioError::Text(format!("{}: {error}", path.display())))?;
        }
        let mut changes: Vec<&Change> = self
            .change
            .iter()
            .filter(|change| concerns(&change.from))
            .collect();
        changes.sort_by_key(|change| change.at.0);
        for change in changes {
            let lasting = change.lasting.map_or(Duration::MAX, |lasting| lasting.0);
            schedule =
                schedule.during(change.at.0, lasting, |settings| change.link.apply(settings));
        }
        Ok(match self.repeat {
            Some(period) => schedule.repeat_every(period.0),
            None => schedule,
        })
    }
}

fn check_names(names: &[String]) -> Result<(), String> {
    if !(2..=MAX_HOSTS).contains(&names.len()) {
        return Err(format!(
            "expected 2 to {MAX_HOSTS} hosts, got {}",
            names.len()
        ));
    }
    for (index, name) in names.iter().enumerate() {
        let plain = name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
        if !plain || name.is_empty() || name.len() > 63 || name.starts_with('-') {
            return Err(format!(
                "expected a name of letters, digits and `-`, got `{name}`"
            ));
        }
        if names[..index].contains(name) {
            return Err(format!("the name `{name}` is there twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Outage;

    const HERE: &str = ".";

    fn read(text: &str) -> Result<Scenario, String> {
        Scenario::from_toml(text, Path::new(HERE)).map_err(|error| error.to_string())
    }

    #[test]
    fn changes_apply_to_the_named_hosts() {
        let scenario = read(
            r#"
            hosts = ["robot", "base"]
            [link]
            rate = "54mbit"
            [from.base]
            rate = "100mbit"
            [[change]]
            at = "10s"
            from = "robot"
            link = { rate = "300mbit", loss = "20%" }
            [[change]]
            at = "5s"
            lasting = "1s"
            link = { outage = "lose" }
            "#,
        )
        .unwrap();
        let rates = |seconds| {
            [0, 1].map(|host: usize| {
                scenario.hosts[host]
                    .schedule
                    .at(Duration::from_secs(seconds))
                    .rate_bits_per_second
                    .unwrap()
            })
        };
        assert_eq!(rates(0), [54_000_000, 100_000_000]);
        assert_eq!(rates(10), [300_000_000, 100_000_000]);
        let outage = |millis| {
            scenario.hosts[1]
                .schedule
                .at(Duration::from_millis(millis))
                .outage
        };
        assert_eq!(
            [4999, 5000, 5999, 6000].map(outage),
            [None, Some(Outage::Lose), Some(Outage::Lose), None]
        );
    }

    #[test]
    fn faults_say_where_and_what_was_expected() {
        for (text, expected) in [
            (
                "seed = 1\n[link]\nrate = 54",
                ["line 3", "expected a rate such as \"54mbit\""],
            ),
            (
                "[link]\nloss = \"120%\"",
                ["line 2", "expected a share such as \"20%\""],
            ),
            (
                "[link]\nspeed = \"1mbit\"",
                ["line 2", "unknown field `speed`, expected one of `rate`"],
            ),
            ("[[change]]\nlink = {}", ["line 1", "missing field `at`"]),
            ("hosts = [\"a\", \"a\"]", ["hosts", "twice"]),
            (
                "hosts = [\"a\"]",
                ["hosts", "expected 2 to 200 hosts, got 1"],
            ),
            ("hosts = [\"a b\", \"c\"]", ["hosts", "got `a b`"]),
            (
                "[from.c]\nrate = \"1mbit\"",
                ["from", "expected one of the hosts a, b, got `c`"],
            ),
            (
                "duplex = \"simplex\"",
                ["line 1", "expected `full` or `half`"],
            ),
            ("repeat = \"0s\"", ["repeat", "expected more"]),
            (
                "[[trace]]\nfile = \"missing.csv\"",
                ["missing.csv", "cannot read"],
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(
                expected.iter().all(|part| error.contains(part)),
                "{text:?}: {error}"
            );
        }
    }

    #[test]
    fn traces_lie_beside_the_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("drive.csv"),
            "seconds,rate_mbit\n0,10\n1,20\n",
        )
        .unwrap();
        let path = folder.path().join("scenario.toml");
        fs::write(
            &path,
            "repeat = \"2s\"\n[[trace]]\nfile = \"drive.csv\"\nfrom = \"a\"",
        )
        .unwrap();
        let scenario = Scenario::from_file(&path).unwrap();
        let rate = |host: usize, second| {
            scenario.hosts[host]
                .schedule
                .at(Duration::from_secs(second))
                .rate_bits_per_second
        };
        assert_eq!(
            [rate(0, 0), rate(0, 1), rate(0, 2)],
            [Some(10_000_000), Some(20_000_000), Some(10_000_000)]
        );
        assert_eq!(rate(1, 0), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(
            text in ".{0,300}",
            key in "(seed|duplex|hosts|repeat|link|from|change|trace|rate|loss|queue|at)",
            value in "[-0-9a-z%:.\\[\\]{}= \"]{0,20}",
        ) {
            let _ = read(&text);
            let _ = read(&format!("{key} = {value}"));
            let _ = read(&format!("[link]\n{key} = \"{value}\""));
            let _ = replay_trace(Settings::default(), &text);
            let _ = replay_trace(Settings::default(), &format!("seconds,rate_mbit\n0,{value}\n{value},1"));
        }
    }

    #[test]
    fn more_names_make_more_hosts() {
        let mut scenario = read("[from.b]\nloss = \"50%\"").unwrap();
        scenario
            .rename(&["base", "one", "two"].map(str::to_owned))
            .unwrap();
        let losses: Vec<_> = scenario
            .hosts
            .iter()
            .map(|host| host.schedule.at(Duration::ZERO).loss)
            .collect();
        assert_eq!(losses, [0.0, 0.5, 0.5]);
        assert!(scenario.rename(&["a".to_owned()]).is_err());
    }
}
