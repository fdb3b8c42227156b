//! Where dataflows run: on this machine, on others of the fleet, or in parts on several.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use nervure_node::running::{self, Connection, ConnectionError, DAEMON_ANSWER_TIMEOUT};
use nervure_protocol::{
    address::KeeperAddress,
    cli_to_daemon,
    daemon_to_cli::{LinkFigures, Machine, Message, NodeState},
    daemon_to_daemon::{Answer, Listed, StreamReport},
    domain::Domain,
    keeper_to_cli::Welcome,
    nearest,
};

use crate::{Error, daemon, format};

/// Where a keeper is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On this machine.
    Here(KeeperAddress),
    /// On another machine of the fleet.
    There {
        /// Its name.
        machine: String,
        /// The process id of the keeper there.
        keeper: u32,
    },
}

/// The part of a dataflow on a machine, or all of one on this host.
#[derive(Clone, Debug)]
pub struct Part {
    /// `None` on a host that belongs to no fleet.
    pub machine: Option<String>,
    /// Its keeper.
    pub keeper: PartKeeper,
    /// The samples that cross machines, as its machine has reported them.
    pub streams: Vec<StreamReport>,
    /// Topics that this report has left out.
    pub streams_omitted: usize,
}

/// The keeper of a part.
#[derive(Clone, Debug)]
pub enum PartKeeper {
    /// Accepts connections, with its welcome or the reason why it does not answer.
    At(Place, Result<Welcome, String>),
    /// Its machine cannot be reached.
    Unreachable(Unreachable),
}

/// A machine that cannot be reached, with its last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// The name of the machine.
    pub machine: String,
    /// Why it cannot be reached.
    pub reason: String,
    /// Time since anything arrived from it, if anything has.
    pub silence: Option<Duration>,
    /// The state of each of its nodes, as it was.
    pub nodes: BTreeMap<String, NodeState>,
}

/// A dataflow with its parts.
#[derive(Clone, Debug)]
pub struct Found {
    /// The name of the dataflow.
    pub dataflow: String,
    /// Its parts, one a machine.
    pub parts: Vec<Part>,
}

/// All running dataflows, here and on other machines.
#[derive(Debug, Default)]
pub struct Everything {
    /// The name of this machine in its fleet.
    pub own: Option<String>,
    /// The dataflows, by their names.
    pub dataflows: Vec<Found>,
    /// Machines that cannot be reached, whether or not they have parts.
    pub unreachable: Vec<Unreachable>,
    /// The link to each other machine, if there has been one.
    pub links: BTreeMap<String, Option<LinkFigures>>,
    /// Why the other machines are not in it.
    pub no_fleet: Option<ConnectionError>,
}

impl Place {
    /// Connects to the keeper.
    pub fn connect(&self, program: &str) -> Result<Connection, Error> {
        match self {
            Self::Here(address) => Ok(Connection::open(address, program)?),
            Self::There { machine, keeper } => {
                let wants_usages = matches!(program, "top" | "serve");
                Ok(daemon::connect(program)?.reach(machine, *keeper, program, wants_usages)?)
            }
        }
    }

    /// The process id of the keeper.
    pub fn keeper(&self) -> u32 {
        match self {
            Self::Here(address) => address.keeper,
            Self::There { keeper, .. } => *keeper,
        }
    }

    /// The machine, if it is another one.
    pub fn machine(&self) -> Option<&str> {
        match self {
            Self::Here(_) => None,
            Self::There { machine, .. } => Some(machine),
        }
    }
}

impl Unreachable {
    /// `not reached for 12 s`
    pub fn text(&self) -> String {
        match self.silence {
            Some(silence) => format!("not reached for {}", format::elapsed(silence)),
            None => "not reached".to_owned(),
        }
    }
}

impl Part {
    /// The place of its keeper.
    pub fn place(&self) -> Option<&Place> {
        match &self.keeper {
            PartKeeper::At(place, _) => Some(place),
            PartKeeper::Unreachable(_) => None,
        }
    }
}

/// Finds the dataflow of that name, or with that process id of a keeper; without a name, the one of
/// `NERVURE_DATAFLOW` or the only one.
pub fn find(name: Option<&str>) -> Result<Found, Error> {
    Ok(try_find(name)??)
}

/// As [`find`], for callers that continue without a running dataflow.
pub fn try_find(name: Option<&str>) -> Result<Result<Found, ConnectionError>, Error> {
    let name = running::named(name);
    let here = running::dataflows()?;
    // The id of a process of this host belongs to no other machine.
    let by_id = here
        .iter()
        .find(|address| name.as_deref() == Some(&address.keeper.to_string()));
    if let Some(address) = by_id {
        return Ok(Ok(alone(address.clone())));
    }
    let everything = everything()?;
    if everything.own.is_some() {
        return Ok(choose(everything.dataflows, name.as_deref()));
    }
    Ok(
        match (running::find(name.as_deref()), everything.no_fleet) {
            // The dataflow may run elsewhere.
            (
                Err(ConnectionError::NoneRuns(_) | ConnectionError::NotRunning { .. }),
                Some(error),
            ) => Err(error),
            (found, _) => found.map(alone),
        },
    )
}

