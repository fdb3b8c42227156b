//! A machine's calls to the coordinators.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use nervure_http::{Method, StatusCode};
use nervure_identity::{KeyPair, PublicKey};
use nervure_store::{Changes, Entry, Expected, LeaseId, Listing, Revision, Store, StoreError};

use crate::api::{
    Approve, Call, Get, Invite, Join, Lease, List, MAX_BODY_BYTES, Refusal, Revoke, Set, Watch,
    bundle_path,
};
use crate::call_error::CallError;
use crate::endpoints::Endpoint;
use crate::requests::{Ask, Fault, Requests};
use crate::{
    Address, Invitation, Joining, MACHINES, MAX_BUNDLE_BYTES, Machine, PEER_TIMEOUT, Terms,
};

/// Time limit for a bundle of programs: the largest at 4 Mbit/s.
const BUNDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// A client of the coordinators. Calls from several threads do not wait for each other.
///
/// It asks one of several coordinators, and turns to the next one if that cannot be reached, does not
/// answer, or has lost its store. Pending reads are repeated there. A write that was sent and has no answer
/// fails, since it may have happened.
pub struct Client {
    requests: Requests,
    is_copy: AtomicBool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("coordinators", &self.requests.coordinators)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the coordinator with that key. It connects with the first call.
    ///
    /// # Errors
    /// When its thread cannot be started.
    pub fn new(
        address: SocketAddr,
        coordinator: PublicKey,
        own: &KeyPair,
    ) -> std::io::Result<Self> {
        let first = Endpoint {
            address,
            key: coordinator,
        };
        Ok(Self {
            requests: Requests::new(first, own)?,
            is_copy: AtomicBool::new(false),
        })
    }

    /// Identifies the daemon that uses this client by the number of its place: of two daemons with one key
    /// in different places, the younger is refused.
    pub fn identify(&self, daemon: u64) {
        let _ = self.requests.daemon.set(daemon);
    }

    /// Whether the last call was refused because an older daemon with the same key lives.
    pub fn is_copy(&self) -> bool {
        self.is_copy.load(Ordering::Relaxed)
    }

    /// Sets the coordinators, in the order in which they are asked. The present one stays first if it is
    /// among them. An empty list is ignored.
    pub fn set_coordinators(&self, all: &[Endpoint]) {
        self.requests.coordinators.set(all);
    }

    /// Turns from the coordinator with this key to its next address, or to the next coordinator, if there
    /// is one: its machine does not answer.
    pub fn avoid(&self, key: PublicKey) {
        self.requests.coordinators.avoid(key);
    }

    /// The IP address at which a coordinator was reached last.
    pub fn reached(&self, key: PublicKey) -> Option<IpAddr> {
        self.requests.reached(key)
    }

    /// The address of the coordinator that is asked.
    pub fn address(&self) -> SocketAddr {
        self.requests.coordinators.asked().address
    }

    /// The address of this machine on the network of the coordinator.
    ///
    /// # Errors
    /// [`CallError::Unreachable`].
    pub fn local_address(&self) -> Result<IpAddr, CallError> {
        self.requests.local_address()
    }

    /// Connects to a coordinator, or gives up after this time.
    ///
    /// # Errors
    /// [`CallError::Unreachable`].
    pub fn connect_within(&self, patience: Duration) -> Result<(), CallError> {
        self.requests.connect_within(patience)
    }

