//! The last samples of a topic with `history`, for the beginning of the next file.

use std::collections::VecDeque;

use nervure_message::{Header, Schema};

use crate::sample::IncomingSample;

/// Limit on the samples of a topic that are kept, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// The last samples of a topic, at most as many as its `history`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latched {
    history: usize,
    bytes: usize,
    samples: VecDeque<Kept>,
}

#[derive(Clone, Debug)]
struct Kept {
    header: Header,
    frame: Option<String>,
    head: Vec<u8>,
    payload: Vec<u8>,
    schema: Option<Schema>,
}

impl Latched {
    pub(crate) fn new(history: u32) -> Self {
        Self {
            history: history as usize,
            ..Self::default()
        }
    }

    pub(crate) fn push(&mut self, sample: &IncomingSample<'_>) {
        if self.history == 0 {
            return;
        }
        self.bytes += sample.payload.len();
        self.samples.push_back(Kept {
            header: sample.header,
            frame: sample.frame.clone(),
            head: sample.head.to_vec(),
            payload: sample.payload.to_vec(),
            schema: sample.schema.clone(),
        });
        while self.samples.len() > self.history || self.bytes > MAX_BYTES {
            let oldest = self
                .samples
                .pop_front()
                .expect("there are samples while there are bytes of them");
            self.bytes -= oldest.payload.len();
        }
    }

    /// The samples, oldest first.
    pub(crate) fn samples(&self) -> impl Iterator<Item = IncomingSample<'_>> {
        self.samples.iter().map(|kept| IncomingSample {
            header: kept.header,
            frame: kept.frame.clone(),
            head: &kept.head,
            payload: &kept.payload,
            schema: kept.schema.clone(),
        })
    }
}
