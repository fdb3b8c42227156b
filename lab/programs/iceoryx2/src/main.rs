//! iceoryx2, event-driven as its documentation recommends: a publish-subscribe service for the data, and an event
//! service of the same name on whose listener the consumer sleeps. Waiting on the one listener directly costs less
//! than a wait set of one.
//!
//! Root path and prefix of its files come from `config/iceoryx2.toml` in the working directory.

use std::error::Error;
use std::time::Duration;

use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::*;
use nervure_lab_endpoint::{Case, Consumer, Endpoint, Mode, Publish, Role, now_nanos, produce};

fn main() -> Result<(), Box<dyn Error>> {
    set_log_level(LogLevel::Error);
    let mut endpoint = Endpoint::from_environment()?;
    let case = endpoint.case().clone();
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let name = ServiceName::new(&case.run_name)?;
    let event = node.service_builder(&name).event().open_or_create()?;
    let data = node
        .service_builder(&name)
        .publish_subscribe::<[u64]>()
        .payload_alignment(Alignment::new(64).ok_or("64 is a power of two")?)
        .max_subscribers(case.consumers)
        .max_publishers(1)
        .subscriber_max_buffer_size(case.queue_depth)
        .enable_safe_overflow(drops_oldest(&case))
        .open_or_create()?;
    match case.role {
        Role::Producer => {
            let publisher = data
                .publisher_builder()
                .initial_max_slice_len(case.payload_words())
                .create()?;
            let notifier = event.notifier_builder().create()?;
            wait_until(|| data.dynamic_config().number_of_subscribers() == case.consumers);
            publisher.update_connections()?;
            produce(
                &mut endpoint,
                &mut Output {
                    publisher,
                    notifier,
                },
            )?;
        }
        Role::Consumer => {
            let subscriber = data.subscriber_builder().create()?;
            let listener = event.listener_builder().create()?;
            wait_until(|| data.dynamic_config().number_of_publishers() == 1);
            subscriber.update_connections()?;
            let mut consumer = Consumer::start(&mut endpoint)?;
            while !consumer.is_finished() {
                listener.blocking_wait(|_| {})?;
                while let Some(sample) = subscriber.receive()? {
                    consumer.observe(now_nanos(), sample.payload());
                }
            }
            consumer.report()?;
        }
    }
    Ok(())
}

/// Paced cases drop the oldest sample; floods block: without overflow iceoryx2's default is `RetryUntilDelivered`.
fn drops_oldest(case: &Case) -> bool {
    case.mode == Mode::Paced
}

/// Waits until both ends are connected: before that, a publisher drops the samples that overflow.
fn wait_until(is_connected: impl Fn() -> bool) {
    while !is_connected() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Output {
    publisher: Publisher<ipc::Service, [u64], ()>,
    notifier: Notifier<ipc::Service>,
}

impl Publish for Output {
    fn publish(&mut self, words: usize, fill: impl FnOnce(&mut [u64])) -> Result<(), String> {
        let sample = self
            .publisher
            .loan_slice_uninit(words)
            .map_err(|error| format!("loan: {error}"))?;
        #[expect(
            unsafe_code,
            reason = "fills the payload in place, without zeroing it before"
        )]
        // SAFETY: u64 has no invalid bit patterns, and `fill` writes every word before it reads any.
        let mut sample = unsafe { sample.assume_init() };
        fill(sample.payload_mut());
        sample.send().map_err(|error| format!("send: {error}"))?;
        self.notifier
            .notify()
            .map_err(|error| format!("notify: {error}"))?;
        Ok(())
    }
}
