//! A machine's connections to the coordinator.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use nervure_identity::{KeyPair, PublicKey, tls};
use nervure_store::{Changes, Entry, Expected, LeaseId, Listing, Revision, Store, StoreError};
use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::api::{Answer, Call, MAX_BODY_BYTES, MAX_WAIT_MILLIS, copied_text};
use crate::ends::DAEMON;
use crate::{
    ALPN, Address, Invitation, MACHINES, MAX_BUNDLE_BYTES, Machine, PEER_TIMEOUT, Terms, socket,
};

/// Time limit for a bundle of programs: the largest at 4 Mbit/s.
const BUNDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// The time after which the next address is attempted in parallel, or the first one once more (RFC 8305,
/// section 8).
const NEXT_ATTEMPT: Duration = Duration::from_millis(250);

/// Number of attempts in addition to one for each address.
const HEDGES: usize = 2;

/// Time limit for a connection where another address can be asked. A lost packet is sent once more within
/// it (after 1 s, RFC 6298).
const CONNECT_TIMEOUT_OF_SEVERAL: Duration = Duration::from_millis(2500);

/// Why a call had no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no connection, or it was lost.
    #[error("the coordinator at {address} cannot be reached: {reason}")]
    Unreachable {
        /// Its address.
        address: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// The coordinator refused the call.
    #[error("the coordinator at {address} refuses this machine: {reason}")]
    Refused {
        /// Its address.
        address: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// The answer is none of this protocol.
    #[error("the coordinator at {address} gave an unexpected answer: {reason}")]
    Unexpected {
        /// Its address.
        address: SocketAddr,
        /// The reason.
        reason: String,
    },
}

/// The state of a machine after it has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joining {
    /// It is paired, under this name.
    Paired(String),
    /// It waits for approval, under this name.
    Waiting(String),
}

/// Address and key of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub address: SocketAddr,
    /// Its key.
    pub key: PublicKey,
}

/// A client of the coordinators. Calls from several threads do not wait for each other.
///
/// It asks one of several coordinators, and turns to the next one if that cannot be reached, does not
/// answer, or has lost its store. Pending reads are repeated there. A write that was sent and has no answer
/// fails, since it may have happened.
pub struct Client {
    coordinators: Arc<Coordinators>,
    tls: TlsConnector,
    runtime: Runtime,
    idle: Mutex<Vec<Connection>>,
    /// The number of the daemon that uses this client.
    daemon: OnceLock<u64>,
    is_copy: AtomicBool,
    reached: Mutex<Option<(PublicKey, IpAddr)>>,
}

/// The coordinators of the fleet, which is never empty. The first one is asked.
#[derive(Debug)]
struct Coordinators(watch::Sender<Vec<Endpoint>>);

impl Coordinators {
    fn asked(&self) -> Endpoint {
        self.0.borrow()[0]
    }

    /// Turns to the next coordinator, unless another thread has done so. Further addresses of the same one
    /// are skipped.
    fn leave(&self, asked: Endpoint) {
        self.0.send_if_modified(|all| {
            let next = all.iter().position(|one| one.key != asked.key);
            let next = next.filter(|_| all[0] == asked);
            all.rotate_left(next.unwrap_or(0));
            next.is_some()
        });
    }

    /// Ends the calls to a coordinator that does not answer, and turns to its next address, or to the next
    /// coordinator.
    fn avoid(&self, key: PublicKey) {
        self.0.send_if_modified(|all| {
            let is_asked = all[0].key == key && all.len() > 1;
            all.rotate_left(usize::from(is_asked));
            is_asked
        });
    }

    /// Uses this address from now on, to which there is a connection.
    fn prefer(&self, connected: Endpoint) {
        self.0.send_if_modified(|all| {
            let is_asked = all[0].key == connected.key && all[0] != connected;
            let at = all.iter().position(|one| *one == connected);
            let at = at.filter(|_| is_asked);
            if let Some(at) = at {
                all[..=at].rotate_right(1);
            }
            at.is_some()
        });
    }

