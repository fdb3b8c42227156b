//! Notices that the path to a peer has died, if there is another one to change to. Sans-IO.
//!
//! Packets that the peer answers must not stay unanswered, even if others arrive from it: a path
//! may die in one direction. A peer that falls quiet is asked: it may have nothing to send, or the
//! path may be gone.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::rate;

/// The path is taken for dead when packets of this time, or of half a round trip, if that is longer,
/// have no answer. A false alarm costs a change of the path.
const SILENCE: Duration = Duration::from_millis(40);
/// Largest probability, at the loss of the path, that such a silence is due to chance.
const CHANCE: f64 = 1e-3;
/// Bounds of the number of packets without an answer.
const PACKETS: (u32, u32) = (4, 100);
/// The peer is asked no more often than this.
const ASK_PERIOD: Duration = Duration::from_millis(5);
/// A peer that sent data and is then quiet for this time is asked.
const QUIET: Duration = Duration::from_millis(40);
/// If no path answers, they take turns; each turn is twice as long as the last, up to this.
const TURN_MOST: Duration = Duration::from_millis(2400);
/// Packets that are sent within this time have one entry.
const BURST: Duration = Duration::from_millis(1);
/// Entries at most; beyond them the last one grows.
const BURSTS_MAX: usize = 1024;

/// An action that the caller must take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send a packet that the peer answers.
    Ask,
    /// Change to another path.
    FailOver,
}

/// Limits on the time of an answer and on the number of unanswered packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Patience {
    /// Longest time of an answer: the round trip, and the peer's time between reports.
    answer: Duration,
    /// The path has died if at least `packets` packets are unanswered for this time.
    silence: Duration,
    packets: u32,
}

impl Patience {
    /// On a path whose packets count as lost when they are not reported in two round trips and a rest.
    pub(crate) fn of(path: &rate::Status, rto: Duration) -> Self {
        let answer = rto.saturating_sub(path.rtt).max(path.rtt);
        Self::new(path.rtt, answer, path.loss)
    }

    /// On a path with this round trip and loss, whose peer answers within `answer`.
    fn new(rtt: Duration, answer: Duration, loss: f64) -> Self {
        let unanswered = 1.0 - (1.0 - loss.clamp(0.001, 0.95)).powi(2);
        let packets = (CHANCE.ln() / unanswered.ln()).ceil() as u32;
        let packets = packets.clamp(PACKETS.0, PACKETS.1);
        Self {
            answer,
            silence: SILENCE.max(rtt / 2).max(ASK_PERIOD * packets),
            packets,
        }
    }
}

/// The state of the path in use.
#[derive(Debug, Default)]
pub(crate) struct PathWatch {
    /// Packets without an answer, in the order in which they were sent.
    unanswered: VecDeque<Burst>,
    /// When an answer last came to one of several packets.
    answered: Option<Instant>,
    /// When a packet was last sent, or asked for.
    asked: Option<Instant>,
    turns: u32,
    /// When to ask a peer that has fallen quiet.
    ask_at: Option<Instant>,
}

/// Packets without an answer that were sent within [`BURST`].
#[derive(Clone, Copy, Debug)]
struct Burst {
    /// When the first one was sent.
    sent: Instant,
    /// The number of the first one and the number after the last one.
    numbers: (u64, u64),
    packets: u32,
}

impl PathWatch {
    /// Notes that a packet with this number is sent, which the peer answers.
    pub(crate) fn on_sent(&mut self, now: Instant, number: u64) {
        self.asked = Some(now);
        let is_full = self.unanswered.len() == BURSTS_MAX;
        if let Some(burst) = self.unanswered.back_mut()
            && (is_full || now < burst.sent + BURST)
        {
            burst.numbers.1 = number + 1;
            burst.packets += 1;
            return;
        }
        self.unanswered.push_back(Burst {
            sent: now,
            numbers: (number, number + 1),
            packets: 1,
        });
    }

    /// Notes that data has arrived.
    pub(crate) fn on_data(&mut self, now: Instant) {
        self.ask_at = Some(now + QUIET);
    }

    /// Notes that the peer has reported on all packets up to this one.
    pub(crate) fn on_answer(&mut self, now: Instant, highest: u64) {
        let answers = |burst: &Burst| burst.numbers.0 <= highest;
        if !self.unanswered.front().is_some_and(answers) {
            return;
        }
        self.turns = 0;
        self.answered = Some(now);
        while let Some(burst) = self.unanswered.front_mut() {
            let (first, end) = burst.numbers;
            if highest + 1 < end {
                let answered = (highest + 1).saturating_sub(first) as u32;
                burst.numbers.0 = first.max(highest + 1);
                // Skipped numbers belong to no packet.
                burst.packets = burst.packets.saturating_sub(answered).max(1);
                break;
            }
            self.unanswered.pop_front();
        }
    }

    /// Notes that packets travel on another path from now on, as this end or the peer has decided.
    pub(crate) fn on_path_changed(&mut self) {
        self.unanswered.clear();
        (self.answered, self.ask_at) = (None, None);
    }

    /// When to call [`poll`](Self::poll).
    pub(crate) fn timeout(&self, patience: &Patience) -> Option<Instant> {
        let next = self.next_at(patience).map(|(at, _)| at);
        [next, self.ask_at].into_iter().flatten().min()
    }

