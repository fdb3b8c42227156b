//! Notices that the path to a peer has died, where there is another one to change to. Sans-IO.
//!
//! Packets that the peer answers must not stay without an answer. A peer that sends, and then falls
//! quiet, is asked: it may have nothing to send, or the path may be gone.

use std::time::{Duration, Instant};

/// The path is taken for dead when a packet has no answer for this time, or for the retransmission
/// timeout, if that is longer. A false alarm costs a handshake.
const UNANSWERED: Duration = Duration::from_millis(60);
/// A peer that sent data and is then quiet for this time is asked. With [`UNANSWERED`], a change of
/// the path begins within 100 ms.
const QUIET: Duration = Duration::from_millis(40);
/// If no path answers, they take turns; each turn is twice as long as the last, up to this.
const TURN_MOST: Duration = Duration::from_millis(2400);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send a packet that the peer answers.
    Ask,
    /// Change to another path.
    FailOver,
}

/// The state of the path in use.
#[derive(Debug, Default)]
pub(crate) struct PathWatch {
    /// When the first packet was sent that has no answer, or the last turn began.
    unanswered: Option<Instant>,
    turns: u32,
    ask_at: Option<Instant>,
}

impl PathWatch {
    /// Notes that packets travel on another path from now on, as this end or the peer has decided.
    pub(crate) fn on_path_changed(&mut self, now: Instant) {
        self.unanswered = self.unanswered.map(|_| now);
        self.ask_at = None;
    }

    /// Notes that a packet is sent that the peer answers.
    pub(crate) fn on_sent(&mut self, now: Instant) {
        self.unanswered.get_or_insert(now);
    }

    /// Notes that a packet has arrived: data, or an answer.
    pub(crate) fn on_arrival(&mut self, now: Instant, is_data: bool) {
        (self.unanswered, self.turns) = (None, 0);
        self.ask_at = is_data.then(|| now + QUIET);
    }

    /// When to call [`poll`](Self::poll).
    pub(crate) fn timeout(&self, rto: Duration) -> Option<Instant> {
        let dead_at = self.unanswered.map(|since| since + self.patience(rto));
        [dead_at, self.ask_at].into_iter().flatten().min()
    }

    /// What is to be done now, if anything is.
    pub(crate) fn poll(&mut self, now: Instant, rto: Duration) -> Option<Action> {
        if self
            .unanswered
            .is_some_and(|since| since + self.patience(rto) <= now)
        {
            self.unanswered = Some(now);
            self.turns += 1;
            return Some(Action::FailOver);
        }
        self.ask_at.take_if(|at| *at <= now).map(|_| Action::Ask)
    }

    fn patience(&self, rto: Duration) -> Duration {
        let first = UNANSWERED.max(rto);
        (first * (1 << self.turns.min(8))).min(TURN_MOST.max(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTO: Duration = Duration::from_millis(10);

    #[test]
    fn a_path_without_answers_is_left_and_paths_take_turns() {
        let start = Instant::now();
        let mut watch = PathWatch::default();
        assert_eq!(watch.timeout(RTO), None);
        watch.on_sent(start);
        let mut now = start;
        let mut turns = Vec::new();
        for _ in 0..8 {
            let at = watch.timeout(RTO).expect("it waits");
            assert_eq!(watch.poll(at - Duration::from_micros(1), RTO), None);
            assert_eq!(watch.poll(at, RTO), Some(Action::FailOver));
            turns.push((at - now).as_millis());
            now = at;
        }
        assert_eq!(turns, [60, 120, 240, 480, 960, 1920, 2400, 2400]);
        watch.on_arrival(now, false);
        assert_eq!(watch.timeout(RTO), None);
    }

    #[test]
    fn a_peer_that_falls_quiet_is_asked_once() {
        let now = Instant::now();
        let mut watch = PathWatch::default();
        watch.on_arrival(now, true);
        assert_eq!(watch.poll(now + QUIET, RTO), Some(Action::Ask));
        assert_eq!(watch.timeout(RTO), None);
        watch.on_sent(now + QUIET);
        watch.on_arrival(now + QUIET * 2, false);
        assert_eq!(watch.timeout(RTO), None, "it has answered");
    }
}
