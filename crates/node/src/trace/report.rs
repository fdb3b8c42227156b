//! The connection of this process to `nervure telemetry`. Nothing here waits.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};

use nervure_protocol::MACHINE_VARIABLE;
use nervure_protocol::domain::Domain;
use nervure_protocol::node_to_telemetry::{Span, socket_name};
use nervure_shm::{Seqpacket, monotonic_nanos, utc_nanos};

/// The shortest time between two looks for the telemetry process.
const RETRY_NANOS: u64 = 1_000_000_000;

static CONNECTION: Mutex<Connection> = Mutex::new(Connection {
    socket: None,
    retry_at: 0,
});

/// Spans that found a full socket, or another thread at it.
static DROPPED: AtomicU64 = AtomicU64::new(0);

static MACHINE: OnceLock<String> = OnceLock::new();

struct Connection {
    socket: Option<Seqpacket>,
    /// In nanoseconds of CLOCK_MONOTONIC.
    retry_at: u64,
}

/// Sets the name of this machine, for a process that no daemon has started.
pub(crate) fn set_machine(name: &str) {
    let _ = MACHINE.set(name.to_owned());
}

/// Reports a span that began at `begin` of CLOCK_MONOTONIC and ends now.
pub(super) fn send(mut span: Span, begin: u64) {
    let mut connection = match CONNECTION.try_lock() {
        Ok(connection) => connection,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            DROPPED.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    let now = monotonic_nanos();
    if connection.socket.is_none() {
        if now < connection.retry_at {
            return;
        }
        connection.retry_at = now + RETRY_NANOS;
        connection.socket = connect();
    }
    let Some(socket) = &connection.socket else {
        return;
    };
    let machine = MACHINE.get_or_init(|| std::env::var(MACHINE_VARIABLE).unwrap_or_default());
    span.machine.clone_from(machine);
    span.end_utc_nanos = u64::try_from(utc_nanos()).unwrap_or(0);
    span.start_utc_nanos = span.end_utc_nanos.saturating_sub(now.saturating_sub(begin));
    span.dropped_before = DROPPED.swap(0, Ordering::Relaxed);
    let Ok(bytes) = nervure_protocol::encode(&span) else {
        return;
    };
    match socket.send(&bytes, &[]) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            DROPPED.fetch_add(span.dropped_before + 1, Ordering::Relaxed);
        }
        Err(_) => connection.socket = None,
    }
}

/// Connects to a socket of this user or root: another user may have taken the name.
fn connect() -> Option<Seqpacket> {
    let own = rustix::process::geteuid().as_raw();
    let domain = Domain::of_environment().ok()?;
    let socket = Seqpacket::connect(&socket_name(&domain, own)).ok()?;
    let peer = socket.peer().ok()?.uid;
    (peer == own || peer == 0).then_some(socket)
}
