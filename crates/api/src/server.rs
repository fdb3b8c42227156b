//! The HTTP server: connections with their limits, and routes.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Extension, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Request, State},
    http::{Extensions, HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use nervure_fleet::connection::folder;
use nervure_http::places::unless_lost;
use prometheus_client::encoding::prometheus_text;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Mutex, Semaphore},
    task::spawn_blocking,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    Error, Note,
    access::{self, Access},
    common::{CLIENT_TIMEOUT, Shared, failed, refused},
    connection::{Connection, Connections},
    metrics,
    recorders::Recordings,
    snapshot::Snapshot,
    streams::MAX_STREAMS,
    tls, v1,
};

/// The longest life of a connection: a client that reads slowly holds none longer. One with a stream
/// lasts until that has ended.
const LIFETIME: Duration = Duration::from_secs(300);

/// Threads that ask keepers.
const MAX_THREADS: usize = 16;

/// Requests that change something, at a time. Each has a thread while it waits.
const MAX_ORDERS: usize = 8;

/// The largest body of a request.
const MAX_BODY_BYTES: usize = 256 * 1024;

/// Metrics of this age are served again, so that clients cannot burden the keepers.
const FRESH: Duration = Duration::from_secs(1);

/// Settings of a server.
#[derive(Debug)]
pub struct Settings {
    /// The address. One beyond this machine needs a certificate.
    pub listen: SocketAddr,
    /// PEM files with a certificate chain and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Host names of this server, besides IP addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Shows where the token and the server are.
    pub note: Note,
}

/// Serves for ever.
///
/// # Errors
/// If the server cannot start.
pub fn serve(settings: &Settings) -> Result<(), Error> {
    let Settings { listen, note, .. } = *settings;
    let files = settings.certificate.as_ref();
    let tls = files.map(|(certificate, key)| tls::acceptor(certificate, key));
    let tls = tls.transpose()?;
    let is_local = listen.ip().is_loopback();
    if !is_local && tls.is_none() {
        return Err(Error::Open(listen));
    }
    let file = folder()?.path().join("api-token");
    let token = access::load_or_make_token(&file)?;
    let access = Access::new(token, is_local, &settings.hosts);
    note(format_args!(
        "the token of requests is in {}",
        file.display()
    ));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(MAX_THREADS)
        .enable_all()
        .build()
        .map_err(Error::Server)?;
    let unusable = |source: io::Error| Error::Listen {
        address: listen,
        source,
    };
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await.map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        note(format_args!("serving {scheme}://{address}/v1 and /metrics"));
        accept(listener, tls, router(access)).await;
        Ok(())
    })
}

fn router(access: Access) -> Router {
    let shared = Arc::new(Shared {
        access,
        metrics: Mutex::default(),
        orders: Arc::new(Semaphore::new(MAX_ORDERS)),
        streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        recordings: Recordings::default(),
    });
    v1::router()
        .route("/metrics", get(metrics))
        .fallback(|| async { refused(StatusCode::NOT_FOUND, &Error::NoPath) })
        .method_not_allowed_fallback(|| async {
            refused(StatusCode::METHOD_NOT_ALLOWED, &Error::NoMethod)
        })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard))
        .with_state(shared)
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let connections = Connections::default();
    loop {
        let (stream, address) = nervure_http::accept(&listener).await;
        let (tls, router) = (tls.clone(), router.clone());
        let connection = connections.connection(address.ip());
        tokio::spawn(async move {
            let lost = connection.lost();
            // A connection that loses its place to another ends.
            unless_lost(&lost, serve_connection(stream, tls, router, connection)).await;
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    connection: Connection,
) {
    // Also when the client's window stays closed (tcp(7)).
    let _ = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(CLIENT_TIMEOUT));
    let _ = stream.set_nodelay(true);
    match tls {
        None => http(stream, router, connection).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(CLIENT_TIMEOUT, tls.accept(stream)).await {
                http(stream, router, connection).await;
            }
        }
    }
}

async fn http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    connection: Connection,
) {
    let begin = |extensions: &mut Extensions| drop(extensions.insert(connection.clone()));
    let requests = nervure_http::answer_requests(stream, router, CLIENT_TIMEOUT, begin);
    let mut requests = std::pin::pin!(requests);
    loop {
        let ended = tokio::time::timeout(LIFETIME, &mut requests).await;
        if ended.is_ok() || !connection.is_streaming() {
            return;
        }
    }
}

/// Refuses requests for other hosts, and those without the token.
async fn guard(
    State(shared): State<Arc<Shared>>,
    Extension(connection): Extension<Connection>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    if !header_text(headers, header::HOST).is_some_and(|host| shared.access.is_own_host(host)) {
        return refused(StatusCode::MISDIRECTED_REQUEST, &Error::OtherHost);
    }
    let authorization = header_text(headers, header::AUTHORIZATION);
    let has_token = shared.access.has_token(authorization);
    if !has_token && shared.access.needs_token(request.uri().path()) {
        let mut response = refused(StatusCode::UNAUTHORIZED, &Error::Unauthorized);
        let challenge = header::HeaderValue::from_static("Bearer");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, challenge);
        return response;
    }
    let _in_use = connection.begin_request(has_token);
    next.run(request).await
}

fn header_text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    // Requests at the same time wait for one reading.
    let mut last = shared.metrics.lock().await;
    let text = match &*last {
        Some((read, text)) if read.elapsed() < FRESH => text.clone(),
        _ => match spawn_blocking(read_metrics).await {
            Ok(Ok(text)) => {
                *last = Some((Instant::now(), text.clone()));
                text
            }
            Ok(Err(error)) => return refused(StatusCode::INTERNAL_SERVER_ERROR, &error),
            Err(_) => return failed(&Error::MetricsPanicked),
        },
    };
    drop(last);
    (
        [(header::CONTENT_TYPE, prometheus_text::CONTENT_TYPE)],
        text,
    )
        .into_response()
}

fn read_metrics() -> Result<Bytes, Error> {
    let text = metrics::text(Snapshot::take()?).map_err(Error::Metrics)?;
    Ok(text.into())
}
