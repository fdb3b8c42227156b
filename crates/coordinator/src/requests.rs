//! Requests to the coordinators, over connections that are kept.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use nervure_http::{Error, Method, Request, StatusCode, header};
use nervure_identity::{KeyPair, PublicKey, tls};
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

use crate::api::DAEMON;
use crate::call_error::CallError;
use crate::dial::connect_hedged;
use crate::endpoints::{Coordinators, Endpoint};
use crate::{ALPN, PEER_TIMEOUT};

/// Time limit for a connection where another address can be asked. A lost packet is sent once more within
/// it (after 1 s, RFC 6298).
const CONNECT_TIMEOUT_OF_SEVERAL: Duration = Duration::from_millis(2500);

/// Idle connections: one for each watch of a daemon, and for its calls.
const MAX_IDLE: usize = 8;

/// Sends requests to coordinators.
pub(crate) struct Requests {
    pub coordinators: Arc<Coordinators>,
    /// The number of the daemon that sends them.
    pub daemon: OnceLock<u64>,
    tls: TlsConnector,
    runtime: Runtime,
    idle: Mutex<Vec<Connection>>,
    reached: Mutex<Option<(PublicKey, IpAddr)>>,
}

struct Connection {
    to: Endpoint,
    http: nervure_http::Connection,
    local: IpAddr,
}

/// A request, which can be sent several times.
#[derive(Clone)]
pub(crate) struct Ask {
    pub method: Method,
    pub path: String,
    pub body: Bytes,
    /// The largest answer, in bytes.
    pub most: usize,
    pub patience: Duration,
    /// Whether it changes nothing.
    pub is_read: bool,
}

/// Status and body of an answer.
pub(crate) type Answered = (StatusCode, Bytes);

/// Why an exchange had no result.
pub(crate) enum Fault {
    /// The request was not sent.
    NotSent(CallError),
    /// There is no answer. The request may have been carried out.
    NotAnswered(CallError),
    /// Every coordinator would give this answer.
    Refused(CallError),
}

impl Fault {
    fn new(to: Endpoint, error: &Error) -> Self {
        match error {
            Error::Body(reason) => Self::NotAnswered(CallError::Unexpected {
                address: to.address,
                reason: reason.to_string(),
            }),
            error if error.was_sent() => Self::NotAnswered(unreachable(to, error)),
            error => Self::NotSent(unreachable(to, error)),
        }
    }

    fn may_repeat(&self, is_read: bool) -> bool {
        match self {
            Self::NotSent(_) => true,
            Self::NotAnswered(_) => is_read,
            Self::Refused(_) => false,
        }
    }

    pub fn into_error(self) -> CallError {
        let (Self::NotSent(error) | Self::NotAnswered(error) | Self::Refused(error)) = self;
        error
    }
}

impl Requests {
    pub fn new(first: Endpoint, own: &KeyPair) -> std::io::Result<Self> {
        let coordinators = Arc::new(Coordinators::new(first));
        let accept = Arc::clone(&coordinators) as Arc<dyn tls::Accept>;
        let config = tls::client(own, accept, ALPN);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("nervure-client")
            .enable_all()
            .build()?;
        Ok(Self {
            coordinators,
            daemon: OnceLock::new(),
            tls: TlsConnector::from(Arc::new(config)),
            runtime,
            idle: Mutex::default(),
            reached: Mutex::default(),
        })
    }

    /// The IP address at which a coordinator was reached last.
    pub fn reached(&self, key: PublicKey) -> Option<IpAddr> {
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.filter(|(of, _)| *of == key).map(|(_, ip)| ip)
    }

    /// The address of this machine on the network of the coordinator.
    pub fn local_address(&self) -> Result<IpAddr, CallError> {
        self.each(
            true,
            |_| true,
            |asked| self.runtime.block_on(self.reach(asked)),
        )
    }

