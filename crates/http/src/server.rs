//! The accepting end.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::Extensions;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// The largest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Pause after a connection that could not be accepted.
const RETRY: Duration = Duration::from_millis(100);

/// The next connection.
pub async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            // Out of descriptors: connections end meanwhile.
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// Answers the requests of a connection. It ends after a pause of `idle` between two. `begin` is called at
/// the begin of each request; its result is dropped when the head of the answer is complete.
pub async fn answer_requests<T>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    idle: Duration,
    begin: impl Fn(&mut Extensions) -> T,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request| {
        let begun = begin(request.extensions_mut());
        let answer = router.call(request);
        async move {
            let answer = answer.await;
            drop(begun);
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // An error is the client's, which knows it.
    let _ = connection.await;
}
