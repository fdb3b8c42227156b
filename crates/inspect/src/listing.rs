//! The running dataflows, here and on other machines of the fleet.

use nervure_node::running::{self, Connection, ConnectionError};
use nervure_protocol::{address::KeeperAddress, daemon_to_cli::NodeState, keeper_to_cli::Welcome};

use crate::{
    Error,
    answers::{Described, ListedDataflow, Listing, OfOtherUser, UnreachableMachine},
    places::{self, Everything, Found, Part, PartKeeper, Place},
};

/// The running dataflows.
///
/// # Errors
/// If the system does not list them, or the state folder of this machine cannot be used.
pub fn listing() -> Result<Listing, Error> {
    gather().map(|gathered| Listing::of(&gathered))
}

/// Everything that runs, as rows.
#[derive(Debug)]
pub struct Gathered {
    /// The machines of the fleet.
    pub everything: Everything,
    /// Each dataflow, or in a fleet each part of one.
    pub rows: Vec<Row>,
    /// Dataflows of other users of this host.
    pub others: Vec<KeeperAddress>,
}

/// A dataflow, or a part of one.
#[derive(Debug)]
pub struct Row {
    /// The name of the dataflow.
    pub dataflow: String,
    /// `None` without a fleet.
    pub machine: Option<String>,
    /// Process id of the keeper, unless its machine cannot be reached.
    pub keeper: Option<u32>,
    /// The user of the keeper, if it is on this host.
    pub uid: Option<u32>,
    /// The answer of the keeper, or the reason why there is none.
    pub welcome: Result<Welcome, String>,
    /// Running nodes and all nodes in the last report of a machine that cannot be reached.
    pub last_nodes: Option<(usize, usize)>,
}

/// Asks all keepers, including those that do not answer, and those of other machines of the fleet.
///
/// # Errors
/// As [`listing`].
pub fn gather() -> Result<Gathered, Error> {
    let everything = places::everything()?;
    let mut rows = Vec::new();
    match &everything.own {
        Some(_) => {
            let rows_of = |found: &Found| {
                let row = |part: &Part| Row::of_part(&found.dataflow, part);
                found.parts.iter().map(row).collect::<Vec<_>>()
            };
            rows.extend(everything.dataflows.iter().flat_map(rows_of));
        }
        None => {
            for (address, opened) in Connection::open_all(running::dataflows()?, "list") {
                match opened {
                    // The dataflow ended meanwhile.
                    Err(ConnectionError::Gone(_)) => {}
                    opened => rows.push(Row::of_host(&address, opened)),
                }
            }
        }
    }
    Ok(Gathered {
        others: running::dataflows_of_others()?,
        everything,
        rows,
    })
}

impl Listing {
    /// The rows as an answer.
    pub fn of(gathered: &Gathered) -> Self {
        let other = |one: &KeeperAddress| OfOtherUser {
            dataflow: one.dataflow.clone(),
            keeper: one.keeper,
            uid: one.uid,
        };
        let away = gathered.everything.unreachable.iter();
        Self {
            dataflows: gathered.rows.iter().map(Row::answer).collect(),
            of_other_users: gathered.others.iter().map(other).collect(),
            unreachable: away.map(UnreachableMachine::from).collect(),
        }
    }
}

impl Row {
    fn of_host(address: &KeeperAddress, opened: Result<Connection, ConnectionError>) -> Self {
        Self {
            dataflow: address.dataflow.clone(),
            machine: None,
            keeper: Some(address.keeper),
            uid: Some(address.uid),
            welcome: opened
                .map(|connection| connection.welcome().clone())
                .map_err(|error| error.to_string()),
            last_nodes: None,
        }
    }

    fn of_part(dataflow: &str, part: &Part) -> Self {
        let (keeper, uid, welcome, last_nodes) = match &part.keeper {
            PartKeeper::At(place, welcome) => {
                let uid = match place {
                    Place::Here(address) => Some(address.uid),
                    Place::There { .. } => None,
                };
                (Some(place.keeper()), uid, welcome.clone(), None)
            }
            PartKeeper::Unreachable(away) => {
                let ran = away
                    .nodes
                    .values()
                    .filter(|state| **state == NodeState::Running);
                let nodes = Some((ran.count(), away.nodes.len()));
                (None, None, Err(away.text()), nodes)
            }
        };
        Self {
            dataflow: dataflow.to_owned(),
            machine: part.machine.clone(),
            keeper,
            uid,
            welcome,
            last_nodes,
        }
    }

    fn answer(&self) -> ListedDataflow {
        let described = self.welcome.as_ref().ok().map(|welcome| Described {
            state: welcome.state,
            started_utc_nanos: welcome.started_utc_nanos,
            nodes: welcome.nodes,
            running: welcome.running,
            observers: welcome.observers,
            detached: welcome.detached,
            folder: welcome.folder.clone(),
            log_folder: welcome.log_folder.clone(),
        });
        ListedDataflow {
            dataflow: self.dataflow.clone(),
            keeper: self.keeper,
            uid: self.uid,
            machine: self.machine.clone(),
            described,
            error: self.welcome.as_ref().err().cloned(),
        }
    }
}
