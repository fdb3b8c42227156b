//! Slots of connections: connections without the token cannot keep out those with it.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use nervure_http::places::{InUse, Place, Places, host};
use tokio::sync::Notify;

/// Connections at a time that have not sent the token, and of one host.
const WITHOUT_TOKEN: (usize, usize) = (128, 64);

/// Connections at a time that have sent it.
const WITH_TOKEN: usize = 64;

/// The places of all connections.
#[derive(Clone, Debug)]
pub struct Connections {
    without_token: Arc<Places<IpAddr>>,
    with_token: Arc<Places<IpAddr>>,
}

impl Default for Connections {
    fn default() -> Self {
        let (most, of_host) = WITHOUT_TOKEN;
        Self {
            without_token: Places::new(most, of_host),
            with_token: Places::new(WITH_TOKEN, WITH_TOKEN),
        }
    }
}

impl Connections {
    /// A new connection from this address.
    pub fn connection(&self, address: IpAddr) -> Connection {
        let lost = Arc::default();
        let host = host(address);
        let state = State {
            place: self.without_token.take(host, &lost),
            has_token: false,
            stream: None,
        };
        Connection(Arc::new(Inner {
            host,
            with_token: Arc::clone(&self.with_token),
            lost,
            state: Mutex::new(state),
        }))
    }
}

/// A connection. It is to end when it has lost its place.
#[derive(Clone, Debug)]
pub struct Connection(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    host: IpAddr,
    with_token: Arc<Places<IpAddr>>,
    lost: Arc<Notify>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    place: Arc<Place<IpAddr>>,
    has_token: bool,
    /// The stream that it serves, which may last.
    stream: Option<InUse<IpAddr>>,
}

impl Connection {
    /// Notified when it has lost its place.
    pub fn lost(&self) -> Arc<Notify> {
        Arc::clone(&self.0.lost)
    }

    /// A request, until the result is dropped. The first with the token gives the connection a place among
    /// those that have sent it.
    pub fn begin_request(&self, has_token: bool) -> InUse<IpAddr> {
        let mut state = self.state();
        if has_token && !state.has_token {
            state.has_token = true;
            state.place = self.0.with_token.take(self.0.host, &self.0.lost);
        }
        state.place.begin_request()
    }

    pub fn begin_stream(&self) {
        let mut state = self.state();
        state.stream = Some(state.place.begin_request());
    }

    pub fn end_stream(&self) {
        self.state().stream = None;
    }

    pub fn is_streaming(&self) -> bool {
        self.state().stream.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
