//! Notices for the application. Each stream keeps its own, so that none is ever dropped and their
//! number is bounded by that of the streams: a stream is not forgotten before the application has
//! taken them.

use std::collections::VecDeque;

/// The streams with notices, in the order in which the first of them came.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Samples lost with past sessions of the peer.
    pub(super) restarted: Option<u64>,
    pub(super) opened: VecDeque<u32>,
    pub(super) changed: VecDeque<u32>,
}

/// The notices of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamNotices {
    pub(super) opened: bool,
    pub(super) readable: bool,
    pub(super) changed: bool,
    pub(super) ended: bool,
}

impl StreamNotices {
    pub(super) const OPENED: Self = Self {
        opened: true,
        readable: false,
        changed: false,
        ended: false,
    };
    pub(super) const NONE: Self = Self {
        opened: false,
        readable: false,
        changed: false,
        ended: false,
    };

    pub(super) fn has_changed(self) -> bool {
        self.readable || self.changed || self.ended
    }
}

impl Notices {
    /// The peer has begun a new session: notices of the old one are void.
    pub(super) fn on_restart(&mut self, lost: u64) {
        *self = Self {
            restarted: Some(self.restarted.unwrap_or(0) + lost),
            ..Self::default()
        };
    }

    /// Forgets a stream that had these notices.
    pub(super) fn forget(&mut self, stream: u32, notices: StreamNotices) {
        if notices.opened {
            self.opened.retain(|other| *other != stream);
        }
        if notices.has_changed() {
            self.changed.retain(|other| *other != stream);
        }
    }

    /// Notes a stream with [`StreamNotices::OPENED`].
    pub(super) fn on_opened(&mut self, stream: u32) {
        self.opened.push_back(stream);
    }
}
