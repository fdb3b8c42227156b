//! TLS 1.3 with raw public keys (RFC 7250): each end proves its key, and decides on the key of the
//! other.

use std::fmt::Debug;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::ring::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use zeroize::Zeroizing;

use crate::{KeyPair, PublicKey};

/// DER of an Ed25519 public key, up to the key itself (RFC 8410, section 4).
const PUBLIC_KEY_DER: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
/// DER of an Ed25519 private key, up to the seed (RFC 8410, section 7).
const PRIVATE_KEY_DER: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Decides on keys of peers. A peer has proved its key when the handshake is complete.
pub trait Accept: Debug + Send + Sync {
    /// Whether the handshake with the owner of this key may complete.
    fn accepts(&self, peer: PublicKey) -> bool;
}

/// Accepts one key.
impl Accept for PublicKey {
    fn accepts(&self, peer: PublicKey) -> bool {
        *self == peer
    }
}

/// TLS of the connecting end. `alpn` names the protocol that both ends must speak.
pub fn client(own: &KeyPair, accept: Arc<dyn Accept>, alpn: &[u8]) -> rustls::ClientConfig {
    let provider = provider();
    let resolver = AlwaysResolvesClientRawPublicKeys::new(certified(own));
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { accept, provider }))
        .with_client_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![alpn.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config
}

/// TLS of the accepting end, which wants the key of the other.
pub fn server(own: &KeyPair, accept: Arc<dyn Accept>, alpn: &[u8]) -> rustls::ServerConfig {
    let provider = provider();
    let resolver = AlwaysResolvesServerRawPublicKeys::new(certified(own));
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has TLS 1.3")
        .with_client_cert_verifier(Arc::new(Verifier { accept, provider }))
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![alpn.to_vec()];
    // The slower processor decides.
    config.ignore_client_order = !has_aes();
    // Sessions are not resumed: a full handshake takes no more round trips.
    config.send_tls13_tickets = 0;
    config
}

/// The key that the peer has proved, from the certificates of its session.
pub fn peer_key(certificates: &[CertificateDer<'_>]) -> Option<PublicKey> {
    public_key(certificates.first()?)
}

/// The cryptography of both ends. The cipher is the fastest one that both processors are made for:
/// AES-128-GCM, as long as a processor has instructions for it, and ChaCha20-Poly1305 otherwise. Both
/// have the strength of the keys, 128 bits.
fn provider() -> Arc<CryptoProvider> {
    let suites = if has_aes() {
        [
            TLS13_AES_128_GCM_SHA256,
            TLS13_CHACHA20_POLY1305_SHA256,
            TLS13_AES_256_GCM_SHA384,
        ]
    } else {
        [
            TLS13_CHACHA20_POLY1305_SHA256,
            TLS13_AES_128_GCM_SHA256,
            TLS13_AES_256_GCM_SHA384,
        ]
    };
    Arc::new(CryptoProvider {
        cipher_suites: suites.to_vec(),
        ..rustls::crypto::ring::default_provider()
    })
}

/// Whether the processor has instructions for AES-GCM. Raspberry Pis before the fifth have none.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has_aes = std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    let has_aes = std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has_aes = false;
    has_aes
}

fn certified(own: &KeyPair) -> Arc<CertifiedKey> {
    let mut private = Zeroizing::new([0; PRIVATE_KEY_DER.len() + 32]);
    private[..PRIVATE_KEY_DER.len()].copy_from_slice(&PRIVATE_KEY_DER);
    private[PRIVATE_KEY_DER.len()..].copy_from_slice(own.seed());
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(&private[..]));
    let public: Vec<u8> = PUBLIC_KEY_DER
        .iter()
        .chain(&own.public().0)
        .copied()
        .collect();
    Arc::new(CertifiedKey::new(
        vec![CertificateDer::from(public)],
        key.expect("a seed makes a key"),
    ))
}

fn public_key(der: &CertificateDer<'_>) -> Option<PublicKey> {
    let key = der.strip_prefix(&PUBLIC_KEY_DER)?;
    Some(PublicKey(key.try_into().ok()?))
}

#[derive(Debug)]
struct Verifier {
    accept: Arc<dyn Accept>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let peer = public_key(certificate).ok_or(CertificateError::BadEncoding)?;
        match self.accept.accepts(peer) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(certificate.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
    }
}

/// The answer to TLS 1.2 signatures; TLS 1.2 is not offered, so it is never used.
fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.2 is not spoken here".into()))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
