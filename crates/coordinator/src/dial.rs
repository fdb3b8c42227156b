//! Connects to a coordinator at one of its addresses.

use std::io;
use std::time::Duration;

use nervure_identity::tls;
use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::endpoints::Endpoint;
use crate::socket;

/// The time after which the next address is attempted in parallel, or the first one once more (RFC 8305,
/// section 8).
const NEXT_ATTEMPT: Duration = Duration::from_millis(250);

/// Number of attempts in addition to one for each address.
const HEDGES: usize = 2;

/// A connection, and its address.
pub(crate) type Connected = (TlsStream<TcpStream>, Endpoint);

/// Connects to a coordinator at one of its addresses. The next one is attempted when the one before has
/// failed, or in parallel while it takes long. The first ones get further attempts: the kernel repeats a
/// lost SYN only after a second.
pub(crate) async fn connect_hedged(to: &[Endpoint], tls: TlsConnector) -> io::Result<Connected> {
    let mut attempts = JoinSet::new();
    let (mut fresh, mut hedges) = (to.iter(), to.iter().cycle().take(HEDGES));
    let mut next = fresh.next();
    let mut failure = io::Error::other("it has no address");
    loop {
        if let Some(one) = next {
            attempts.spawn(connect_once(*one, tls.clone()));
        }
        match tokio::time::timeout(NEXT_ATTEMPT, attempts.join_next()).await {
            Ok(Some(ended)) => {
                match ended.unwrap_or_else(|error| Err(io::Error::other(error))) {
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

async fn connect_once(to: Endpoint, tls: TlsConnector) -> io::Result<Connected> {
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
fn is_of_other_key(error: &io::Error) -> bool {
    let inner = error.get_ref();
    matches!(
        inner.and_then(|inner| inner.downcast_ref()),
        Some(rustls::Error::InvalidCertificate(
            CertificateError::ApplicationVerificationFailure
        ))
    )
}

fn another_coordinator() -> io::Error {
    io::Error::other(
        "another coordinator answers there, which has not the key that is expected (that of the invitation, or of \
         the pairing)",
    )
}
