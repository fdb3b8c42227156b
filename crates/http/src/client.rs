//! The connecting end.

use std::io;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, ToSocketAddrs};

/// A connection to a server, for requests one after the other. It ends when this and its last answer
/// are dropped.
#[derive(Debug)]
pub struct Connection(SendRequest<Full<Bytes>>);

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no connection.
    #[error("{0}")]
    NotConnected(io::Error),
    /// The connection was closed before the request was sent.
    #[error("{0}")]
    NotSent(hyper::Error),
    /// The connection was closed after the request, before the first byte of an answer.
    #[error("{0}")]
    Closed(hyper::Error),
    /// The connection was lost, or the answer is not HTTP.
    #[error("{0}")]
    Lost(hyper::Error),
    /// The answer was cut short, or is longer than the limit.
    #[error("{0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Whether the server may have received the request.
    pub fn was_sent(&self) -> bool {
        !matches!(self, Self::NotConnected(_) | Self::NotSent(_))
    }
}

impl Connection {
    /// Connects over TCP, without encryption.
    ///
    /// # Errors
    /// [`Error::NotConnected`].
    pub async fn open(address: impl ToSocketAddrs) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(Error::NotConnected)?;
        stream.set_nodelay(true).map_err(Error::NotConnected)?;
        Self::over(stream).await
    }

    /// Uses an open stream.
    ///
    /// # Errors
    /// [`Error::NotConnected`].
    pub async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, Error> {
        let (send, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Error::NotConnected(io::Error::other(error)))?;
        tokio::spawn(connection);
        Ok(Self(send))
    }

    /// Waits until the connection has read the last answer, and can send a request. Returns whether it is open.
    pub async fn is_ready(&mut self) -> bool {
        self.0.ready().await.is_ok()
    }

    /// Whether the connection was closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Sends a request, and receives the head of the answer.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn send(&mut self, request: Request<Bytes>) -> Result<Answer, Error> {
        let answer = self.0.send_request(request.map(Full::new)).await;
        let (head, body) = answer.map_err(error_of)?.into_parts();
        Ok(Answer {
            status: head.status,
            body,
        })
    }
}

/// The error of a request without an answer.
fn error_of(error: hyper::Error) -> Error {
    match error {
        error if error.is_canceled() => Error::NotSent(error),
        error if error.is_incomplete_message() => Error::Closed(error),
        error => Error::Lost(error),
    }
}

/// An answer, whose body is still on its way.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    body: Incoming,
}

impl Answer {
    /// Receives the body, of at most `limit` bytes.
    ///
    /// # Errors
    /// [`Error::Body`].
    pub async fn bytes(self, limit: usize) -> Result<Bytes, Error> {
        let body = Limited::new(self.body, limit).collect().await;
        Ok(body.map_err(Error::Body)?.to_bytes())
    }

    /// Receives the next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// [`Error::Body`].
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        let frame = self.body.frame().await.transpose();
        let frame = frame.map_err(|error| Error::Body(error.into()))?;
        Ok(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }
}
