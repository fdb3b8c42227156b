//! Zenoh as a peer of the declared experiments: sessions as in `lab/nervure_lab/peers/zenoh.py`.

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use nervure_lab_endpoint::peer::{self, Peer, PublishBytes, ReceiveBytes, Wiring};
use zenoh::bytes::ZBytes;
use zenoh::handlers::FifoChannelHandler;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;
use zenoh::shm::{
    BlockOn, GarbageCollect, PosixShmProviderBackend, ShmProvider, ShmProviderBuilder,
};
use zenoh::{Config, Session, Wait};

fn main() -> Result<(), Box<dyn Error>> {
    let wiring = Wiring::from_environment()?;
    let session = zenoh::open(configuration(&wiring)?).wait().map_err(text)?;
    Ok(peer::run(Zenoh(session))?)
}

fn configuration(wiring: &Wiring) -> Result<Config, String> {
    let mut config = Config::default();
    let mut set = |key: &str, value: &str| config.insert_json5(key, value).map_err(text);
    let scheme = wiring.configuration.trim_start_matches("rust-");
    let has_shared_memory = scheme == "shm";
    let protocol = if has_shared_memory { "tcp" } else { scheme };
    let endpoint = format!(r#"["{protocol}/{}:{}"]"#, wiring.address, wiring.port);
    set("mode", r#""peer""#)?;
    set("scouting/multicast/enabled", "false")?;
    set(
        "transport/shared_memory/enabled",
        &has_shared_memory.to_string(),
    )?;
    set(
        "listen/endpoints",
        if wiring.listens() { &endpoint } else { "[]" },
    )?;
    if !wiring.listens() {
        set("connect/endpoints", &endpoint)?;
        // By default a session gives up after the first failed attempt.
        set("connect/timeout_ms", "10000")?;
        set("connect/exit_on_failure", "false")?;
    }
    if protocol == "quic" {
        for (key, file) in [
            ("root_ca_certificate", "authority.pem"),
            ("listen_certificate", "certificate.pem"),
            ("listen_private_key", "key.pem"),
        ] {
            let path = format!(r#""{}/{file}""#, wiring.directory);
            set(&format!("transport/link/tls/{key}"), &path)?;
        }
        set("transport/link/tls/verify_name_on_connect", "false")?;
    }
    Ok(config)
}

struct Zenoh(Session);

impl Peer for Zenoh {
    type Publisher = Output;
    type Receiver = Input;

    fn publisher(&self, wiring: &Wiring, topic: &str) -> Result<Output, String> {
        let control = if wiring.reliable {
            CongestionControl::Block
        } else {
            CongestionControl::Drop
        };
        let publisher = self
            .0
            .declare_publisher(format!("lab/{topic}"))
            .congestion_control(control);
        let publisher = publisher.wait().map_err(text)?;
        if wiring.configuration != "rust-shm" {
            return Ok(Output::Own(publisher));
        }
        // A full queue, a message being written, and one being read.
        let bytes = (wiring.depth + 2) * wiring.payload_bytes.max(4096);
        let memory = ShmProviderBuilder::default_backend(bytes)
            .wait()
            .map_err(text)?;
        Ok(Output::Shared(publisher, Arc::new(memory)))
    }

    fn receiver(&self, _: &Wiring, topic: &str) -> Result<Input, String> {
        let subscriber = self.0.declare_subscriber(format!("lab/{topic}"));
        Ok(Input(subscriber.wait().map_err(text)?))
    }
}

fn text(error: impl Display) -> String {
    error.to_string()
}

enum Output {
    /// Messages in memory of this process.
    Own(Publisher<'static>),
    /// Messages in shared memory.
    Shared(
        Publisher<'static>,
        Arc<ShmProvider<PosixShmProviderBackend>>,
    ),
}

impl PublishBytes for Output {
    fn publish(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), String> {
        let (publisher, message) = match self {
            Self::Own(publisher) => {
                let mut message = vec![0; bytes];
                fill(&mut message);
                (publisher, ZBytes::from(message))
            }
            Self::Shared(publisher, memory) => {
                let mut message = memory
                    .alloc(bytes)
                    .with_policy::<BlockOn<GarbageCollect>>()
                    .wait()
                    .map_err(text)?;
                fill(&mut message);
                (publisher, ZBytes::from(message))
            }
        };
        publisher.put(message).wait().map_err(text)
    }
}

struct Input(Subscriber<FifoChannelHandler<Sample>>);

impl ReceiveBytes for Input {
    fn receive(
        &mut self,
        timeout: Duration,
        mut on_message: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        match self.0.recv_timeout(timeout).map_err(text)? {
            Some(sample) => on_message(&sample.payload().to_bytes()),
            None => Ok(()),
        }
    }
}
