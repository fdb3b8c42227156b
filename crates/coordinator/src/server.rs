//! The coordinator: accepts connections, checks permissions, and calls the store.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use nervure_identity::{KeyPair, PublicKey};
use nervure_store::{Change, Revision, Store, StoreError};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

use crate::access;
use crate::api::{Answer, Call, MAX_BODY_BYTES, MAX_STRANGER_BODY_BYTES, MAX_WAIT_MILLIS};
use crate::bundles::{Bundles, Download};
use crate::changes::Watcher;
use crate::connections::{Answers, Connections, End};
use crate::ends::{Copied, DAEMON, Ends};
use crate::invitation::{Invitation, Terms};
use crate::pairing::{Caller, Members};
use crate::{
    Address, BUNDLES, INVITATIONS, MACHINES, MAX_BUNDLE_BYTES, Machine, PEER_TIMEOUT, Standing,
    own_addresses,
};
use nervure_http::places::unless_lost;

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
    shared: Arc<Shared>,
    runtime: Option<tokio::runtime::Runtime>,
}

struct Shared {
    members: Members,
    watcher: Arc<Watcher>,
    bundles: Bundles,
    ends: Arc<Ends>,
    on_copy: Box<dyn Fn(Machine, IpAddr, IpAddr) + Send + Sync>,
    connections: Connections,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("key", &self.members.key)
            .finish_non_exhaustive()
    }
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
        let shared = Arc::new(Shared {
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
        let for_bundles = Arc::clone(&shared);
        runtime.spawn_blocking(move || for_bundles.remove_unused_bundles());
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(listener).map_err(StartError::Threads)?
        };
        let answers = Arc::clone(&shared);
        runtime.spawn(
            shared
                .connections
                .clone()
                .serve(listener, config.key, answers),
        );
        Ok(Self {
            address,
            shared,
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
        self.shared.members.announce(announced(self.address))
    }

    /// Makes an invitation.
    ///
    /// # Errors
    /// [`StoreError`]; also when the system gives no random numbers, or too many are open.
    pub fn invite(&self, terms: Terms) -> Result<Invitation, StoreError> {
        Ok(Invitation {
            addresses: self.shared.members.invited_to(),
            coordinator: self.shared.members.key,
            secret: self.shared.members.invite(terms)?,
        })
    }

    /// Whether an invitation can still be used.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn is_open(&self, invitation: &Invitation) -> Result<bool, StoreError> {
        self.shared.members.is_open(&invitation.secret)
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.shared.watcher.end();
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

/// An answer: all of it in memory, or a bundle.
type Answered = Response<Either<Full<Bytes>, Download>>;

impl Answers for Shared {
    type Body = Either<Full<Bytes>, Download>;

    async fn is_paired(self: Arc<Self>, key: PublicKey) -> bool {
        matches!(self.caller(key).await, Ok(caller) if caller.is_paired())
    }

    async fn answer(self: Arc<Self>, from: Arc<End>, request: Request<Incoming>) -> Answered {
        let caller = match self.caller(from.key).await {
            Ok(caller) => caller,
            Err(error) => return text(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        };
        let path = request.uri().path().to_owned();
        if let Err(answer) = self.check_daemon(&caller, &from, &request).await {
            return match path.starts_with("/v1/bundles/") {
                true => empty(StatusCode::CONFLICT),
                false => json(&answer),
            };
        }
        match (request.method().clone(), path.strip_prefix("/v1/bundles/")) {
            (Method::POST, None) if path == "/v1/call" => {
                self.on_call(caller, &from, request).await
            }
            (_, Some(_)) if !caller.is_paired() => not_paired(&caller),
            (method, Some(name)) if is_digest(name) => {
                self.on_bundle(&caller, &method, name, request).await
            }
            _ => empty(StatusCode::NOT_FOUND),
        }
    }
}

impl Shared {
    /// Ends all connections of a machine.
    fn close(&self, key: &str) {
        if let Ok(key) = key.parse() {
            self.connections.close(key);
        }
    }

    async fn caller(self: &Arc<Self>, key: PublicKey) -> Result<Caller, StoreError> {
        if key == self.members.key {
            return Ok(Caller::Own);
        }
        let shared = Arc::clone(self);
        let found = spawn_blocking(move || shared.members.caller(key)).await;
        found.unwrap_or_else(|_| Err(StoreError::Unavailable("the call panicked".to_owned())))
    }

    async fn on_call(
        self: Arc<Self>,
        caller: Caller,
        from: &End,
        request: Request<Incoming>,
    ) -> Answered {
        let address = from.address;
        let most = match caller.is_paired() {
            true => MAX_BODY_BYTES,
            false => MAX_STRANGER_BODY_BYTES,
        };
        let body = match body(request, most).await {
            Ok(body) => body,
            Err(status) => return empty(status),
        };
        let call = match serde_json::from_slice(&body) {
            Ok(call @ Call::Join { .. }) => call,
            _ if !caller.is_paired() => return not_paired(&caller),
            Ok(call) => call,
            Err(_) => return empty(StatusCode::BAD_REQUEST),
        };
        let answer = match call {
            Call::Watch {
                prefix,
                after,
                wait_millis,
            } => {
                let by = (&caller, from.key);
                self.watch(by, &prefix, after, wait_millis).await
            }
            call => {
                let shared = Arc::clone(&self);
                let answer = spawn_blocking(move || shared.perform(&caller, address, call)).await;
                answer.unwrap_or_else(|_| Answer::Unavailable("the call panicked".to_owned()))
            }
        };
        json(&answer)
    }

    /// Refuses the younger of two daemons with the key of a machine.
    async fn check_daemon(
        self: &Arc<Self>,
        caller: &Caller,
        from: &End,
        request: &Request<Incoming>,
    ) -> Result<(), Answer> {
        let Caller::Known(machine) = caller else {
            return Ok(());
        };
        let number = request
            .headers()
            .get(DAEMON)
            .and_then(|it| it.to_str().ok());
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
            Answer::Copied { name, older }
        })?;
        if machine.address != from.address {
            let (shared, machine, address) = (Arc::clone(self), machine.clone(), from.address);
            // It is tried again with the next request.
            let _ = spawn_blocking(move || shared.members.moved(&machine, address)).await;
        }
        Ok(())
    }

    fn perform(&self, caller: &Caller, address: IpAddr, call: Call) -> Answer {
        let members = &self.members;
        let store = &*members.store;
        if let Err(denied) = check(caller, &call) {
            return Answer::Refused(denied.to_string());
        }
        let done = match call {
            Call::Join { secret, name } => return members.join(caller, address, &secret, name),
            Call::Invite(terms) => members.invite(terms).map(Answer::Invited),
            Call::Approve { name } => members.approve(&name).map(Answer::Managed),
            Call::Revoke { name } => members.revoke(&name).map(|machine| {
                self.close(&machine.key);
                Answer::Managed(machine)
            }),
            Call::Get { key } => store.get(&key).map(Answer::Entry),
            Call::Set {
                key,
                expected,
                value,
                lease,
            } => store
                .compare_and_set(&key, expected, value.as_deref(), lease)
                .map(Answer::Set),
            Call::List { prefix } => store.list(&prefix).map(|mut listing| {
                let may = |key: &str| may_read(caller, key);
                listing.entries.retain(|entry| may(&entry.key));
                Answer::Listing(listing)
            }),
            Call::Watch { .. } => unreachable!("a watch is not performed in a thread"),
            Call::Lease {
                lease,
                lifetime_nanos,
            } => store
                .lease(lease, Duration::from_nanos(lifetime_nanos))
                .map(Answer::Lease),
        };
        done.unwrap_or_else(Answer::from)
    }

    async fn watch(
        self: &Arc<Self>,
        (caller, key): (&Caller, PublicKey),
        prefix: &str,
        after: Revision,
        wait_millis: u64,
    ) -> Answer {
        if let Err(denied) = check_key(caller, access::Method::Watch, prefix) {
            return Answer::Refused(denied.to_string());
        }
        let wait = Duration::from_millis(wait_millis.min(MAX_WAIT_MILLIS));
        let may = |change: &Change| may_read(caller, &change.key);
        let store = &self.members.store;
        let changes = self.watcher.watch(store, prefix, after, wait, |changes| {
            changes.changes.iter().any(may)
        });
        let asks_again = self.ends.ask_again(key);
        let changes = match unless_lost(&asks_again, changes).await {
            Some(changes) => changes,
            // At once: the epoch is that of the store.
            None => {
                let at_once = Duration::ZERO;
                let watcher = &self.watcher;
                watcher.watch(store, prefix, after, at_once, |_| true).await
            }
        };
        match changes {
            Ok(mut changes) => {
                // Another coordinator of the same store may have revoked the machine meanwhile.
                if let Caller::Known(machine) = caller
                    && !matches!(self.caller(key).await, Ok(caller) if caller.is_paired())
                {
                    return Answer::Refused(standing_text(machine, Standing::Revoked));
                }
                changes.changes.retain(may);
                Answer::Changes(changes)
            }
            Err(error) => error.into(),
        }
    }

    async fn on_bundle(
        self: &Arc<Self>,
        caller: &Caller,
        method: &Method,
        name: &str,
        request: Request<Incoming>,
    ) -> Answered {
        let access = match *method {
            Method::PUT => access::Method::Set,
            _ => access::Method::Get,
        };
        if let Err(refused) = check_key(caller, access, &format!("{BUNDLES}{name}")) {
            return text(StatusCode::FORBIDDEN, refused.to_string());
        }
        let (shared, digest_text) = (Arc::clone(self), name.to_owned());
        match *method {
            Method::HEAD => {
                let has = spawn_blocking(move || shared.bundles.has(&digest_text)).await;
                empty(match has {
                    Ok(true) => StatusCode::OK,
                    _ => StatusCode::NOT_FOUND,
                })
            }
            Method::GET => {
                let opened = spawn_blocking(move || shared.bundles.download(&digest_text)).await;
                match opened {
                    Ok(Ok(download)) => Response::new(Either::Right(download)),
                    _ => empty(StatusCode::NOT_FOUND),
                }
            }
            Method::PUT => match self.receive_bundle(name, request.into_body()).await {
                Ok(()) => empty(StatusCode::OK),
                Err(answer) => answer,
            },
            _ => empty(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    /// Writes a bundle as it comes.
    async fn receive_bundle(self: &Arc<Self>, name: &str, body: Incoming) -> Result<(), Answered> {
        let (shared, digest) = (Arc::clone(self), name.to_owned());
        let begin = move || {
            shared.remove_unused_bundles();
            shared.bundles.upload(&digest)
        };
        let mut upload = on_disk(begin).await?;
        let mut body = Limited::new(body, MAX_BUNDLE_BYTES);
        loop {
            let frame = tokio::time::timeout(PEER_TIMEOUT, body.frame()).await;
            let frame = frame.map_err(|_| empty(StatusCode::REQUEST_TIMEOUT))?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|_| empty(StatusCode::PAYLOAD_TOO_LARGE))?;
            let Ok(piece) = frame.into_data() else {
                continue;
            };
            let write = move || upload.write(&piece).map(|()| upload);
            upload = on_disk(write).await?;
        }
        match on_disk(move || upload.finish()).await? {
            true => Ok(()),
            false => Err(empty(StatusCode::UNPROCESSABLE_ENTITY)),
        }
    }

    fn remove_unused_bundles(&self) {
        // A store that cannot be read now is tried again with the next bundle.
        let _ = self
            .bundles
            .remove_unused(&*self.members.store, SystemTime::now());
    }
}

/// Runs work that may block.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Answered> {
    match spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(text(StatusCode::INSUFFICIENT_STORAGE, error.to_string())),
        Err(_) => Err(empty(StatusCode::INTERNAL_SERVER_ERROR)),
    }
}

/// A caller may not make a call.
#[derive(Debug, thiserror::Error)]
enum Denied {
    #[error("{NOT_PAIRED}")]
    NotPaired,
    #[error(transparent)]
    Forbidden(#[from] access::Forbidden),
}

/// Whether the caller may make a call.
fn check(caller: &Caller, call: &Call) -> Result<(), Denied> {
    use access::Method;
    let (method, key) = match call {
        // Its secret is checked instead.
        Call::Join { .. } => return Ok(()),
        Call::Invite(_) => (Method::Manage, INVITATIONS.to_owned()),
        Call::Approve { name } | Call::Revoke { name } => {
            (Method::Manage, format!("{MACHINES}{name}"))
        }
        Call::Get { key } => (Method::Get, key.clone()),
        Call::Set {
            key, lease: None, ..
        } => (Method::Set, key.clone()),
        Call::Set { key, .. } => (Method::Lease, key.clone()),
        Call::List { prefix } => (Method::List, prefix.clone()),
        Call::Watch { prefix, .. } => (Method::Watch, prefix.clone()),
        Call::Lease { .. } => (Method::Lease, String::new()),
    };
    check_key(caller, method, &key)
}

fn check_key(caller: &Caller, method: access::Method, key: &str) -> Result<(), Denied> {
    match caller {
        Caller::Own => Ok(()),
        Caller::Known(machine) if machine.is_coordinator() => Ok(()),
        Caller::Known(machine) if machine.standing == Standing::Paired => {
            Ok(access::check(&machine.name, machine.role, method, key)?)
        }
        Caller::Known(_) | Caller::Stranger(_) => Err(Denied::NotPaired),
    }
}

fn may_read(caller: &Caller, key: &str) -> bool {
    check_key(caller, access::Method::Get, key).is_ok()
}

/// The answer to an end that is not paired. Only an invited machine learns more.
const NOT_PAIRED: &str = "it is not paired";

fn not_paired(caller: &Caller) -> Answered {
    let reason = match caller {
        Caller::Known(machine) => standing_text(machine, machine.standing),
        Caller::Own | Caller::Stranger(_) => NOT_PAIRED.to_owned(),
    };
    text(StatusCode::FORBIDDEN, reason)
}

fn standing_text(machine: &Machine, standing: Standing) -> String {
    let name = &machine.name;
    match standing {
        Standing::Paired => format!("`{name}` is paired"),
        Standing::Waiting => {
            format!("`{name}` waits for approval: `nervure machine approve {name}`")
        }
        Standing::Revoked => format!("`{name}` was revoked, and needs a new invitation"),
    }
}

async fn body(request: Request<Incoming>, most: usize) -> Result<Bytes, StatusCode> {
    let collect = Limited::new(request.into_body(), most).collect();
    match tokio::time::timeout(PEER_TIMEOUT, collect).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
    }
}

fn is_digest(name: &str) -> bool {
    name.len() == 64
        && name
            .bytes()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn json(answer: &Answer) -> Answered {
    let json = serde_json::to_vec(answer).expect("answers can be written as JSON");
    Response::new(Either::Left(Full::new(json.into())))
}

fn empty(status: StatusCode) -> Answered {
    text(status, String::new())
}

fn text(status: StatusCode, text: String) -> Answered {
    let mut response = Response::new(Either::Left(Full::new(text.into())));
    *response.status_mut() = status;
    response
}
