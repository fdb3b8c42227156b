//! A machine's connections to the coordinator.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use nervure_identity::{KeyPair, PublicKey, tls};
use nervure_store::{Changes, Entry, Expected, LeaseId, Listing, Revision, Store, StoreError};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::api::{Answer, Call, MAX_BODY_BYTES, MAX_WAIT_MILLIS};
use crate::{ALPN, Invitation, MAX_BUNDLE_BYTES, Machine, Terms, socket};

/// The longest time for a connection, and for an answer that has nothing to wait for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest time for a bundle of programs.
const BUNDLE_PATIENCE: Duration = Duration::from_secs(600);

/// The times after which a connection is attempted once more, each after the one before. RFC 8305, section
/// 8, recommends 250 ms between attempts.
const HEDGES: [Duration; 2] = [Duration::from_millis(250), Duration::from_millis(500)];

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
        /// What is wrong with it.
        reason: String,
    },
}

/// What has become of a machine that joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joining {
    /// It is paired, under this name.
    Paired(String),
    /// It waits for approval, under this name.
    Waiting(String),
}

/// The coordinator, as a client sees it. Calls from several threads do not wait for each other.
pub struct Client {
    address: SocketAddr,
    coordinator: PublicKey,
    tls: TlsConnector,
    runtime: Runtime,
    idle: Mutex<Vec<Connection>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Connection {
    send: SendRequest<Full<Bytes>>,
    local: IpAddr,
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
        let config = tls::client(own, Arc::new(coordinator), ALPN);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("nervure-client")
            .enable_all()
            .build()?;
        Ok(Self {
            address,
            coordinator,
            tls: TlsConnector::from(Arc::new(config)),
            runtime,
            idle: Mutex::default(),
        })
    }