/// As [`everything`], and without a fleet with the dataflows of this host.
pub fn everywhere() -> Result<Everything, Error> {
    let mut everything = everything()?;
    if everything.own.is_none() {
        everything.dataflows = running::dataflows()?.into_iter().map(alone).collect();
    }
    Ok(everything)
}

/// Splits `dataflow:name`. The dataflow may be named apart too, but not differently.
///
/// # Errors
/// If both name different dataflows.
pub fn split_name<'a>(
    text: &'a str,
    dataflow: Option<&'a str>,
) -> Result<(Option<&'a str>, &'a str), Error> {
    match (text.split_once(':'), dataflow) {
        (None, dataflow) => Ok((dataflow, text)),
        (Some((prefix, name)), None) => Ok((Some(prefix), name)),
        (Some((prefix, name)), Some(dataflow)) if prefix == dataflow => Ok((Some(prefix), name)),
        (Some((prefix, _)), Some(dataflow)) => Err(Error::TwoDataflows {
            text: text.to_owned(),
            named: prefix.to_owned(),
            other: dataflow.to_owned(),
        }),
    }
}

fn alone(address: KeeperAddress) -> Found {
    Found {
        dataflow: address.dataflow.clone(),
        parts: vec![Part {
            machine: None,
            keeper: PartKeeper::At(Place::Here(address), Err(String::new())),
            streams: Vec::new(),
            streams_omitted: 0,
        }],
    }
}

fn choose(found: Vec<Found>, name: Option<&str>) -> Result<Found, ConnectionError> {
    let is_meant = |one: &&Found| {
        let has_keeper = |name: &str| {
            let mut places = one.parts.iter().filter_map(Part::place);
            places.any(|place| place.keeper().to_string() == name)
        };
        name.is_none_or(|name| one.dataflow == name || has_keeper(name))
    };
    let mut chosen = found.iter().filter(is_meant);
    match (chosen.next(), chosen.next()) {
        (Some(only), None) => Ok(only.clone()),
        (Some(_), Some(_)) => Err(ConnectionError::Several {
            running: names(&found),
        }),
        (None, _) if found.is_empty() => Err(ConnectionError::NoneRuns(Domain::of_environment()?)),
        (None, _) => {
            let name = name.unwrap_or_default();
            let near = nearest(name, found.iter().map(|one| one.dataflow.as_str()));
            Err(ConnectionError::NotRunning {
                name: name.to_owned(),
                running: names(&found),
                nearest: near.map(str::to_owned),
            })
        }
    }
}

fn names(found: &[Found]) -> String {
    let names = found.iter().map(|one| one.label(found));
    names.collect::<Vec<_>>().join(", ")
}

impl Found {
    /// Its name, and if others of `all` share it, its keeper: `drive (process 4711)`, on another machine
    /// `drive (process 7 on r02)`. Process ids of two machines may be the same.
    #[must_use]
    pub fn label(&self, all: &[Self]) -> String {
        let name = &self.dataflow;
        let namesakes = all.iter().filter(|other| other.dataflow == *name);
        match self.parts.iter().find_map(Part::place) {
            Some(place) if namesakes.count() > 1 => match place {
                Place::Here(address) => format!("{name} (process {})", address.keeper),
                Place::There { machine, keeper } => {
                    format!("{name} (process {keeper} on {machine})")
                }
            },
            _ => name.clone(),
        }
    }
}

/// Everything that runs on this host and, if it belongs to a fleet, on the machines of the fleet.
pub fn everything() -> Result<Everything, Error> {
    let machines = match ask_machines() {
        Ok(Some(machines)) => machines,
        Ok(None) => return Ok(Everything::default()),
        Err(Error::Connection(error)) => {
            return Ok(Everything {
                no_fleet: Some(error),
                ..Everything::default()
            });
        }
        Err(error) => return Err(error),
    };
    Ok(merged(machines))
}

/// Requests the machines from the daemon of this one.
fn ask_machines() -> Result<Option<Vec<Machine>>, Error> {
    let Some(mut daemon) = daemon::connect_if_paired("list")? else {
        return Ok(None);
    };
    daemon.send(&cli_to_daemon::Message::Machines)?;
    let until = Instant::now() + DAEMON_ANSWER_TIMEOUT;
    let mut machines = Vec::new();
    loop {
        match daemon.receive_until(until)? {
            Some((Message::Machine(machine), _)) => machines.push(machine),
            Some((
                Message::Answer {
                    answer: Answer::Done,
                },
                _,
            )) => return Ok(Some(machines)),
            Some(_) => {}
            None => return Err(ConnectionError::DaemonSilent(DAEMON_ANSWER_TIMEOUT).into()),
        }
    }
}

