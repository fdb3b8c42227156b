//! The largest of recent values.

use std::collections::VecDeque;

/// Recent values: of the last rounds and of the last seconds. A value is forgotten only when others follow it, so a
/// pause forgets nothing.
const ROUNDS: usize = 10;
const SECONDS: f64 = 0.25;

/// See the module.
#[derive(Debug, Default)]
pub struct Recent {
    /// (time, value); values fall from front to back, since a later one at least as large replaces a value.
    values: VecDeque<(f64, f64)>,
    /// Times of the last rounds.
    rounds: VecDeque<f64>,
}

impl Recent {
    pub fn push(&mut self, time: f64, value: f64) {
        while self.values.back().is_some_and(|(_, last)| *last <= value) {
            self.values.pop_back();
        }
        self.values.push_back((time, value));
        self.rounds.push_back(time);
        if self.rounds.len() > ROUNDS {
            self.rounds.pop_front();
        }
        let since = self
            .rounds
            .front()
            .map_or(time, |first| first.min(time - SECONDS));
        while self.values.front().is_some_and(|(at, _)| *at < since) {
            self.values.pop_front();
        }
    }

    /// Forgets all others.
    pub fn set(&mut self, time: f64, value: f64) {
        *self = Self::default();
        self.push(time, value);
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn largest(&self) -> Option<f64> {
        self.values.front().map(|(_, value)| *value)
    }
}
