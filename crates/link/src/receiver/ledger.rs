//! The accounts of a session, and its charges other than streams and their samples.

use super::{
    cost,
    ranges::{self, CLOSING, ClosedIds, Reports},
    report::Reporter,
    stream::reserve,
};
use crate::{
    budget::{Account, Budget, SMALL_BYTES, Size},
    coding::Coder,
    policy::REASON_BYTES_MAX,
};

/// The cost of a message for the peer, at most: a transmission of the control stream.
const REPLY: u64 = 640 + REASON_BYTES_MAX as u64;

/// Memory that every session has for transmissions to close: several hundred ranges, more than an
/// honest sender leaves. So these go on when nothing else is left.
const CLOSING_RESERVE: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) arriving: Account,
    pub(super) queued: Account,
    /// Fixed cost of a session, in bytes.
    own: u64,
    ranges: u64,
    /// Charge for open and closed transmissions beyond their reserve, in bytes.
    closing: u64,
    history: u64,
    replies: u64,
    decoder: u64,
}

impl Ledger {
    /// Charges the fixed costs of a session: `own` bytes, and the grant of its control stream.
    pub(super) fn new(budget: &Budget, own: u64, control_grant: u64) -> Self {
        let mut arriving = Account::new(&budget.arriving);
        let grant: u64 = reserve(control_grant).iter().map(|(_, bytes)| bytes).sum();
        arriving.force(Size::Small, own + grant + CLOSING_RESERVE);
        Self {
            arriving,
            queued: Account::new(&budget.queued),
            own,
            ranges: 0,
            closing: 0,
            history: 0,
            replies: 0,
            decoder: 0,
        }
    }

    /// Bytes kept for state other than streams and their samples.
    pub(super) fn held(&self) -> u64 {
        self.own + self.ranges + self.history + self.replies + self.decoder
    }

    /// Bytes in use or reserved, except for streams and their grants.
    pub(super) fn reserved(&self) -> u64 {
        self.held() - self.ranges + CLOSING_RESERVE + self.closing
    }

    /// Charges open transmissions, which are to be closed, and closed ones that are reported.
    /// Returns whether there is room for another.
    pub(super) fn settle(&mut self, open: usize, closed: &ClosedIds, reports: &Reports) -> bool {
        self.ranges = ranges::cost(closed, reports);
        let closing = self.ranges + open as u64 * CLOSING;
        self.arriving
            .settle(&mut self.closing, closing.saturating_sub(CLOSING_RESERVE));
        closing + 2 * CLOSING <= CLOSING_RESERVE || self.arriving.room(Size::Small) >= 2 * CLOSING
    }

    /// Charges the feedbacks that are remembered.
    pub(super) fn charge_history(&mut self, reporter: &Reporter) {
        self.arriving
            .settle(&mut self.history, reporter.history_bytes());
    }

    /// Charges the messages to the peer that it has not confirmed.
    pub(super) fn charge_replies(&mut self, unconfirmed: usize) {
        self.arriving
            .settle(&mut self.replies, unconfirmed as u64 * REPLY);
    }

    /// Charges the decoder's working memory, or frees it, if there is no room for it.
    pub(super) fn charge_decoder(&mut self, coder: &mut Coder) {
        let bytes = match coder.decoder_bytes() {
            0 => 0,
            bytes => cost::allocation(bytes),
        };
        if bytes <= self.decoder {
            return;
        }
        if self.arriving.take(Size::Large, bytes - self.decoder) {
            self.decoder = bytes;
        } else {
            coder.free_decoder();
            self.arriving.give(Size::Large, self.decoder);
            self.decoder = 0;
        }
    }

    /// Reserves memory for a grant. Returns false when there is none.
    pub(super) fn take_grant(&mut self, grant: u64) -> bool {
        let [(small, first), (large, rest)] = reserve(grant);
        let fits = self.arriving.take(small, first);
        if fits && !self.arriving.take(large, rest) {
            self.arriving.give(small, first);
            return false;
        }
        fits
    }

    /// Takes memory for the first grant of a stream, of at most `initial` bytes; 0 if there is none.
    /// The first streams get more, so that even large first samples need not request credit, which
    /// takes a round trip; the last quarter of the room for large samples at most is used for that.
    pub(super) fn first_grant(&mut self, initial: u64) -> u64 {
        let most = self.arriving.pool().most_large();
        let room = self.arriving.room(Size::Large);
        let generous = room.saturating_sub(most / 4 * 3) / 8;
        let least = SMALL_BYTES.min(initial);
        let grant = (generous / 9 * 4).clamp(least, initial);
        [grant, least]
            .into_iter()
            .find(|grant| self.take_grant(*grant))
            .unwrap_or(0)
    }

    /// Returns the memory reserved for a grant.
    pub(super) fn give_grant(&mut self, grant: u64) {
        for (size, bytes) in reserve(grant) {
            self.arriving.give(size, bytes);
        }
    }

    /// Changes a grant to another, if there is memory for it. Returns the grant that holds.
    pub(super) fn change_grant(&mut self, from: u64, to: u64) -> u64 {
        self.give_grant(from);
        if self.take_grant(to) {
            return to;
        }
        // Takes back the memory just returned.
        for (size, bytes) in reserve(from) {
            self.arriving.force(size, bytes);
        }
        from
    }
}