    /// The addresses of a coordinator, beginning with one.
    fn addresses(&self, first: Endpoint) -> Vec<Endpoint> {
        let all = self.0.borrow();
        let others = all
            .iter()
            .filter(|one| one.key == first.key && **one != first);
        std::iter::once(first).chain(others.copied()).collect()
    }
}

/// Accepts the key of any coordinator. The peer's identity is known after the handshake.
impl tls::Accept for Coordinators {
    fn accepts(&self, peer: PublicKey) -> bool {
        self.0.borrow().iter().any(|known| known.key == peer)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("coordinators", &self.coordinators)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Connection {
    to: Endpoint,
    send: SendRequest<Full<Bytes>>,
    local: IpAddr,
}

/// Why an exchange had no result.
enum Fault {
    /// The request was not sent.
    NotSent(CallError),
    /// There is no answer. The request may have been carried out.
    NotAnswered(CallError),
    /// Every coordinator would give this answer.
    Refused(CallError),
}

impl Fault {
    fn may_repeat(&self, is_read: bool) -> bool {
        match self {
            Self::NotSent(_) => true,
            Self::NotAnswered(_) => is_read,
            Self::Refused(_) => false,
        }
    }

    fn into_error(self) -> CallError {
        let (Self::NotSent(error) | Self::NotAnswered(error) | Self::Refused(error)) = self;
        error
    }
}

type Exchanged = Result<(StatusCode, Vec<u8>), Fault>;

/// A request, which can be sent several times.
struct Ask<'a> {
    method: Method,
    path: &'a str,
    body: Bytes,
    /// The largest answer, in bytes.
    most: usize,
    patience: Duration,
    /// Whether it changes nothing.
    is_read: bool,
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
        let coordinators = Arc::new(Coordinators(watch::Sender::new(vec![first])));
        let accept = Arc::clone(&coordinators) as Arc<dyn tls::Accept>;
        let config = tls::client(own, accept, ALPN);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("nervure-client")
            .enable_all()
            .build()?;
        Ok(Self {
            coordinators,
            tls: TlsConnector::from(Arc::new(config)),
            runtime,
            idle: Mutex::default(),
            daemon: OnceLock::new(),
            is_copy: AtomicBool::new(false),
            reached: Mutex::default(),
        })
    }

    /// Identifies the daemon that uses this client by the number of its place: of two daemons with one key
    /// in different places, the younger is refused.
    pub fn identify(&self, daemon: u64) {
        let _ = self.daemon.set(daemon);
    }

    /// Whether the last call was refused because an older daemon with the same key lives.
    pub fn is_copy(&self) -> bool {
        self.is_copy.load(Ordering::Relaxed)
    }

    /// Sets the coordinators, in the order in which they are asked. The present one stays first if it is
    /// among them. An empty list is ignored.
    pub fn set_coordinators(&self, all: &[Endpoint]) {
        if all.is_empty() {
            return;
        }
        self.coordinators.0.send_if_modified(|known| {
            let mut all = all.to_vec();
            let asked = all.iter().position(|one| *one == known[0]);
            let asked = asked.or_else(|| all.iter().position(|one| one.key == known[0].key));
            all.rotate_left(asked.unwrap_or(0));
            let has_changed = *known != all;
            *known = all;
            has_changed
        });
    }

    /// Turns from the coordinator with this key to its next address, or to the next coordinator, if there
    /// is one: its machine does not answer.
    pub fn avoid(&self, key: PublicKey) {
        self.coordinators.avoid(key);
    }

    /// The IP address at which a coordinator was reached last.
    pub fn reached(&self, key: PublicKey) -> Option<IpAddr> {
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.filter(|(of, _)| *of == key).map(|(_, ip)| ip)
    }

    /// The address of the coordinator that is asked.
    pub fn address(&self) -> SocketAddr {
        self.coordinators.asked().address
    }

