//! Floors of the machine, which no middleware can beat: `floors wake` and `floors copy`.

mod shared_block;

use nervure_lab_endpoint::{
    Consumer, END_OF_STREAM, Endpoint, FIRST_UNREAD_WORD, HEADER_WORDS, Mode, Publish, Role,
    now_nanos, produce, sleep_until_nanos,
};
use shared_block::SharedBlock;

fn main() -> Result<(), String> {
    let endpoint = Endpoint::from_environment()?;
    match std::env::args().nth(1).as_deref() {
        Some("wake") => wake(endpoint),
        Some("copy") => copy(endpoint),
        _ => Err("expected one argument: wake or copy".to_owned()),
    }
}

/// Two or more processes share one memfd with a block and a futex word: the producer fills the block and wakes the
/// consumers, which sleep on the futex. There is no queue and no choice of blocks.
fn wake(mut endpoint: Endpoint) -> Result<(), String> {
    let block = SharedBlock::from_environment(endpoint.case().payload_words())?;
    match endpoint.case().role {
        Role::Producer => {
            let consumers = endpoint.case().consumers;
            produce(&mut endpoint, &mut Output { block, consumers })
        }
        Role::Consumer => {
            let mut last = block.generation();
            let mut consumer = Consumer::start(&mut endpoint)?;
            while !consumer.is_finished() {
                last = block.wait_for_change(last);
                consumer.observe(now_nanos(), block.words());
                block.release();
            }
            consumer.report()
        }
    }
}

struct Output {
    block: SharedBlock,
    consumers: usize,
}

impl Publish for Output {
    fn publish(&mut self, words: usize, fill: impl FnOnce(&mut [u64])) -> Result<(), String> {
        self.block.wait_until_released(self.consumers);
        fill(&mut self.block.words_mut()[..words]);
        self.block.wake_all();
        Ok(())
    }
}

/// One process, no wake-up: copies into the same hot block repeatedly, and reads it back if the case touches.
fn copy(mut endpoint: Endpoint) -> Result<(), String> {
    let case = endpoint.case().clone();
    let source = vec![1; case.payload_words()];
    let mut block = SharedBlock::from_environment(case.payload_words())?;
    block.words_mut().copy_from_slice(&source);
    let mut consumer = Consumer::start(&mut endpoint)?;
    let start_nanos = now_nanos();
    let period_nanos = (1e9 / case.rate_hz) as u64;
    let mut sent = 0;
    loop {
        match case.mode {
            Mode::Paced if sent == case.warmup_messages + case.messages => break,
            Mode::Paced => sleep_until_nanos(start_nanos + (sent + 1) * period_nanos),
            Mode::Flood if now_nanos() > start_nanos + (case.flood_seconds * 1e9) as u64 => break,
            Mode::Flood => {}
            Mode::Idle | Mode::Mesh => {
                return Err("expected the mode paced or flood".to_owned());
            }
        }
        let before_copy_nanos = now_nanos();
        block.words_mut().copy_from_slice(&source);
        block.words_mut()[..HEADER_WORDS].copy_from_slice(&[sent, before_copy_nanos, now_nanos()]);
        consumer.observe(now_nanos(), block.words());
        sent += 1;
    }
    let mut end = [0; FIRST_UNREAD_WORD];
    end[..2].copy_from_slice(&[END_OF_STREAM, sent]);
    consumer.observe(now_nanos(), &end);
    consumer.report()
}
