//! iceoryx2 as a peer of the declared experiments: services as in `lab/nervure_lab/peers/iceoryx2.py`.
//!
//! Root path and prefix of its files come from `config/iceoryx2.toml` in the working directory.

use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::{event, publish_subscribe};
use nervure_lab_endpoint::peer::{self, Peer, PublishBytes, ReceiveBytes, Wiring};

fn main() -> Result<(), Box<dyn Error>> {
    set_log_level(LogLevel::Error);
    Ok(peer::run(Iceoryx2)?)
}

struct Iceoryx2;

impl Peer for Iceoryx2 {
    type Publisher = Output;
    type Receiver = Input;

    fn publisher(&self, wiring: &Wiring, topic: &str) -> Result<Output, String> {
        let (event, data) = services(wiring, topic)?;
        let publisher = data
            .publisher_builder()
            .initial_max_slice_len(wiring.payload_bytes.max(64))
            .create();
        Ok(Output {
            publisher: publisher.map_err(text)?,
            notifier: event.notifier_builder().create().map_err(text)?,
        })
    }

    fn receiver(&self, wiring: &Wiring, topic: &str) -> Result<Input, String> {
        let (event, data) = services(wiring, topic)?;
        Ok(Input {
            subscriber: data.subscriber_builder().create().map_err(text)?,
            listener: event.listener_builder().create().map_err(text)?,
        })
    }
}

type Services = (
    event::PortFactory<ipc::Service>,
    publish_subscribe::PortFactory<ipc::Service, [u8], ()>,
);

/// A publish-subscribe service for the data, and an event service on whose listener the receiver sleeps.
fn services(wiring: &Wiring, topic: &str) -> Result<Services, String> {
    let node = NodeBuilder::new().create::<ipc::Service>().map_err(text)?;
    let name = ServiceName::new(&format!("{}/{topic}", wiring.run_name)).map_err(text)?;
    let event = node.service_builder(&name).event().open_or_create();
    let data = node
        .service_builder(&name)
        .publish_subscribe::<[u8]>()
        .payload_alignment(Alignment::new(64).ok_or("64 is a power of two")?)
        .max_subscribers(wiring.subscribers.max(1))
        .max_publishers(wiring.publishers.max(1))
        .subscriber_max_buffer_size(wiring.depth)
        .enable_safe_overflow(true)
        .open_or_create();
    Ok((event.map_err(text)?, data.map_err(text)?))
}

fn text(error: impl Display) -> String {
    error.to_string()
}

struct Output {
    publisher: Publisher<ipc::Service, [u8], ()>,
    notifier: Notifier<ipc::Service>,
}

impl PublishBytes for Output {
    fn publish(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), String> {
        let sample = self.publisher.loan_slice_uninit(bytes).map_err(text)?;
        #[expect(
            unsafe_code,
            reason = "fills the payload in place, without zeroing it before"
        )]
        // SAFETY: u8 has no invalid bit patterns, and `fill` writes every byte before it reads any.
        let mut sample = unsafe { sample.assume_init() };
        fill(sample.payload_mut());
        sample.send().map_err(text)?;
        self.notifier.notify().map_err(text)?;
        Ok(())
    }
}

struct Input {
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    listener: Listener<ipc::Service>,
}

impl ReceiveBytes for Input {
    fn receive(
        &mut self,
        timeout: Duration,
        mut on_message: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        self.listener.timed_wait(|_| {}, timeout).map_err(text)?;
        while let Some(sample) = self.subscriber.receive().map_err(text)? {
            on_message(sample.payload())?;
        }
        Ok(())
    }
}