    /// Pairs this machine, or asks whether it is paired.
    ///
    /// # Errors
    /// [`CallError::Refused`] if the secret is not valid or the name is taken.
    pub fn join(&self, secret: &str, name: &str) -> Result<Joining, CallError> {
        let call = Call::Join {
            secret: secret.to_owned(),
            name: name.to_owned(),
        };
        match self.permitted(&call)? {
            Answer::Joined { name } => Ok(Joining::Paired(name)),
            Answer::Waiting { name } => Ok(Joining::Waiting(name)),
            other => Err(self.unexpected(format!("{other:?}"))),
        }
    }

    /// Makes an invitation.
    ///
    /// # Errors
    /// [`CallError::Refused`] if this machine is no operator, or too many are open.
    pub fn invite(&self, terms: Terms) -> Result<Invitation, CallError> {
        match self.permitted(&Call::Invite(terms))? {
            // Any coordinator takes it: the one asked now can be reached.
            Answer::Invited(secret) => {
                let asked = self.coordinators.asked();
                Ok(Invitation {
                    addresses: self.invited_to(asked),
                    coordinator: asked.key,
                    secret,
                })
            }
            other => Err(self.unexpected(format!("{other:?}"))),
        }
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
        self.managed(&Call::Approve { name })
    }

    /// Takes a machine out of the fleet.
    ///
    /// # Errors
    /// [`CallError::Refused`] if this machine is no operator, or there is no such machine.
    pub fn revoke(&self, name: &str) -> Result<Machine, CallError> {
        let name = name.to_owned();
        self.managed(&Call::Revoke { name })
    }

    fn managed(&self, call: &Call) -> Result<Machine, CallError> {
        match self.permitted(call)? {
            Answer::Managed(machine) => Ok(machine),
            other => Err(self.unexpected(format!("{other:?}"))),
        }
    }

    /// The answer to a call that is not of the store.
    fn permitted(&self, call: &Call) -> Result<Answer, CallError> {
        match self.call(call, PEER_TIMEOUT)? {
            Answer::Refused(reason) => Err(self.refused(reason)),
            Answer::Copied { name, older } => Err(self.refused(copied_text(&name, older))),
            Answer::Unavailable(reason) => Err(self.unexpected(reason)),
            answer => Ok(answer),
        }
    }

    /// The address of this machine on the network of the coordinator.
    ///
    /// # Errors
    /// [`CallError::Unreachable`].
    pub fn local_address(&self) -> Result<IpAddr, CallError> {
        let is_done = |_: &IpAddr| true;
        self.each(true, is_done, |asked| {
            self.runtime.block_on(async {
                let connection = self.connection(asked).await?;
                let local = connection.local;
                self.put_back(connection);
                Ok(local)
            })
        })
    }

    /// Connects to a coordinator, or gives up after this time.
    ///
    /// # Errors
    /// [`CallError::Unreachable`].
    pub fn connect_within(&self, patience: Duration) -> Result<(), CallError> {
        let connect = async {
            let mut failure = None;
            for one in self.all() {
                match self.connection(one).await {
                    Ok(connection) => {
                        self.put_back(connection);
                        return Ok(());
                    }
                    Err(fault) => failure = Some(fault.into_error()),
                }
            }
            Err(failure
                .unwrap_or_else(|| unreachable(self.coordinators.asked(), &"it is not known")))
        };
        let connected = self
            .runtime
            .block_on(async { tokio::time::timeout(patience, connect).await });
        connected.unwrap_or_else(|_| {
            let text = format!("no connection within {patience:?}");
            Err(unreachable(self.coordinators.asked(), &text))
        })
    }