    /// The action that is due, if any.
    pub(crate) fn poll(&mut self, now: Instant, patience: &Patience) -> Option<Action> {
        let asks = self.ask_at.take_if(|at| *at <= now).is_some();
        let due = self.next_at(patience).filter(|(at, _)| *at <= now);
        match due {
            Some((_, Action::FailOver)) => {
                self.unanswered.clear();
                self.turns += 1;
                return Some(Action::FailOver);
            }
            Some((_, Action::Ask)) => self.asked = Some(now),
            None => {}
        }
        (asks || due.is_some()).then_some(Action::Ask)
    }

    /// The next action and its time, if packets are unanswered.
    fn next_at(&self, patience: &Patience) -> Option<(Instant, Action)> {
        let first = self.unanswered.front()?;
        let mut packets = 0;
        let enough = self.unanswered.iter().find(|burst| {
            packets += burst.packets;
            packets >= patience.packets
        });
        let silence = self.silence(patience);
        let Some(enough) = enough else {
            let asked = self.asked.unwrap_or(first.sent);
            return Some((asked + silence / patience.packets, Action::Ask));
        };
        // Late answers come from a path that has become longer.
        let late = self.answered.and_then(|at| at.checked_sub(patience.answer));
        let since = late.map_or(first.sent, |late| late.max(first.sent));
        let dead_at = enough.sent.max(since + silence) + patience.answer;
        Some((dead_at, Action::FailOver))
    }

    fn silence(&self, patience: &Patience) -> Duration {
        let first = patience.silence;
        (first * (1 << self.turns.min(8))).min(TURN_MOST.max(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);
    const ANSWER: Duration = Duration::from_millis(10);

    fn patience(loss: f64) -> Patience {
        Patience::new(MILLI * 2, ANSWER, loss)
    }

    /// Answers the questions of the watch by packets, until it fails over. Returns the time, and the
    /// number of packets.
    fn silence(watch: &mut PathWatch, start: Instant, patience: &Patience) -> (Duration, u32) {
        watch.on_sent(start, 1);
        let (mut now, mut packets) = (start, 1);
        loop {
            let at = watch.timeout(patience).expect("it waits");
            assert!(at > now || watch.poll(now, patience).is_none());
            now = at.max(now);
            match watch.poll(now, patience) {
                Some(Action::FailOver) => return (now - start, packets),
                Some(Action::Ask) => {
                    packets += 1;
                    watch.on_sent(now, packets.into());
                }
                None => {}
            }
        }
    }

    #[test]
    fn a_path_without_answers_is_left_and_paths_take_turns() {
        let mut now = Instant::now();
        let mut watch = PathWatch::default();
        let patience = patience(0.0);
        assert_eq!(watch.timeout(&patience), None);
        let mut turns = Vec::new();
        for _ in 0..8 {
            let (time, packets) = silence(&mut watch, now, &patience);
            assert_eq!(packets, 4);
            turns.push((time - ANSWER).as_millis());
            now += time;
        }
        assert_eq!(turns, [40, 80, 160, 320, 640, 1280, 2400, 2400]);
        watch.on_sent(now, 7);
        watch.on_sent(now, 8);
        watch.on_answer(now, 6);
        assert!(watch.timeout(&patience).is_some(), "that is old");
        watch.on_answer(now, 7);
        assert!(watch.timeout(&patience).is_some(), "the last has no answer");
        watch.on_answer(now, 8);
        assert_eq!(watch.timeout(&patience), None);
    }

    #[test]
    fn loss_is_not_taken_for_silence() {
        let packets = [0.0, 0.1, 0.3, 0.5, 0.9].map(|loss| {
            let (time, packets) =
                silence(&mut PathWatch::default(), Instant::now(), &patience(loss));
            (packets, (time - ANSWER).as_millis())
        });
        assert_eq!(packets, [(4, 40), (5, 40), (11, 55), (25, 125), (100, 500)]);
    }

    #[test]
    fn a_peer_that_falls_quiet_is_asked() {
        let now = Instant::now();
        let mut watch = PathWatch::default();
        let patience = patience(0.0);
        watch.on_data(now);
        assert_eq!(watch.poll(now + QUIET, &patience), Some(Action::Ask));
        assert_eq!(watch.timeout(&patience), None);
        watch.on_sent(now + QUIET, 5);
        watch.on_answer(now + QUIET + MILLI, 5);
        assert_eq!(watch.timeout(&patience), None, "it has answered");
    }

    /// An answer that was in flight when the path died does not begin the count again.
    #[test]
    fn the_count_begins_with_the_first_packet_without_an_answer() {
        let now = Instant::now();
        let mut watch = PathWatch::default();
        let patience = patience(0.0);
        for number in 0..8 {
            watch.on_sent(now + MILLI * 5 * number, u64::from(number));
        }
        watch.on_answer(now + MILLI * 15, 1);
        let dead_at = now + MILLI * (2 * 5 + 40) + ANSWER;
        assert_eq!(watch.timeout(&patience), Some(dead_at));
        // One that took longer than an answer may does.
        watch.on_answer(now + MILLI * 45, 2);
        let dead_at = now + MILLI * (45 + 40);
        assert_eq!(watch.timeout(&patience), Some(dead_at));
    }

    #[test]
    fn an_answer_may_take_a_round_trip() {
        let now = Instant::now();
        let mut watch = PathWatch::default();
        let rtt = MILLI * 200;
        let patience = Patience::new(rtt, rtt + ANSWER, 0.0);
        let (time, _) = silence(&mut watch, now, &patience);
        assert_eq!(time, rtt + rtt / 2 + ANSWER);
    }
}
