//! The coordinator: accepts connections, decides who may do what, and calls the store.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nervure_identity::{KeyPair, PublicKey, tls};
use nervure_store::{Expected, Store, StoreError};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsAcceptor;

use crate::api::{Answer, Call, MAX_BODY_BYTES, MAX_STRANGER_BODY_BYTES, MAX_WAIT_MILLIS};
use crate::invitation::Invitation;
use crate::{
    ACTUAL, ALPN, DESIRED, MACHINES, MAX_BUNDLE_BYTES, Machine, check_machine_name, digest,
    hexadecimal,
};

/// The longest handshake, and pause within a request: a slow client holds a connection no longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest time for a request with a bundle.
const BUNDLE_PATIENCE: Duration = Duration::from_secs(600);

/// How long the end of a coordinator waits for its threads.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Connections at a time, in all and of ends that are not known to be paired.
const MAX_CONNECTIONS: usize = 2048;
const MAX_STRANGERS: usize = 64;

/// What a coordinator needs.
pub struct Config {
    /// The address to listen on.
    pub address: SocketAddr,
    /// Its key, which clients pin. Clients with the same key are on its machine, and may do
    /// everything.
    pub key: KeyPair,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The folder of bundles, which exists.
    pub bundles: PathBuf,
    /// Called with each machine that has paired.
    pub on_paired: Box<dyn Fn(Machine) + Send + Sync>,
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
    key: PublicKey,
    store: Arc<dyn Store>,
    bundles: PathBuf,
    invitations: Mutex<Vec<Invited>>,
    on_paired: Box<dyn Fn(Machine) + Send + Sync>,
    connections: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// An invitation that was not used yet. The secret itself is not kept.
struct Invited {
    secret_digest: String,
    until: Instant,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
enum Caller {
    /// The coordinator's own machine.
    Own,
    /// A paired machine, by name.
    Paired(String),
    Stranger(PublicKey),
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
            .thread_name("nervure-coord")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        // Pairing needs a handshake with a key that is not known yet. What such an end may do is
        // decided for each request.
        let tls = tls::server(&config.key, Arc::new(AnyKey), ALPN);
        let shared = Arc::new(Shared {
            key: config.key.public(),
            store: config.store,
            bundles: config.bundles,
            invitations: Mutex::default(),
            on_paired: config.on_paired,
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            strangers: Arc::new(Semaphore::new(MAX_STRANGERS)),
        });
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(listener).map_err(StartError::Threads)?
        };
        runtime.spawn(accept(
            listener,
            TlsAcceptor::from(Arc::new(tls)),
            Arc::clone(&shared),
        ));
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

    /// Makes an invitation, which is valid for one machine and this long.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn invite(&self, lifetime: Duration) -> Result<Invitation, io::Error> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        let secret = hexadecimal(&secret);
        let now = Instant::now();
        let mut invitations = self.shared.invitations();
        invitations.retain(|invited| invited.until > now);
        invitations.push(Invited {
            secret_digest: digest(secret.as_bytes()),
            until: now + lifetime,
        });
        Ok(Invitation {
            address: self.address,
            coordinator: self.shared.key,
            secret,
        })
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Connections and the listener are closed when this returns. A watch in a thread of its
            // own may wait for a change for a minute, and is left behind.
            runtime.shutdown_timeout(SHUTDOWN);
        }
    }
}

/// Any end may complete a handshake.
#[derive(Debug)]
struct AnyKey;

impl tls::Accept for AnyKey {
    fn accepts(&self, _: PublicKey) -> bool {
        true
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, shared: Arc<Shared>) {
    loop {
        let Ok(permit) = Arc::clone(&shared.connections).acquire_owned().await else {
            return;
        };
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                // Out of descriptors: connections end meanwhile.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            serve(stream, address.ip(), tls, shared).await;
            drop(permit);
        });
    }
}

