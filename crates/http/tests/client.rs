//! The client, against a server that keeps to HTTP or does not.
#![cfg(feature = "client")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use bytes::Bytes;
use nervure_http::{Connection, Error, Request, StatusCode};

/// Listens, and lets `serve` answer each connection. Reads a request before.
fn serve(serve: impl Fn(&mut TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve(&mut stream.unwrap());
        }
    });
    address
}

/// Reads a request without a body; false at the end of the connection.
fn read_request(stream: &mut TcpStream) -> bool {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(work)
}

fn request() -> Request<Bytes> {
    Request::get("/").body(Default::default()).unwrap()
}

#[test]
fn requests_follow_each_other_on_one_connection() {
    let address = serve(|stream| {
        while read_request(stream) {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
            stream.write_all(answer).unwrap();
        }
    });
    run(async {
        let mut connection = Connection::open(address).await.unwrap();
        for _ in 0..3 {
            assert!(connection.is_ready().await);
            let answer = connection.send(request()).await.unwrap();
            assert_eq!(answer.status, StatusCode::OK);
            assert_eq!(&answer.bytes(5).await.unwrap()[..], b"hello");
        }
        let answer = connection.send(request()).await.unwrap();
        let error = answer.bytes(4).await.unwrap_err();
        assert!(matches!(error, Error::Body(_)), "{error:?}");
    });
}

#[test]
fn an_error_says_whether_the_request_was_sent() {
    let address = serve(|stream| assert!(read_request(stream)));
    run(async {
        let mut connection = Connection::open(address).await.unwrap();
        let error = connection.send(request()).await.unwrap_err();
        assert!(matches!(error, Error::Closed(_)), "{error:?}");
        assert!(error.was_sent());
        assert!(!connection.is_ready().await);
        let error = connection.send(request()).await.unwrap_err();
        assert!(matches!(error, Error::NotSent(_)), "{error:?}");
        assert!(!error.was_sent());
    });
    let address = serve(|stream| {
        read_request(stream);
        let _ = stream.write_all(b"no HTTP\r\n\r\n");
    });
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    run(async {
        let mut connection = Connection::open(address).await.unwrap();
        let error = connection.send(request()).await.unwrap_err();
        assert!(matches!(error, Error::Lost(_)), "{error:?}");
        let error = Connection::open(closed.unwrap()).await.unwrap_err();
        assert!(matches!(error, Error::NotConnected(_)), "{error:?}");
        assert!(!error.was_sent());
    });
}

#[test]
fn a_body_is_received_in_pieces_and_one_that_was_cut_is_named() {
    let address = serve(|stream| {
        read_request(stream);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhell")
            .unwrap();
    });
    run(async {
        let mut connection = Connection::open(address).await.unwrap();
        let mut answer = connection.send(request()).await.unwrap();
        assert_eq!(&answer.piece().await.unwrap().unwrap()[..], b"hell");
        let error = answer.piece().await.unwrap_err();
        assert!(matches!(error, Error::Body(_)), "{error:?}");
    });
}
