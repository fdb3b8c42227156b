//! TLS for QUIC: each end accepts only configured keys.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use nervure_identity::tls::{self, Accept};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::pki_types::CertificateDer;

use crate::carrier::{KeyPair, PublicKey};

/// The protocol that both ends must speak. Every incompatible change takes a new number.
pub const ALPN: &[u8] = b"nervure-link/1";

/// The keys that may connect, shared with the verifier, and the last key that was refused.
#[derive(Debug, Default)]
pub struct AllowedPeers {
    inner: Mutex<GuestList>,
}

#[derive(Debug, Default)]
struct GuestList {
    allowed: HashSet<PublicKey>,
    refused: Option<PublicKey>,
}

impl AllowedPeers {
    pub fn allow(&self, peer: PublicKey) {
        self.lock().allowed.insert(peer);
    }

    pub fn forbid(&self, peer: PublicKey) {
        self.lock().allowed.remove(&peer);
    }

    pub fn is_allowed(&self, peer: PublicKey) -> bool {
        self.lock().allowed.contains(&peer)
    }

    /// The key that was refused since the last call.
    pub fn take_refused(&self) -> Option<PublicKey> {
        self.lock().refused.take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, GuestList> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accept for AllowedPeers {
    fn accepts(&self, peer: PublicKey) -> bool {
        let mut list = self.lock();
        let allowed = list.allowed.contains(&peer);
        if !allowed {
            list.refused = Some(peer);
        }
        allowed
    }
}

/// TLS of the connecting end, which accepts one peer. `protocol` is [`ALPN`], but for tests.
pub fn client(own: &KeyPair, peer: PublicKey, protocol: &[u8]) -> Arc<QuicClientConfig> {
    let config = tls::client(own, Arc::new(peer), protocol);
    Arc::new(
        QuicClientConfig::try_from(config).expect("ring has the suite of QUIC's first packets"),
    )
}

/// TLS of the accepting end, which accepts the allowed peers.
pub fn server(
    own: &KeyPair,
    allowed_peers: Arc<AllowedPeers>,
    protocol: &[u8],
) -> Arc<QuicServerConfig> {
    let config = tls::server(own, allowed_peers, protocol);
    Arc::new(
        QuicServerConfig::try_from(config).expect("ring has the suite of QUIC's first packets"),
    )
}

/// The key that the peer has proved.
pub fn peer_key(session: &dyn quinn_proto::crypto::Session) -> Option<PublicKey> {
    let identity = session.peer_identity()?;
    let keys = identity.downcast_ref::<Vec<CertificateDer<'static>>>()?;
    tls::peer_key(keys)
}
