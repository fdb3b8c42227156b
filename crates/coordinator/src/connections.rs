//! Connections: the handshake, and a place among the others.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::http::Extensions;
use nervure_http::places::{self, Place, Places, unless_lost};
use nervure_identity::{KeyPair, PublicKey, tls};
use rustix::process::{Resource, getrlimit};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::ends::Connected;
use crate::{ALPN, PEER_TIMEOUT, socket};

/// The longest time that a client may receive nothing of an answer: then its connection ends (tcp(7)).
const UNREAD: Duration = Duration::from_secs(60);

/// The longest life of a connection of an end that is not paired.
const STRANGER_LIFE: Duration = Duration::from_secs(20);

/// The longest pause between two requests of a paired machine.
const IDLE: Duration = Duration::from_secs(3600);

/// Connections at a time in handshakes, and of one host: behind an address translation there may be a fleet,
/// whose machines connect together, each with up to three attempts beside each other.
const HANDSHAKES: (usize, usize) = (1024, 256);

/// Connections at a time of ends that are not paired, and of one host.
const STRANGERS: (usize, usize) = (256, 64);

/// Connections at a time of paired machines, and of one key: a daemon has up to ten, each command one.
const PAIRED: (usize, usize) = (2048, 64);

/// Knows the machines of the fleet.
pub(crate) trait IsPaired: Send + Sync + 'static {
    /// Whether the machine with this key is paired.
    fn is_paired(self: Arc<Self>, key: PublicKey) -> impl Future<Output = bool> + Send;
}

/// The other end of a connection.
pub(crate) struct End {
    pub key: PublicKey,
    pub address: IpAddr,
    /// If it is a daemon.
    pub daemon: OnceLock<Connected>,
}

/// The places of all connections.
#[derive(Clone)]
pub(crate) struct Connections {
    handshakes: Arc<Places<IpAddr>>,
    strangers: Arc<Places<IpAddr>>,
    paired: Arc<Places<PublicKey>>,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            handshakes: places(HANDSHAKES),
            strangers: places(STRANGERS),
            paired: places(PAIRED),
        }
    }
}

/// Places of one kind: fewer where the process may open fewer files. All kinds together leave a quarter of
/// them for the store and the daemon.
fn places<O: Copy + Ord>((most, of_owner): (usize, usize)) -> Arc<Places<O>> {
    let all = HANDSHAKES.0 + STRANGERS.0 + PAIRED.0;
    let files = getrlimit(Resource::Nofile).current;
    let files = files.and_then(|files| usize::try_from(files).ok());
    let for_all = files.map_or(all, |files| all.min(files / 4 * 3));
    Places::new((most * for_all / all).max(1), of_owner)
}

/// Any end may complete a handshake: pairing needs one with an unknown key. Permissions are checked for
/// each request.
#[derive(Debug)]
struct AnyKey;

impl tls::Accept for AnyKey {
    fn accepts(&self, _: PublicKey) -> bool {
        true
    }
}

impl Connections {
    /// Accepts connections, proves this key to them, and answers their requests. Each request has the
    /// [`End`] of its connection as an extension.
    pub async fn serve(
        self,
        listener: TcpListener,
        own: KeyPair,
        fleet: Arc<impl IsPaired>,
        router: Router,
    ) {
        let tls = TlsAcceptor::from(Arc::new(tls::server(&own, Arc::new(AnyKey), ALPN)));
        loop {
            let (stream, address) = nervure_http::accept(&listener).await;
            let (all, tls) = (self.clone(), tls.clone());
            let (fleet, router) = (Arc::clone(&fleet), router.clone());
            tokio::spawn(async move {
                let lost = Arc::default();
                let serve = all.serve_one(stream, address.ip(), tls, fleet, router, &lost);
                // A connection that loses its place ends.
                unless_lost(&lost, serve).await;
            });
        }
    }

    /// Ends all connections of a machine.
    pub fn close(&self, key: PublicKey) {
        self.paired.close(key);
    }

    async fn serve_one(
        &self,
        stream: TcpStream,
        address: IpAddr,
        tls: TlsAcceptor,
        fleet: Arc<impl IsPaired>,
        router: Router,
        lost: &Arc<Notify>,
    ) {
        let host = places::host(address);
        let handshake = self.handshakes.take(host, lost);
        let _ = socket::tune(&stream);
        let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD));
        let Ok(Ok(stream)) = tokio::time::timeout(PEER_TIMEOUT, tls.accept(stream)).await else {
            return;
        };
        let certificates = stream.get_ref().1.peer_certificates();
        let Some(key) = certificates.and_then(tls::peer_key) else {
            return;
        };
        let end = End {
            key,
            address,
            daemon: OnceLock::new(),
        };
        if fleet.is_paired(key).await {
            // A revocation from here on takes away the place; after an earlier one, the requests fail.
            let place = self.paired.take(key, lost);
            drop(handshake);
            answer_requests(stream, end, router, place, IDLE).await;
        } else {
            let place = self.strangers.take(host, lost);
            drop(handshake);
            let requests = answer_requests(stream, end, router, place, PEER_TIMEOUT);
            let _ = tokio::time::timeout(STRANGER_LIFE, requests).await;
        }
    }
}

async fn answer_requests<O: Copy + Ord>(
    stream: TlsStream<TcpStream>,
    end: End,
    router: Router,
    place: Arc<Place<O>>,
    idle: Duration,
) {
    let end = Arc::new(end);
    let begin = |extensions: &mut Extensions| {
        extensions.insert(Arc::clone(&end));
        place.begin_request()
    };
    nervure_http::answer_requests(stream, router, idle, begin).await;
}