    /// Whether all coordinators that can be reached have the bundle with this digest.
    ///
    /// # Errors
    /// [`CallError`], if none can be reached or one refuses.
    pub fn has_bundle(&self, digest: &str) -> Result<bool, CallError> {
        let mut failure = None;
        let mut has_all = None;
        for one in self.all() {
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
        let path = bundle(digest);
        let (status, _) = self.exchange(one, &Ask::new(Method::HEAD, &path, 0, PEER_TIMEOUT))?;
        match status {
            StatusCode::OK => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            StatusCode::FORBIDDEN => {
                let error = self.refused("it may not read bundles".to_owned());
                Err(Fault::Refused(error))
            }
            other => Err(Fault::NotAnswered(self.unexpected(other.to_string()))),
        }
    }

    /// Gives a bundle to each coordinator that lacks it and can be reached, so that no machine depends
    /// on one of them for it.
    ///
    /// # Errors
    /// [`CallError`], if none has it then.
    pub fn put_bundle(&self, digest: &str, bytes: Vec<u8>) -> Result<(), CallError> {
        let (path, bytes) = (bundle(digest), Bytes::from(bytes));
        let all = self.all();
        let (mut is_there, mut failure) = (false, None);
        for one in &all {
            if all.len() > 1 && matches!(self.has_bundle_at(*one, digest), Ok(true)) {
                is_there = true;
                continue;
            }
            let put = Ask {
                body: bytes.clone(),
                ..Ask::new(Method::PUT, &path, 4096, BUNDLE_TIMEOUT)
            };
            let (status, reason) = match self.exchange(*one, &put) {
                Ok(answered) => answered,
                Err(fault) => {
                    failure = Some(fault.into_error());
                    continue;
                }
            };
            let reason = String::from_utf8_lossy(&reason).into_owned();
            match status {
                StatusCode::OK => is_there = true,
                StatusCode::FORBIDDEN => failure = Some(self.refused(reason)),
                _ => failure = Some(self.unexpected(format!("{status}: {reason}"))),
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
        let path = bundle(digest);
        let get = Ask::new(Method::GET, &path, MAX_BUNDLE_BYTES, BUNDLE_TIMEOUT);
        let mut failure = None;
        for one in self.all() {
            let (status, bytes) = match self.exchange(one, &get) {
                Ok(answered) => answered,
                Err(fault) => {
                    failure = failure.or(Some(fault.into_error()));
                    continue;
                }
            };
            let error = match status {
                StatusCode::OK if crate::digest(&bytes) == digest => return Ok(bytes),
                StatusCode::OK => self.unexpected("the bundle has another digest".to_owned()),
                StatusCode::FORBIDDEN => {
                    return Err(self.refused(String::from_utf8_lossy(&bytes).into_owned()));
                }
                _ => self.unexpected(format!("it has no bundle {digest}: {status}")),
            };
            failure = failure.or(Some(error));
        }
        Err(failure.expect("there is a coordinator"))
    }

    /// The coordinators, each with its first address.
    fn all(&self) -> Vec<Endpoint> {
        let mut all = self.coordinators.0.borrow().clone();
        let mut keys = HashSet::new();
        all.retain(|one| keys.insert(one.key));
        all
    }

    fn call(&self, call: &Call, patience: Duration) -> Result<Answer, CallError> {
        let body = serde_json::to_vec(call).expect("calls can be written as JSON");
        let is_read = matches!(
            call,
            Call::Get { .. } | Call::List { .. } | Call::Watch { .. }
        );
        let ask = Ask {
            body: body.into(),
            is_read,
            ..Ask::new(Method::POST, "/v1/call", MAX_BODY_BYTES, patience)
        };
        // One coordinator may have lost its store while another one has it.
        let is_done = |answer: &Answer| !matches!(answer, Answer::Unavailable(_));
        self.each(is_read, is_done, |asked| {
            let (status, bytes) = self.exchange(asked, &ask)?;
            let text = || String::from_utf8_lossy(&bytes).into_owned();
            match status {
                StatusCode::OK => {}
                StatusCode::SERVICE_UNAVAILABLE => return Ok(Answer::Unavailable(text())),
                StatusCode::FORBIDDEN => return Err(Fault::Refused(self.refused(text()))),
                other => {
                    let error = self.unexpected(format!("{other}: {}", text()));
                    return Err(Fault::NotAnswered(error));
                }
            }
            let answer = serde_json::from_slice(&bytes);
            let is_copy = matches!(answer, Ok(Answer::Copied { .. }));
            self.is_copy.store(is_copy, Ordering::Relaxed);
            answer.map_err(|error| Fault::NotAnswered(self.unexpected(error.to_string())))
        })
    }

    /// Asks each coordinator at most once: turns to the next one if `is_done` rejects the result, and the
    /// request may be repeated.
    fn each<T>(
        &self,
        is_read: bool,
        is_done: impl Fn(&T) -> bool,
        ask: impl Fn(Endpoint) -> Result<T, Fault>,
    ) -> Result<T, CallError> {
        let mut asked_so_far = 0;
        loop {
            let asked = self.coordinators.asked();
            let result = ask(asked);
            asked_so_far += 1;
            let may_repeat = match &result {
                Ok(answer) if is_done(answer) => return result.map_err(Fault::into_error),
                Ok(_) => is_read,
                Err(Fault::Refused(_)) => return result.map_err(Fault::into_error),
                Err(fault) => fault.may_repeat(is_read),
            };
            self.coordinators.leave(asked);
            // More may be known than before.
            if asked_so_far >= self.all().len() || !may_repeat {
                return result.map_err(Fault::into_error);
            }
        }
    }

    /// Sends a request to a coordinator, and receives the answer. An idle connection may have been closed
    /// meanwhile: a request without any answer is then sent on a new one.
    fn exchange(&self, to: Endpoint, ask: &Ask<'_>) -> Exchanged {
        let exchange = async {
            loop {
                let idle = self.take_idle(to);
                let was_idle = idle.is_some();
                let mut connection = match idle {
                    // Its last answer may have been read just now.
                    Some(mut connection) => match connection.send.ready().await {
                        Ok(()) => connection,
                        Err(_) => continue,
                    },
                    None => self.connect(to).await?,
                };
                let mut request = Request::builder()
                    .method(ask.method.clone())
                    .uri(ask.path)
                    .header(hyper::header::HOST, "nervure");
                if let Some(number) = self.daemon.get() {
                    request = request.header(DAEMON, *number);
                }
                let request = request
                    .body(Full::new(ask.body.clone()))
                    .expect("method and path are valid");
                let response = match connection.send.send_request(request).await {
                    Ok(response) => response,
                    Err(error)
                        if was_idle
                            && (error.is_canceled() || error.is_incomplete_message())
                            && ask.method != Method::POST =>
                    {
                        continue;
                    }
                    Err(error) if error.is_canceled() => {
                        return Err(Fault::NotSent(unreachable(to, &error)));
                    }
                    Err(error) => return Err(Fault::NotAnswered(unreachable(to, &error))),
                };
                let status = response.status();
                let body = Limited::new(response.into_body(), ask.most).collect().await;
                let bytes = body
                    .map_err(|error| Fault::NotAnswered(self.unexpected(error.to_string())))?
                    .to_bytes();
                self.put_back(connection);
                return Ok((status, bytes.into()));
            }
        };
        let not_answered = |reason: &str| Err(Fault::NotAnswered(unreachable(to, &reason)));
        self.runtime.block_on(async {
            let mut exchange = pin!(tokio::time::timeout(ask.patience, exchange));
            let mut left = pin!(self.left(to));
            let first = std::future::poll_fn(|context| {
                if let Poll::Ready(result) = exchange.as_mut().poll(context) {
                    return Poll::Ready(
                        result.unwrap_or_else(|_| not_answered("it does not answer")),
                    );
                }
                match ask.is_read && left.as_mut().poll(context).is_ready() {
                    true => Poll::Ready(not_answered("another coordinator is asked")),
                    false => Poll::Pending,
                }
            });
            first.await
        })
    }

    /// Waits until another coordinator is asked instead of this one.
    async fn left(&self, asked: Endpoint) {
        let mut coordinators = self.coordinators.0.subscribe();
        let was_asked = coordinators.borrow_and_update()[0] == asked;
        let is_left = |all: &Vec<Endpoint>| was_asked && all[0] != asked;
        // The sender lives as long as this client.
        drop(coordinators.wait_for(is_left).await);
    }

    fn take_idle(&self, to: Endpoint) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let at = idle.iter().rposition(|connection| connection.to == to)?;
        Some(idle.remove(at))
    }

    async fn connection(&self, to: Endpoint) -> Result<Connection, Fault> {
        match self.take_idle(to).filter(|it| !it.send.is_closed()) {
            Some(connection) => Ok(connection),
            None => self.connect(to).await,
        }
    }

    async fn connect(&self, to: Endpoint) -> Result<Connection, Fault> {
        let failed = |reason: &dyn std::fmt::Display| Fault::NotSent(unreachable(to, reason));
        let patience = match self.coordinators.0.borrow().len() {
            1 => PEER_TIMEOUT,
            _ => CONNECT_TIMEOUT_OF_SEVERAL,
        };
        let addresses = self.coordinators.addresses(to);
        let connect = connect_hedged(&addresses, self.tls.clone());
        let (stream, to) = match tokio::time::timeout(patience, connect).await {
            Ok(connected) => connected.map_err(|error| failed(&error))?,
            Err(_) => return Err(failed(&"no connection in time")),
        };
        let ips = stream.get_ref().0;
        let ips = ips
            .local_addr()
            .and_then(|own| Ok((own.ip(), ips.peer_addr()?.ip())));
        let (local, there) = ips.map_err(|error| failed(&error))?;
        *self.reached.lock().unwrap_or_else(PoisonError::into_inner) = Some((to.key, there));
        self.coordinators.prefer(to);
        let (send, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        tokio::spawn(connection);
        Ok(Connection { to, send, local })
    }

    fn put_back(&self, connection: Connection) {
        // One for each watch of a daemon, and for its calls.
        const MAX_IDLE: usize = 8;
        let asked = self.coordinators.asked();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connection| connection.to == asked);
        if idle.len() < MAX_IDLE && connection.to == asked {
            idle.push(connection);
        }
    }

    fn refused(&self, reason: String) -> CallError {
        CallError::Refused {
            address: self.address(),
            reason,
        }
    }

    fn unexpected(&self, reason: String) -> CallError {
        CallError::Unexpected {
            address: self.address(),
            reason,
        }
    }

    fn store_call(&self, call: &Call, patience: Duration) -> Result<Answer, StoreError> {
        let answer = self.call(call, patience).map_err(|error| match error {
            CallError::Refused { .. } => StoreError::Refused(error.to_string()),
            _ => StoreError::Unavailable(error.to_string()),
        });
        answer?.error()
    }
}

type Connected = (TlsStream<TcpStream>, Endpoint);

/// Connects to a coordinator at one of its addresses. The next one is attempted when the one before has
/// failed, or in parallel while it takes long. The first ones get further attempts: the kernel repeats a
/// lost SYN only after a second.
async fn connect_hedged(to: &[Endpoint], tls: TlsConnector) -> std::io::Result<Connected> {
    let mut attempts = JoinSet::new();
    let (mut fresh, mut hedges) = (to.iter(), to.iter().cycle().take(HEDGES));
    let mut next = fresh.next();
    let mut failure = std::io::Error::other("it has no address");
    loop {
        if let Some(one) = next {
            attempts.spawn(connect_once(*one, tls.clone()));
        }
        match tokio::time::timeout(NEXT_ATTEMPT, attempts.join_next()).await {
            Ok(Some(ended)) => {
                match ended.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
                    Ok(connected) => return Ok(connected),
                    Err(error) => failure = error,
                }
                next = fresh.next();
            }
            Ok(None) => return Err(failure),
            Err(_) => next = fresh.next().or_else(|| hedges.next()),
        }
    }
}

async fn connect_once(to: Endpoint, tls: TlsConnector) -> std::io::Result<Connected> {
    let stream = TcpStream::connect(to.address).await?;
    socket::tune(&stream)?;
    // The name is not sent, and not checked: the key is.
    let name = ServerName::IpAddress(to.address.ip().into());
    let connected = tls.connect(name, stream).await;
    let stream = connected.map_err(|error| match is_of_other_key(&error) {
        true => another_coordinator(),
        false => error,
    })?;
    let certificates = stream.get_ref().1.peer_certificates();
    match certificates.and_then(tls::peer_key) {
        Some(key) if key == to.key => Ok((stream, to)),
        _ => Err(another_coordinator()),
    }
}

/// Whether the other end has proved a key of no coordinator.
fn is_of_other_key(error: &std::io::Error) -> bool {
    let inner = error.get_ref();
    matches!(
        inner.and_then(|inner| inner.downcast_ref()),
        Some(rustls::Error::InvalidCertificate(
            CertificateError::ApplicationVerificationFailure
        ))
    )
}

fn another_coordinator() -> std::io::Error {
    std::io::Error::other(
        "another coordinator answers there, which has not the key that is expected (that of the invitation, or of \
         the pairing)",
    )
}

impl<'a> Ask<'a> {
    /// A request without a body.
    fn new(method: Method, path: &'a str, most: usize, patience: Duration) -> Self {
        Self {
            method,
            path,
            body: Bytes::new(),
            most,
            patience,
            is_read: false,
        }
    }
}

fn unreachable(to: Endpoint, reason: &dyn std::fmt::Display) -> CallError {
    CallError::Unreachable {
        address: to.address,
        reason: reason.to_string(),
    }
}

fn bundle(digest: &str) -> String {
    format!("/v1/bundles/{digest}")
}

fn mismatch<T>(answer: &Answer) -> Result<T, StoreError> {
    Err(StoreError::Unavailable(format!(
        "unexpected answer {answer:?}"
    )))
}

impl Store for Client {
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        match self.store_call(
            &Call::Get {
                key: key.to_owned(),
            },
            PEER_TIMEOUT,
        )? {
            Answer::Entry(entry) => Ok(entry),
            other => mismatch(&other),
        }
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Expected,
        value: Option<&[u8]>,
        lease: Option<LeaseId>,
    ) -> Result<Revision, StoreError> {
        let (key, value) = (key.to_owned(), value.map(<[u8]>::to_owned));
        match self.store_call(
            &Call::Set {
                key,
                expected,
                value,
                lease,
            },
            PEER_TIMEOUT,
        )? {
            Answer::Set(revision) => Ok(revision),
            other => mismatch(&other),
        }
    }

    fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        match self.store_call(
            &Call::List {
                prefix: prefix.to_owned(),
            },
            PEER_TIMEOUT,
        )? {
            Answer::Listing(listing) => Ok(listing),
            other => mismatch(&other),
        }
    }

    fn watch(
        &self,
        prefix: &str,
        after: Revision,
        timeout: Duration,
    ) -> Result<Changes, StoreError> {
        let wait_millis = u64::try_from(timeout.as_millis())
            .unwrap_or(u64::MAX)
            .min(MAX_WAIT_MILLIS);
        let call = Call::Watch {
            prefix: prefix.to_owned(),
            after,
            wait_millis,
        };
        match self.store_call(&call, PEER_TIMEOUT + Duration::from_millis(wait_millis))? {
            Answer::Changes(changes) => Ok(changes),
            other => mismatch(&other),
        }
    }

    fn lease(&self, lease: Option<LeaseId>, lifetime: Duration) -> Result<LeaseId, StoreError> {
        let lifetime_nanos = u64::try_from(lifetime.as_nanos()).unwrap_or(u64::MAX);
        match self.store_call(
            &Call::Lease {
                lease,
                lifetime_nanos,
            },
            PEER_TIMEOUT,
        )? {
            Answer::Lease(lease) => Ok(lease),
            other => mismatch(&other),
        }
    }
}