fn merged(machines: Vec<Machine>) -> Everything {
    // The domain's name was checked earlier.
    let domain = Domain::of_environment().unwrap_or_default();
    let own = machines.iter().find(|machine| machine.is_own);
    let others = machines.iter().filter(|machine| !machine.is_own);
    let mut everything = Everything {
        own: own.map(|machine| machine.name.clone()),
        links: others
            .map(|machine| (machine.name.clone(), machine.link))
            .collect(),
        ..Everything::default()
    };
    // Parts of one run belong together.
    let mut runs: BTreeMap<String, Found> = BTreeMap::new();
    let mut others = Vec::new();
    let mut known = BTreeSet::new();
    // Two machines of one host see the same keepers. The daemon that has started one names its run.
    let mut listed: Vec<(&Machine, &Listed)> = machines
        .iter()
        .flat_map(|machine| machine.dataflows.iter().map(move |one| (machine, one)))
        .collect();
    listed.sort_by_key(|(machine, one)| (one.run.is_none(), !machine.is_own));
    for (machine, one) in listed {
        let identity = match &one.welcome {
            Ok(welcome) => (one.keeper, Some(welcome.started_utc_nanos), None),
            Err(_) => (one.keeper, None, Some(&machine.name)),
        };
        if !known.insert(identity) {
            continue;
        }
        let place = match machine.is_own {
            true => Place::Here(KeeperAddress {
                domain: domain.clone(),
                dataflow: one.dataflow.clone(),
                keeper: one.keeper,
                uid: uid_of(one.keeper),
            }),
            false => Place::There {
                machine: machine.name.clone(),
                keeper: one.keeper,
            },
        };
        let part = Part {
            machine: Some(machine.name.clone()),
            keeper: PartKeeper::At(place, one.welcome.clone()),
            streams: one.streams.clone(),
            streams_omitted: one.streams_omitted,
        };
        match &one.run {
            Some(run) => found_of(&mut runs, run, &one.dataflow).parts.push(part),
            None => others.push(Found {
                dataflow: one.dataflow.clone(),
                parts: vec![part],
            }),
        }
    }
    for machine in &machines {
        let Some(away) = &machine.unreachable else {
            continue;
        };
        let unreachable = |nodes| Unreachable {
            machine: machine.name.clone(),
            reason: away.reason.clone(),
            silence: away.silent_nanos.map(Duration::from_nanos),
            nodes,
        };
        for part in &away.reported {
            found_of(&mut runs, &part.run, &part.dataflow)
                .parts
                .push(Part {
                    machine: Some(machine.name.clone()),
                    keeper: PartKeeper::Unreachable(unreachable(part.nodes.clone())),
                    streams: Vec::new(),
                    streams_omitted: 0,
                });
        }
        everything.unreachable.push(unreachable(BTreeMap::new()));
    }
    let mut dataflows: Vec<Found> = runs.into_values().chain(others).collect();
    for found in &mut dataflows {
        found
            .parts
            .sort_by(|one, other| one.machine.cmp(&other.machine));
    }
    dataflows.sort_by(|one, other| one.dataflow.cmp(&other.dataflow));
    everything.dataflows = dataflows;
    everything
}

fn found_of<'a>(runs: &'a mut BTreeMap<String, Found>, run: &str, dataflow: &str) -> &'a mut Found {
    runs.entry(run.to_owned()).or_insert_with(|| Found {
        dataflow: dataflow.to_owned(),
        parts: Vec::new(),
    })
}

/// The user of a keeper of this host.
fn uid_of(keeper: u32) -> u32 {
    let here = running::dataflows().unwrap_or_default();
    let own = rustix::process::geteuid().as_raw();
    here.iter()
        .find(|address| address.keeper == keeper)
        .map_or(own, |address| address.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_include_its_dataflow() {
        assert_eq!(split_name("camera", None).unwrap(), (None, "camera"));
        assert_eq!(
            split_name("camera", Some("drive")).unwrap(),
            (Some("drive"), "camera")
        );
        assert_eq!(
            split_name("drive:camera", None).unwrap(),
            (Some("drive"), "camera")
        );
        assert_eq!(
            split_name("drive:camera", Some("drive")).unwrap(),
            (Some("drive"), "camera")
        );
        assert!(split_name("drive:camera", Some("arm")).is_err());
    }

    #[test]
    fn namesakes_of_several_machines_have_labels_of_their_own() {
        let found = |place| Found {
            dataflow: "drive".to_owned(),
            parts: vec![Part {
                machine: None,
                keeper: PartKeeper::At(place, Err(String::new())),
                streams: Vec::new(),
                streams_omitted: 0,
            }],
        };
        let there = |machine: &str| Place::There {
            machine: machine.to_owned(),
            keeper: 7,
        };
        let here = Place::Here(KeeperAddress {
            domain: Domain::default(),
            dataflow: "drive".to_owned(),
            keeper: 7,
            uid: 0,
        });
        let all = [here, there("r01"), there("r02")].map(found);
        let labels = all.each_ref().map(|one| one.label(&all));
        assert_eq!(
            labels,
            [
                "drive (process 7)",
                "drive (process 7 on r01)",
                "drive (process 7 on r02)"
            ]
        );
        assert_eq!(all[1].label(&all[1..2]), "drive");
    }
}