async fn serve(stream: TcpStream, address: IpAddr, tls: TlsAcceptor, shared: Arc<Shared>) {
    // Until its key is known, an end counts as a stranger; beyond their number it is let go.
    let Ok(permit) = Arc::clone(&shared.strangers).try_acquire_owned() else {
        return;
    };
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, tls.accept(stream)).await else {
        return;
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let Some(key) = certificates.and_then(tls::peer_key) else {
        return;
    };
    let is_stranger = matches!(shared.caller(key).await, Caller::Stranger(_));
    // A stranger keeps its place among strangers until it is gone.
    let _permit = is_stranger.then_some(permit);
    let for_requests = Arc::clone(&shared);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&for_requests);
        async move { Ok::<_, hyper::Error>(shared.answer(key, address, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(if is_stranger {
            PATIENCE
        } else {
            Duration::from_secs(3600)
        })
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    if is_stranger {
        let _ = tokio::time::timeout(2 * PATIENCE, connection).await;
    } else {
        let _ = connection.await;
    }
}

impl Shared {
    fn invitations(&self) -> std::sync::MutexGuard<'_, Vec<Invited>> {
        self.invitations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn caller(self: &Arc<Self>, key: PublicKey) -> Caller {
        if key == self.key {
            return Caller::Own;
        }
        let store = Arc::clone(&self.store);
        let found = spawn_blocking(move || machine_with(&*store, key)).await;
        match found.ok().flatten() {
            Some(machine) => Caller::Paired(machine.name),
            None => Caller::Stranger(key),
        }
    }

    async fn answer(
        self: Arc<Self>,
        key: PublicKey,
        address: IpAddr,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let caller = self.caller(key).await;
        let path = request.uri().path().to_owned();
        match (request.method().clone(), path.strip_prefix("/v1/bundles/")) {
            (Method::POST, None) if path == "/v1/call" => {
                self.on_call(caller, address, request).await
            }
            (_, Some(_)) if matches!(caller, Caller::Stranger(_)) => empty(StatusCode::FORBIDDEN),
            (method, Some(name)) if is_digest(name) => self.on_bundle(&method, name, request).await,
            _ => empty(StatusCode::NOT_FOUND),
        }
    }

    async fn on_call(
        self: Arc<Self>,
        caller: Caller,
        address: IpAddr,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let most = match caller {
            Caller::Stranger(_) => MAX_STRANGER_BODY_BYTES,
            _ => MAX_BODY_BYTES,
        };
        let body = match body(request, most, PATIENCE).await {
            Ok(body) => body,
            Err(status) => return empty(status),
        };
        let call = match (serde_json::from_slice(&body), &caller) {
            (Ok(call @ Call::Join { .. }), _) => call,
            (_, Caller::Stranger(_)) => return empty(StatusCode::FORBIDDEN),
            (Ok(call), _) => call,
            (Err(_), _) => return empty(StatusCode::BAD_REQUEST),
        };
        let answer = spawn_blocking(move || self.perform(&caller, address, call)).await;
        let answer = answer.unwrap_or_else(|_| Answer::Unavailable("the call panicked".to_owned()));
        let json = serde_json::to_vec(&answer).expect("answers can be written as JSON");
        Response::new(Full::new(json.into()))
    }

    fn perform(&self, caller: &Caller, address: IpAddr, call: Call) -> Answer {
        let store = &*self.store;
        let done = match call {
            Call::Join { secret, name } => return self.join(caller, address, &secret, name),
            Call::Get { key } => store.get(&key).map(Answer::Entry),
            Call::Set { key, .. } if !may_write(caller, &key) => {
                return Answer::Refused(format!("this machine may not write `{key}`"));
            }
            Call::Set {
                key,
                expected,
                value,
                lease,
            } => store
                .compare_and_set(&key, expected, value.as_deref(), lease)
                .map(Answer::Set),
            Call::List { prefix } => store.list(&prefix).map(Answer::Listing),
            Call::Watch {
                prefix,
                after,
                wait_millis,
            } => {
                let wait = Duration::from_millis(wait_millis.min(MAX_WAIT_MILLIS));
                store.watch(&prefix, after, wait).map(Answer::Changes)
            }
            Call::Lease {
                lease,
                lifetime_nanos,
            } => store
                .lease(lease, Duration::from_nanos(lifetime_nanos))
                .map(Answer::Lease),
        };
        done.unwrap_or_else(Answer::from)
    }

    /// Pairs a machine. A wrong, used or expired secret gives no detail.
    fn join(&self, caller: &Caller, address: IpAddr, secret: &str, name: String) -> Answer {
        let refused = || Answer::Refused("the invitation is not valid".to_owned());
        let key = match caller {
            Caller::Own => self.key,
            Caller::Paired(known) if *known == name => return Answer::Joined,
            Caller::Paired(known) => {
                return Answer::Refused(format!("this machine is paired already, as `{known}`"));
            }
            Caller::Stranger(key) => *key,
        };
        // The digests are compared: their difference says nothing about the secret.
        let offered = digest(secret.as_bytes());
        let now = Instant::now();
        let is_valid = |invited: &Invited| invited.until > now && invited.secret_digest == offered;
        if !matches!(caller, Caller::Own) && !self.invitations().iter().any(is_valid) {
            return refused();
        }
        if let Err(why) = check_machine_name(&name) {
            return Answer::Refused(why);
        }
        let machine = Machine {
            name,
            key: key.to_string(),
            address,
        };
        let json = serde_json::to_vec(&machine).expect("a machine can be written as JSON");
        let entry = format!("{MACHINES}{}", machine.name);
        // Taken out before it is used: it is valid once, also for two machines at a time. A name
        // that is taken does not use it up.
        let taken = {
            let mut invitations = self.invitations();
            let place = invitations.iter().position(is_valid);
            place.map(|place| invitations.remove(place))
        };
        if taken.is_none() && !matches!(caller, Caller::Own) {
            return refused();
        }
        match self
            .store
            .compare_and_set(&entry, Expected::Absent, Some(&json), None)
        {
            Ok(_) => {
                (self.on_paired)(machine);
                Answer::Joined
            }
            Err(StoreError::Conflict { .. }) => {
                self.invitations().extend(taken);
                Answer::Refused(format!("there is another machine `{}`", machine.name))
            }
            Err(error) => {
                self.invitations().extend(taken);
                error.into()
            }
        }
    }

    async fn on_bundle(
        &self,
        method: &Method,
        name: &str,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let path = self.bundles.join(name);
        match *method {
            Method::HEAD => empty(match path.is_file() {
                true => StatusCode::OK,
                false => StatusCode::NOT_FOUND,
            }),
            Method::GET => match spawn_blocking(move || std::fs::read(path)).await {
                Ok(Ok(bytes)) => Response::new(Full::new(bytes.into())),
                _ => empty(StatusCode::NOT_FOUND),
            },
            Method::PUT => match body(request, MAX_BUNDLE_BYTES, BUNDLE_PATIENCE).await {
                Err(status) => empty(status),
                Ok(bytes) if digest(&bytes) != name => empty(StatusCode::UNPROCESSABLE_ENTITY),
                Ok(bytes) => match spawn_blocking(move || write_whole(&path, &bytes)).await {
                    Ok(Ok(())) => empty(StatusCode::OK),
                    Ok(Err(error)) => text(StatusCode::INSUFFICIENT_STORAGE, error.to_string()),
                    Err(_) => empty(StatusCode::INTERNAL_SERVER_ERROR),
                },
            },
            _ => empty(StatusCode::METHOD_NOT_ALLOWED),
        }
    }
}

/// A paired machine writes what machines are to do, and what it does itself.
fn may_write(caller: &Caller, key: &str) -> bool {
    match caller {
        Caller::Own => true,
        Caller::Paired(name) => {
            key.starts_with(DESIRED) || key.strip_prefix(ACTUAL).is_some_and(|of| of == name)
        }
        Caller::Stranger(_) => false,
    }
}

fn machine_with(store: &dyn Store, key: PublicKey) -> Option<Machine> {
    let text = key.to_string();
    let machines = store.list(MACHINES).ok()?.entries;
    let machines = machines
        .iter()
        .map(|entry| serde_json::from_slice::<Machine>(&entry.value));
    machines.flatten().find(|machine| machine.key == text)
}

async fn body(
    request: Request<Incoming>,
    most: usize,
    patience: Duration,
) -> Result<Bytes, StatusCode> {
    let collect = Limited::new(request.into_body(), most).collect();
    match tokio::time::timeout(patience, collect).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
    }
}

fn write_whole(path: &std::path::Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{:?}", std::thread::current().id()));
    std::fs::write(&temporary, bytes)
        .and_then(|()| std::fs::rename(&temporary, path))
        .inspect_err(|_| drop(std::fs::remove_file(&temporary)))
}

fn is_digest(name: &str) -> bool {
    name.len() == 64
        && name
            .bytes()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    text(status, String::new())
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}