    /// The address of the coordinator.
    pub fn address(&self) -> SocketAddr {
        self.address
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
            Answer::Invited(secret) => Ok(Invitation {
                address: self.address,
                coordinator: self.coordinator,
                secret,
            }),
            other => Err(self.unexpected(format!("{other:?}"))),
        }
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
        match self.call(call, PATIENCE)? {
            Answer::Refused(reason) => Err(self.refused(reason)),
            Answer::Unavailable(reason) => Err(self.unexpected(reason)),
            answer => Ok(answer),
        }
    }

    /// The address of this machine on the network of the coordinator.
    ///
    /// # Errors
    /// [`CallError::Unreachable`].
    pub fn local_address(&self) -> Result<IpAddr, CallError> {
        self.runtime.block_on(async {
            let connection = self.connection().await?;
            let local = connection.local;
            self.put_back(connection);
            Ok(local)
        })
    }

    /// Whether the coordinator has the bundle with this digest.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn has_bundle(&self, digest: &str) -> Result<bool, CallError> {
        let (status, _) =
            self.exchange(Method::HEAD, &bundle(digest), Bytes::new(), 0, PATIENCE)?;
        match status {
            StatusCode::OK => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            StatusCode::FORBIDDEN => Err(self.refused("it may not read bundles".to_owned())),
            other => Err(self.unexpected(other.to_string())),
        }
    }

    /// Gives the coordinator a bundle.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn put_bundle(&self, digest: &str, bytes: Vec<u8>) -> Result<(), CallError> {
        let (status, reason) = self.exchange(
            Method::PUT,
            &bundle(digest),
            bytes.into(),
            4096,
            BUNDLE_PATIENCE,
        )?;
        let reason = String::from_utf8_lossy(&reason).into_owned();
        match status {
            StatusCode::OK => Ok(()),
            StatusCode::FORBIDDEN => Err(self.refused(reason)),
            _ => Err(self.unexpected(format!("{status}: {reason}"))),
        }
    }

    /// Gets a bundle. Its content is that of the digest.
    ///
    /// # Errors
    /// [`CallError`], also if the coordinator has no such bundle.
    pub fn bundle(&self, digest: &str) -> Result<Vec<u8>, CallError> {
        let path = bundle(digest);
        let (status, bytes) = self.exchange(
            Method::GET,
            &path,
            Bytes::new(),
            MAX_BUNDLE_BYTES,
            BUNDLE_PATIENCE,
        )?;
        match status {
            StatusCode::OK if crate::digest(&bytes) == digest => Ok(bytes),
            StatusCode::OK => Err(self.unexpected("the bundle has another digest".to_owned())),
            StatusCode::FORBIDDEN => {
                Err(self.refused(String::from_utf8_lossy(&bytes).into_owned()))
            }
            _ => Err(self.unexpected(format!("it has no bundle {digest}: {status}"))),
        }
    }

    fn call(&self, call: &Call, patience: Duration) -> Result<Answer, CallError> {
        let body = serde_json::to_vec(call).expect("calls can be written as JSON");
        let (status, bytes) = self.exchange(
            Method::POST,
            "/v1/call",
            body.into(),
            MAX_BODY_BYTES,
            patience,
        )?;
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        match status {
            StatusCode::OK => {}
            StatusCode::FORBIDDEN => return Err(self.refused(text())),
            other => return Err(self.unexpected(format!("{other}: {}", text()))),
        }
        serde_json::from_slice(&bytes).map_err(|error| self.unexpected(error.to_string()))
    }

    /// Sends a request, and receives the answer. A connection that was idle may have been closed
    /// meanwhile: then a request that nothing was received for is sent on a new one.
    fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        most: usize,
        patience: Duration,
    ) -> Result<(StatusCode, Vec<u8>), CallError> {
        let exchange = async {
            loop {
                let idle = self
                    .idle
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop();
                let was_idle = idle.is_some();
                let mut connection = match idle {
                    // Its last answer may have been read just now.
                    Some(mut connection) => match connection.send.ready().await {
                        Ok(()) => connection,
                        Err(_) => continue,
                    },
                    None => self.connect().await?,
                };
                let request = Request::builder()
                    .method(method.clone())
                    .uri(path)
                    .header(hyper::header::HOST, "nervure")
                    .body(Full::new(body.clone()))
                    .expect("method and path are valid");
                let response = match connection.send.send_request(request).await {
                    Ok(response) => response,
                    Err(error)
                        if was_idle
                            && (error.is_canceled() || error.is_incomplete_message())
                            && method != Method::POST =>
                    {
                        continue;
                    }
                    Err(error) => return Err(self.unreachable(&error)),
                };
                let status = response.status();
                let body = Limited::new(response.into_body(), most).collect().await;
                let bytes = body
                    .map_err(|error| self.unexpected(error.to_string()))?
                    .to_bytes();
                self.put_back(connection);
                return Ok((status, bytes.into()));
            }
        };
        self.runtime.block_on(async {
            match tokio::time::timeout(patience, exchange).await {
                Ok(result) => result,
                Err(_) => Err(self.unreachable(&"it does not answer")),
            }
        })
    }

    async fn connection(&self) -> Result<Connection, CallError> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        match idle.filter(|connection| !connection.send.is_closed()) {
            Some(connection) => Ok(connection),
            None => self.connect().await,
        }
    }

    async fn connect(&self) -> Result<Connection, CallError> {
        let tls = self.tls.clone();
        let connect = connect_hedged(self.address, tls);
        let (stream, local) = match tokio::time::timeout(PATIENCE, connect).await {
            Ok(connected) => connected.map_err(|error| self.unreachable(&error))?,
            Err(_) => return Err(self.unreachable(&"no connection in time")),
        };
        let (send, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.unreachable(&error))?;
        tokio::spawn(connection);
        Ok(Connection { send, local })
    }

    fn put_back(&self, connection: Connection) {
        // One for each watch of a daemon, and for its calls.
        const MAX_IDLE: usize = 8;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }

    fn unreachable(&self, reason: &dyn std::fmt::Display) -> CallError {
        CallError::Unreachable {
            address: self.address,
            reason: reason.to_string(),
        }
    }

    fn refused(&self, reason: String) -> CallError {
        CallError::Refused {
            address: self.address,
            reason,
        }
    }

    fn unexpected(&self, reason: String) -> CallError {
        CallError::Unexpected {
            address: self.address,
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

type Connected = (TlsStream<TcpStream>, IpAddr);

/// Connects, with further attempts beside the first one while it takes long: the kernel repeats a
/// lost SYN after a second only.
async fn connect_hedged(address: SocketAddr, tls: TlsConnector) -> std::io::Result<Connected> {
    let mut attempts = JoinSet::new();
    let mut waits = HEDGES.iter();
    loop {
        attempts.spawn(connect_once(address, tls.clone()));
        let next = async {
            match waits.next() {
                Some(wait) => tokio::time::timeout(*wait, attempts.join_next()).await.ok(),
                None => Some(attempts.join_next().await),
            }
        };
        if let Some(Some(ended)) = next.await {
            return ended.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        }
    }
}

async fn connect_once(address: SocketAddr, tls: TlsConnector) -> std::io::Result<Connected> {
    let stream = TcpStream::connect(address).await?;
    socket::tune(&stream)?;
    let local = stream.local_addr()?.ip();
    // The name is not sent, and not checked: the key is.
    let name = ServerName::IpAddress(address.ip().into());
    Ok((tls.connect(name, stream).await?, local))
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
            PATIENCE,
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
            PATIENCE,
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
            PATIENCE,
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
        match self.store_call(&call, PATIENCE + Duration::from_millis(wait_millis))? {
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
            PATIENCE,
        )? {
            Answer::Lease(lease) => Ok(lease),
            other => mismatch(&other),
        }
    }
}
