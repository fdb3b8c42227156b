//! No end keeps others out, or takes much of the coordinator's memory.

mod world;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nervure_coordinator::{Client, LINKS, Role, digest};
use nervure_identity::{KeyPair, tls};
use nervure_store::Store;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Socket, Type};
use world::{World, relay, world};

/// Connects from an address of the loopback.
fn connect(from: &str, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from.parse().unwrap(), 0).into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

/// Whether the other end has closed a connection on which it sends nothing.
fn is_closed(stream: &TcpStream) -> bool {
    let mut byte = [0];
    let peeked = stream.peek(&mut byte);
    !peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn silent_connections_keep_no_machine_out() {
    let world = world();
    let to = world.coordinator.address();
    // From the host of the machines.
    let _held: Vec<_> = (0..200).map(|_| TcpStream::connect(to).unwrap()).collect();
    let robot = world.paired("robot", Role::Robot);
    // From another host, which replaces each closed connection.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                held.retain(|stream| !is_closed(stream));
                while held.len() < 300 {
                    let Ok(stream) = connect("127.0.0.2", to) else {
                        break;
                    };
                    stream.set_nonblocking(true).unwrap();
                    held.push(stream);
                }
                std::thread::yield_now();
            }
        });
        for number in 0..20 {
            let name = format!("r{number}");
            world.paired(&name, Role::Robot).list(LINKS).unwrap();
            robot.list(LINKS).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn idle_connections_of_a_key_beyond_its_share_are_closed() {
    let world = world();
    let (address, accepted) = relay(world.coordinator.address(), 0);
    let key = KeyPair::generate().unwrap();
    let own = |key: &KeyPair| Client::new(address, world.key.public(), key).unwrap();
    let invitation = world.invite(Role::Robot);
    own(&key).join(&invitation.secret, "robot").unwrap();
    let other = own(&world.key);
    other.list(LINKS).unwrap();
    let before = accepted.load(Ordering::SeqCst);
    let clients: Vec<_> = (0..80).map(|_| own(&key)).collect();
    for client in &clients {
        client.list(LINKS).unwrap();
    }
    let reconnects = |client: &Client| {
        let before = accepted.load(Ordering::SeqCst);
        client.list(LINKS).unwrap();
        accepted.load(Ordering::SeqCst) - before
    };
    assert_eq!(accepted.load(Ordering::SeqCst) - before, clients.len());
    assert_eq!(reconnects(&clients[79]), 0, "one of the newest stays");
    assert_eq!(reconnects(&clients[0]), 1, "one of the oldest is closed");
    assert_eq!(reconnects(&other), 0, "another key is not concerned");
}

/// A connection without a client.
fn encrypted(world: &World, key: &KeyPair) -> StreamOwned<ClientConnection, TcpStream> {
    let accept = Arc::new(world.key.public());
    let config = Arc::new(tls::client(key, accept, b"nervure-coordinator/2"));
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let session = ClientConnection::new(config, name).unwrap();
    let stream = TcpStream::connect(world.coordinator.address()).unwrap();
    StreamOwned::new(session, stream)
}

#[test]
fn an_end_that_is_not_paired_sends_no_long_call() {
    let world = world();
    let answers = |request: &str, expected: &str| {
        let mut stream = encrypted(&world, &KeyPair::generate().unwrap());
        stream.write_all(request.as_bytes()).unwrap();
        let (mut answer, mut piece) = (String::new(), [0; 1024]);
        while !answer.contains(expected) {
            let length = stream.read(&mut piece).unwrap();
            assert_ne!(length, 0, "closed after {answer:?}");
            answer += std::str::from_utf8(&piece[..length]).unwrap();
        }
    };
    // The body is not awaited.
    let set = "POST /set HTTP/1.1\r\ncontent-length: 6000000\r\n\r\n";
    answers(set, "it is not paired");
    let join = "POST /join HTTP/1.1\r\ncontent-length: 4097\r\n\r\n";
    answers(&format!("{join}{}", " ".repeat(4097)), "HTTP/1.1 413 ");
}

/// Resident memory of this process, in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib = line.unwrap().split_ascii_whitespace().next().unwrap();
    kib.parse::<u64>().unwrap() << 10
}

#[test]
fn a_bundle_that_is_not_read_is_not_held_in_memory() {
    const BYTES: usize = 16 << 20;
    let world = world();
    let bundle: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let name = digest(&bundle);
    let operator = world.client(&world.key);
    operator.put_bundle(&name, bundle.clone()).unwrap();
    let key = KeyPair::generate().unwrap();
    let robot = world.client(&key);
    robot
        .join(&world.invite(Role::Robot).secret, "robot")
        .unwrap();
    assert!(robot.bundle(&name).unwrap() == bundle);
    drop(bundle);
    assert!(world.folder.path().join(&name).exists());

    let before = memory();
    let unread: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = encrypted(&world, &key);
            let request = format!("GET /bundles/{name} HTTP/1.1\r\nhost: nervure\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut begin = [0; 15];
            stream.read_exact(&mut begin).unwrap();
            assert_eq!(&begin, b"HTTP/1.1 200 OK");
            stream
        })
        .collect();
    let added = memory().saturating_sub(before);
    assert!(
        added < 20 * BYTES as u64 / 4,
        "{added} bytes for {}",
        unread.len()
    );
}