    /// Pairs this machine, or asks whether it is paired.
    ///
    /// # Errors
    /// [`CallError::Refused`] if the secret is not valid or the name is taken.
    pub fn join(&self, secret: &str, name: &str) -> Result<Joining, CallError> {
        self.permitted(&Join {
            secret: secret.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Makes an invitation.
    ///
    /// # Errors
    /// [`CallError::Refused`] if this machine is no operator, or too many are open.
    pub fn invite(&self, terms: Terms) -> Result<Invitation, CallError> {
        let secret = self.permitted(&Invite { terms })?;
        // Any coordinator takes it: the one asked now can be reached.
        let asked = self.requests.coordinators.asked();
        Ok(Invitation {
            addresses: self.invited_to(asked),
            coordinator: asked.key,
            secret,
        })
    }

    /// The addresses of a coordinator for others, from its entry: this machine may be its own, and reach it
    /// on the loopback.
    fn invited_to(&self, asked: Endpoint) -> Vec<Address> {
        const MOST: usize = 4;
        let key = asked.key.to_string();
        let entries = self
            .list(MACHINES)
            .map_or_else(|_| Vec::new(), |it| it.entries);
        let mut machines = entries
            .iter()
            .filter_map(|it| serde_json::from_slice::<Machine>(&it.value).ok());
        let of_key = machines.find(|machine| machine.key == key);
        let Some(coordinator) = of_key.and_then(|machine| machine.coordinator) else {
            return vec![asked.address.into()];
        };
        let others = coordinator.others.into_iter();
        let others = others.filter(|other| other.ip().is_some());
        let all = std::iter::once(coordinator.address.into()).chain(others);
        all.take(MOST).collect()
    }

    /// Pairs a machine that waits for approval.
    ///
    /// # Errors
    /// [`CallError::Refused`] if this machine is no operator, or the other does not wait.
    pub fn approve(&self, name: &str) -> Result<Machine, CallError> {
        let name = name.to_owned();
        self.permitted(&Approve { name })
    }

    /// Takes a machine out of the fleet.
    ///
    /// # Errors
    /// [`CallError::Refused`] if this machine is no operator, or there is no such machine.
    pub fn revoke(&self, name: &str) -> Result<Machine, CallError> {
        let name = name.to_owned();
        self.permitted(&Revoke { name })
    }

    /// Whether all coordinators that can be reached have the bundle with this digest.
    ///
    /// # Errors
    /// [`CallError`], if none can be reached or one refuses.
    pub fn has_bundle(&self, digest: &str) -> Result<bool, CallError> {
        let mut failure = None;
        let mut has_all = None;
        for one in self.requests.coordinators.all() {
            match self.has_bundle_at(one, digest) {
                Ok(has) => has_all = Some(has && has_all.unwrap_or(true)),
                Err(Fault::Refused(error)) => return Err(error),
                Err(fault) => failure = Some(fault.into_error()),
            }
        }
        match (has_all, failure) {
            (Some(has_all), _) => Ok(has_all),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(false),
        }
    }

    fn has_bundle_at(&self, one: Endpoint, digest: &str) -> Result<bool, Fault> {
        let head = of_bundle(Method::HEAD, digest, 0, PEER_TIMEOUT);
        let (status, _) = self.requests.exchange(one, &head)?;
        match status {
            StatusCode::OK => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            StatusCode::FORBIDDEN => {
                let error = refused(one, "it may not read bundles".to_owned());
                Err(Fault::Refused(error))
            }
            other => Err(Fault::NotAnswered(unexpected(one, other.to_string()))),
        }
    }

    /// Gives a bundle to each coordinator that lacks it and can be reached, so that no machine depends
    /// on one of them for it.
    ///
    /// # Errors
    /// [`CallError`], if none has it then.
    pub fn put_bundle(&self, digest: &str, bytes: Vec<u8>) -> Result<(), CallError> {
        let put = Ask {
            body: bytes.into(),
            ..of_bundle(Method::PUT, digest, 4096, BUNDLE_TIMEOUT)
        };
        let all = self.requests.coordinators.all();
        let (mut is_there, mut failure) = (false, None);
        for one in &all {
            if all.len() > 1 && matches!(self.has_bundle_at(*one, digest), Ok(true)) {
                is_there = true;
                continue;
            }
            let (status, reason) = match self.requests.exchange(*one, &put) {
                Ok(answered) => answered,
                Err(fault) => {
                    failure = Some(fault.into_error());
                    continue;
                }
            };
            let reason = text(&reason);
            match status {
                StatusCode::OK => is_there = true,
                StatusCode::FORBIDDEN => failure = Some(refused(*one, reason)),
                _ => failure = Some(unexpected(*one, format!("{status}: {reason}"))),
            }
        }
        match failure.filter(|_| !is_there) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Gets a bundle, from the first coordinator that has it. Its content is that of the digest.
    ///
    /// # Errors
    /// [`CallError`], also if no coordinator has such a bundle.
    pub fn bundle(&self, digest: &str) -> Result<Vec<u8>, CallError> {
        let get = of_bundle(Method::GET, digest, MAX_BUNDLE_BYTES, BUNDLE_TIMEOUT);
        let mut failure = None;
        for one in self.requests.coordinators.all() {
            let (status, bytes) = match self.requests.exchange(one, &get) {
                Ok(answered) => answered,
                Err(fault) => {
                    failure = failure.or(Some(fault.into_error()));
                    continue;
                }
            };
            let error = match status {
                StatusCode::OK if crate::digest(&bytes) == digest => return Ok(bytes.into()),
                StatusCode::OK => unexpected(one, "the bundle has another digest".to_owned()),
                StatusCode::FORBIDDEN => return Err(refused(one, text(&bytes))),
                _ => unexpected(one, format!("it has no bundle {digest}: {status}")),
            };
            failure = failure.or(Some(error));
        }
        Err(failure.expect("there is a coordinator"))
    }

    /// The result of a call that is not of the store.
    fn permitted<C: Call>(&self, call: &C) -> Result<C::Answer, CallError> {
        let (asked, result) = self.call(call)?;
        result.map_err(|refusal| match refusal {
            Refusal::NotPaired(_)
            | Refusal::Copied { .. }
            | Refusal::Store(StoreError::Refused(_)) => refused(asked, refusal.to_string()),
            Refusal::Store(error) => unexpected(asked, error.to_string()),
        })
    }

    /// The result of a call of the store.
    fn stored<C: Call>(&self, call: &C) -> Result<C::Answer, StoreError> {
        let unavailable = |error: CallError| StoreError::Unavailable(error.to_string());
        let (asked, result) = self.call(call).map_err(unavailable)?;
        result.map_err(|refusal| {
            StoreError::Refused(match refusal {
                Refusal::Store(error) => return error,
                Refusal::Copied { .. } => refusal.to_string(),
                Refusal::NotPaired(reason) => refused(asked, reason).to_string(),
            })
        })
    }

    /// Makes a call. Returns the coordinator that has answered, and its answer.
    fn call<C: Call>(&self, call: &C) -> Result<(Endpoint, Result<C::Answer, Refusal>), CallError> {
        let body = serde_json::to_vec(call).expect("calls can be written as JSON");
        let ask = Ask {
            method: Method::POST,
            path: C::PATH.to_owned(),
            body: body.into(),
            most: MAX_BODY_BYTES,
            patience: call.patience(),
            is_read: C::IS_READ,
        };
        // One coordinator may have lost its store while another one has it.
        let is_done = |(_, answer): &(Endpoint, Result<C::Answer, Refusal>)| {
            !matches!(answer, Err(Refusal::Store(StoreError::Unavailable(_))))
        };
        self.requests.each(C::IS_READ, is_done, |asked| {
            let (status, bytes) = self.requests.exchange(asked, &ask)?;
            let not_answered = |reason| Fault::NotAnswered(unexpected(asked, reason));
            if status != StatusCode::OK {
                return Err(not_answered(format!("{status}: {}", text(&bytes))));
            }
            let answer: Result<C::Answer, Refusal> =
                serde_json::from_slice(&bytes).map_err(|error| not_answered(error.to_string()))?;
            let is_copy = matches!(answer, Err(Refusal::Copied { .. }));
            self.is_copy.store(is_copy, Ordering::Relaxed);
            Ok((asked, answer))
        })
    }
}

/// A request for a bundle, without a body.
fn of_bundle(method: Method, digest: &str, most: usize, patience: Duration) -> Ask {
    Ask {
        method,
        path: bundle_path(digest),
        body: Bytes::new(),
        most,
        patience,
        is_read: false,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn refused(by: Endpoint, reason: String) -> CallError {
    CallError::Refused {
        address: by.address,
        reason,
    }
}

fn unexpected(from: Endpoint, reason: String) -> CallError {
    CallError::Unexpected {
        address: from.address,
        reason,
    }
}

impl Store for Client {
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        let key = key.to_owned();
        self.stored(&Get { key })
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Expected,
        value: Option<&[u8]>,
        lease: Option<LeaseId>,
    ) -> Result<Revision, StoreError> {
        self.stored(&Set {
            key: key.to_owned(),
            expected,
            value: value.map(<[u8]>::to_owned),
            lease,
        })
    }

    fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        let prefix = prefix.to_owned();
        self.stored(&List { prefix })
    }

    fn watch(
        &self,
        prefix: &str,
        after: Revision,
        timeout: Duration,
    ) -> Result<Changes, StoreError> {
        self.stored(&Watch {
            prefix: prefix.to_owned(),
            after,
            wait_millis: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn lease(&self, lease: Option<LeaseId>, lifetime: Duration) -> Result<LeaseId, StoreError> {
        self.stored(&Lease {
            lease,
            lifetime_nanos: u64::try_from(lifetime.as_nanos()).unwrap_or(u64::MAX),
        })
    }
}
