//! Lists the dataflows of this machine.

use std::sync::Arc;

use nervure_node::running::{self, Connection, ConnectionError};
use nervure_protocol::address::KeeperAddress;
use nervure_protocol::daemon_to_daemon::Listed;

use crate::folder::Folder;
use crate::runs;
use crate::sync::Live;

/// The most topics of a run whose samples a list counts, so that it fits into a message.
const MAX_STREAMS: usize = 256;

/// The dataflows of this machine, also those that the daemon has not started.
#[derive(Clone, Debug)]
pub(crate) struct Dataflows {
    /// The state of this machine on disk.
    pub folder: Folder,
    /// State of the streams to and from other machines.
    pub live: Arc<Live>,
}

impl Dataflows {
    /// Lists them. Their keepers are asked at the same time.
    pub fn list(&self) -> Vec<Listed> {
        let addresses = running::dataflows().unwrap_or_default();
        let opened = Connection::open_all(addresses, "list").into_iter();
        opened
            .filter_map(|(address, opened)| self.listed(&address, opened))
            .collect()
    }

    fn listed(
        &self,
        address: &KeeperAddress,
        opened: Result<Connection, ConnectionError>,
    ) -> Option<Listed> {
        let welcome = match opened {
            Ok(connection) => Ok(connection.welcome().clone()),
            Err(ConnectionError::Gone(_)) => return None,
            Err(error) => Err(error.to_string()),
        };
        let file = welcome.as_ref().ok().and_then(|it| it.file.as_deref());
        let run = file.and_then(|file| runs::run_of(&self.folder, file));
        let streams = run.as_deref().map(|run| self.live.streams(run));
        let mut streams = streams.unwrap_or_default();
        let streams_omitted = streams.len().saturating_sub(MAX_STREAMS);
        streams.truncate(MAX_STREAMS);
        Some(Listed {
            run,
            dataflow: address.dataflow.clone(),
            keeper: address.keeper,
            welcome,
            streams,
            streams_omitted,
        })
    }
}