    /// Connects to a coordinator, or gives up after this time.
    pub fn connect_within(&self, patience: Duration) -> Result<(), CallError> {
        let connect = async {
            let mut failure = None;
            for one in self.coordinators.all() {
                match self.reach(one).await {
                    Ok(_) => return Ok(()),
                    Err(fault) => failure = Some(fault.into_error()),
                }
            }
            Err(failure.expect("there is a coordinator"))
        };
        let connected = self
            .runtime
            .block_on(async { tokio::time::timeout(patience, connect).await });
        connected.unwrap_or_else(|_| {
            let text = format!("no connection within {patience:?}");
            Err(unreachable(self.coordinators.asked(), &text))
        })
    }

    /// Asks each coordinator at most once: turns to the next one if `is_done` rejects the result, and the
    /// request may be repeated.
    pub fn each<T>(
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
            if asked_so_far >= self.coordinators.all().len() || !may_repeat {
                return result.map_err(Fault::into_error);
            }
        }
    }

    /// Sends a request to a coordinator, and receives the answer.
    pub fn exchange(&self, to: Endpoint, ask: &Ask) -> Result<Answered, Fault> {
        let not_answered = |reason: &str| Err(Fault::NotAnswered(unreachable(to, &reason)));
        self.runtime.block_on(async {
            let exchange = self.exchange_over_any(to, ask);
            let mut exchange = pin!(tokio::time::timeout(ask.patience, exchange));
            let mut left = pin!(self.coordinators.left(to));
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

    /// Uses an idle connection or a new one. An idle one may have been closed meanwhile: a request that was
    /// not sent, or has no answer and may be repeated, is then sent on another.
    async fn exchange_over_any(&self, to: Endpoint, ask: &Ask) -> Result<Answered, Fault> {
        let may_repeat = ask.is_read || ask.method != Method::POST;
        loop {
            let idle = self.take_idle(to);
            let was_idle = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect(to).await?,
            };
            // Its last answer may have been read just now.
            if was_idle && !connection.http.is_ready().await {
                continue;
            }
            match connection.exchange(ask, self.daemon.get()).await {
                Ok(answered) => {
                    self.put_back(connection);
                    return Ok(answered);
                }
                Err(Error::NotSent(_)) if was_idle => {}
                Err(Error::Closed(_)) if was_idle && may_repeat => {}
                Err(error) => return Err(Fault::new(to, &error)),
            }
        }
    }

    fn take_idle(&self, to: Endpoint) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let at = idle.iter().rposition(|connection| connection.to == to)?;
        Some(idle.remove(at))
    }

    /// Ensures that there is a connection. Returns the address of this machine on it.
    async fn reach(&self, to: Endpoint) -> Result<IpAddr, Fault> {
        let idle = self.take_idle(to).filter(|it| !it.http.is_closed());
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect(to).await?,
        };
        let local = connection.local;
        self.put_back(connection);
        Ok(local)
    }

    async fn connect(&self, to: Endpoint) -> Result<Connection, Fault> {
        let failed = |reason: &dyn std::fmt::Display| Fault::NotSent(unreachable(to, reason));
        let patience = match self.coordinators.is_alone() {
            true => PEER_TIMEOUT,
            false => CONNECT_TIMEOUT_OF_SEVERAL,
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
        let http = nervure_http::Connection::over(stream).await;
        let http = http.map_err(|error| Fault::new(to, &error))?;
        Ok(Connection { to, http, local })
    }

    fn put_back(&self, connection: Connection) {
        let asked = self.coordinators.asked();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connection| connection.to == asked);
        if idle.len() < MAX_IDLE && connection.to == asked {
            idle.push(connection);
        }
    }
}

impl Connection {
    async fn exchange(&mut self, ask: &Ask, daemon: Option<&u64>) -> Result<Answered, Error> {
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(&ask.path)
            .header(header::HOST, "nervure");
        if let Some(number) = daemon {
            request = request.header(DAEMON, *number);
        }
        let request = request.body(ask.body.clone());
        let answer = self
            .http
            .send(request.expect("method and path are valid"))
            .await?;
        Ok((answer.status, answer.bytes(ask.most).await?))
    }
}

fn unreachable(to: Endpoint, reason: &dyn std::fmt::Display) -> CallError {
    CallError::Unreachable {
        address: to.address,
        reason: reason.to_string(),
    }
}
