//! The parts of a running coordinator, and its callers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use nervure_identity::PublicKey;
use nervure_store::StoreError;
use tokio::task::spawn_blocking;

use crate::access::{self, Method};
use crate::api::{DAEMON, Refusal};
use crate::bundles::Bundles;
use crate::changes::Watcher;
use crate::connections::{Connections, End, IsPaired};
use crate::ends::{Copied, Ends};
use crate::pairing::{Caller, Members};
use crate::{Machine, Standing};

/// The parts of a coordinator that its requests share.
pub(crate) struct Service {
    pub members: Members,
    pub watcher: Arc<Watcher>,
    pub bundles: Bundles,
    pub ends: Arc<Ends>,
    pub on_copy: Box<dyn Fn(Machine, IpAddr, IpAddr) + Send + Sync>,
    pub connections: Connections,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("key", &self.members.key)
            .finish_non_exhaustive()
    }
}

impl IsPaired for Service {
    async fn is_paired(self: Arc<Self>, key: PublicKey) -> bool {
        matches!(self.caller(key).await, Ok(caller) if caller.is_paired())
    }
}

impl Service {
    /// The caller with a key.
    pub async fn caller(self: &Arc<Self>, key: PublicKey) -> Result<Caller, StoreError> {
        if key == self.members.key {
            return Ok(Caller::Own);
        }
        let service = Arc::clone(self);
        in_thread(move || service.members.caller(key)).await
    }

    /// Refuses the younger of two daemons with the key of a machine.
    async fn check_daemon(
        self: &Arc<Self>,
        caller: &Caller,
        from: &End,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        let Caller::Known(machine) = caller else {
            return Ok(());
        };
        let number = headers.get(DAEMON).and_then(|it| it.to_str().ok());
        let Some(number) = number.and_then(|it| it.parse().ok()) else {
            return Ok(());
        };
        let connect = || self.ends.connect(from.key, number, from.address);
        let _ = from.daemon.get_or_init(connect);
        let claimed = self.ends.claim(from.key, number, from.address).await;
        claimed.map_err(|Copied { older, is_first }| {
            if is_first {
                (self.on_copy)(machine.clone(), older, from.address);
            }
            let name = machine.name.clone();
            Refusal::Copied { name, older }
        })?;
        if machine.address != from.address {
            let (service, machine, address) = (Arc::clone(self), machine.clone(), from.address);
            // It is tried again with the next request.
            let _ = in_thread(move || service.members.moved(&machine, address)).await;
        }
        Ok(())
    }

    /// Removes a machine from the fleet, and ends its connections.
    pub fn revoke(&self, name: &str) -> Result<Machine, StoreError> {
        let machine = self.members.revoke(name)?;
        if let Ok(key) = machine.key.parse() {
            self.connections.close(key);
        }
        Ok(machine)
    }

    /// Removes bundles that no machine is to run.
    pub fn remove_unused_bundles(&self) {
        // A store that cannot be read now is tried again with the next bundle.
        let _ = self
            .bundles
            .remove_unused(&*self.members.store, SystemTime::now());
    }
}

/// Calls the store in a thread of its own.
pub(crate) async fn in_thread<T: Send + 'static, E: From<StoreError> + Send + 'static>(
    call: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    spawn_blocking(call).await.unwrap_or_else(|_| {
        let why = "the call panicked".to_owned();
        Err(StoreError::Unavailable(why).into())
    })
}

/// The caller of a request. Its daemon, if it is one, is no copy.
pub(crate) struct Admitted(pub Caller);

impl FromRequestParts<Arc<Service>> for Admitted {
    type Rejection = Refusal;

    async fn from_request_parts(
        parts: &mut Parts,
        service: &Arc<Service>,
    ) -> Result<Self, Refusal> {
        let from = parts.extensions.get::<Arc<End>>();
        let from = Arc::clone(from.expect("each request has the end of its connection"));
        let caller = service.caller(from.key).await?;
        let headers = &parts.headers;
        service.check_daemon(&caller, &from, headers).await?;
        Ok(Self(caller))
    }
}

/// The caller of a request, which belongs to the fleet.
pub(crate) struct Paired(pub Caller);

impl FromRequestParts<Arc<Service>> for Paired {
    type Rejection = Refusal;

    async fn from_request_parts(
        parts: &mut Parts,
        service: &Arc<Service>,
    ) -> Result<Self, Refusal> {
        let Admitted(caller) = Admitted::from_request_parts(parts, service).await?;
        match caller.is_paired() {
            true => Ok(Self(caller)),
            false => Err(not_paired(&caller)),
        }
    }
}

/// Whether the caller may use a method on a key.
pub(crate) fn check(caller: &Caller, method: Method, key: &str) -> Result<(), Refusal> {
    match caller {
        Caller::Own => Ok(()),
        Caller::Known(machine) if machine.is_coordinator() => Ok(()),
        Caller::Known(machine) if machine.standing == Standing::Paired => {
            let checked = access::check(&machine.name, machine.role, method, key);
            Ok(checked.map_err(|denied| StoreError::Refused(denied.to_string()))?)
        }
        Caller::Known(_) | Caller::Stranger(_) => Err(not_paired(caller)),
    }
}

/// The refusal of a machine that is not paired. Only an invited one learns more.
fn not_paired(caller: &Caller) -> Refusal {
    Refusal::NotPaired(match caller {
        Caller::Known(machine) => {
            let name = &machine.name;
            match machine.standing {
                Standing::Paired => format!("`{name}` is paired"),
                Standing::Waiting => {
                    format!("`{name}` waits for approval: `nervure machine approve {name}`")
                }
                Standing::Revoked => format!("`{name}` was revoked, and needs a new invitation"),
            }
        }
        Caller::Own | Caller::Stranger(_) => "it is not paired".to_owned(),
    })
}
