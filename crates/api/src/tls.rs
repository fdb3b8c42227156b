//! HTTPS with a certificate: clients of this API, unlike machines of the fleet, lack raw keys.

use std::{path::Path, sync::Arc};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::TlsAcceptor;

use crate::Error;

/// TLS 1.3 with the certificate chain and the key of these files.
pub fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, Error> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| unusable("certificate", certificate, error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable("key", key, error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| unusable("certificate", certificate, error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn unusable(
    what: &'static str,
    path: &Path,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::Certificate {
        what,
        path: path.to_owned(),
        source: Box::new(error),
    }
}
