//! The coordinator: listens, and serves the store.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nervure_identity::KeyPair;
use nervure_store::{Store, StoreError};
use tokio::net::TcpListener;

use crate::bundles::Bundles;
use crate::calls::router;
use crate::changes::Watcher;
use crate::connections::Connections;
use crate::invitation::{Invitation, Terms};
use crate::pairing::Members;
use crate::service::Service;
use crate::{Address, Machine, own_addresses};

/// How long the end of a coordinator waits for its threads.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Threads for calls of the store. None of them waits for a change.
const MAX_THREADS: usize = 16;

/// Configuration of a coordinator.
pub struct Config {
    /// The address to listen on.
    pub address: SocketAddr,
    /// Its key, which clients pin. Clients with the same key are on its machine, and may do
    /// everything; so may those of other coordinators.
    pub key: KeyPair,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The folder of bundles, which exists.
    pub bundles: PathBuf,
    /// Called with each machine that has paired, waits for approval, or was revoked.
    pub on_change: Box<dyn Fn(Machine) + Send + Sync>,
    /// Called with a machine whose key a second daemon has, which is refused, and with the addresses of the
    /// older and the younger one.
    pub on_copy: Box<dyn Fn(Machine, IpAddr, IpAddr) + Send + Sync>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Why a coordinator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The threads cannot be started.
    #[error("cannot start the coordinator's threads: {0}")]
    Threads(io::Error),
}

/// A running coordinator. It ends when this is dropped.
#[derive(Debug)]
pub struct Coordinator {
    address: SocketAddr,
    service: Arc<Service>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Coordinator {
    /// Starts to listen and to serve.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: Config) -> Result<Self, StartError> {
        let failed = |error| StartError::Bind {
            address: config.address,
            error,
        };
        let listener = std::net::TcpListener::bind(config.address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(MAX_THREADS)
            .thread_name("nervure-coord")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let service = Arc::new(Service {
            watcher: Watcher::start(Arc::clone(&config.store)).map_err(StartError::Threads)?,
            members: Members {
                key: config.key.public(),
                listens: address,
                announced: Mutex::new(announced(address)),
                store: config.store,
                on_change: config.on_change,
            },
            bundles: Bundles::new(config.bundles),
            ends: Arc::default(),
            on_copy: config.on_copy,
            connections: Connections::default(),
        });
        let for_bundles = Arc::clone(&service);
        runtime.spawn_blocking(move || for_bundles.remove_unused_bundles());
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(listener).map_err(StartError::Threads)?
        };
        let connections = service.connections.clone();
        runtime.spawn(connections.serve(
            listener,
            config.key,
            Arc::clone(&service),
            router(Arc::clone(&service)),
        ));
        Ok(Self {
            address,
            service,
            runtime: Some(runtime),
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Looks at the addresses of this machine, if it listens on all of them, and announces them to the
    /// machines of the fleet when they have changed.
    ///
    /// # Errors
    /// [`StoreError`]: they are announced with the next call.
    pub fn announce(&self) -> Result<(), StoreError> {
        self.service.members.announce(announced(self.address))
    }

    /// Makes an invitation.
    ///
    /// # Errors
    /// [`StoreError`]; also when the system gives no random numbers, or too many are open.
    pub fn invite(&self, terms: Terms) -> Result<Invitation, StoreError> {
        Ok(Invitation {
            addresses: self.service.members.invited_to(),
            coordinator: self.service.members.key,
            secret: self.service.members.invite(terms)?,
        })
    }

    /// Whether an invitation can still be used.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn is_open(&self, invitation: &Invitation) -> Result<bool, StoreError> {
        self.service.members.is_open(&invitation.secret)
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.service.watcher.end();
        if let Some(runtime) = self.runtime.take() {
            // Connections and the listener are closed when this returns.
            runtime.shutdown_timeout(SHUTDOWN);
        }
    }
}

/// The addresses of a coordinator that listens there.
fn announced(listens: SocketAddr) -> Vec<Address> {
    match listens.ip().is_unspecified() {
        true => own_addresses(listens.port()),
        false => vec![listens.into()],
    }
}
