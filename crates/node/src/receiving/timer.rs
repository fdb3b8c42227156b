//! Timers of a node. They need no thread: the node's own wait ends when one is due.

/// A timer input.
#[derive(Debug)]
pub(crate) struct Timer {
    /// Index of the input.
    pub(crate) input: usize,
    period_nanos: u64,
    /// When the next tick is due, on the dataflow's clock; `None` until the dataflow starts.
    due: Option<i64>,
}

/// A tick of a timer that came due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick {
    /// Index of the input.
    pub(crate) input: usize,
    /// When it was due, on the dataflow's clock.
    pub(crate) due: i64,
    /// Earlier ticks that are merged into this one.
    pub(crate) missed: u64,
}

impl Timer {
    pub(crate) fn new(input: usize, period_nanos: u64) -> Self {
        Self {
            input,
            period_nanos: period_nanos.max(1),
            due: None,
        }
    }

    /// Starts the timer, if it has not started. The first tick is due at once.
    pub(crate) fn start(&mut self, now: i64) {
        self.due.get_or_insert(now);
    }

    /// When the next tick is due, on the dataflow's clock.
    pub(crate) fn due(&self) -> Option<i64> {
        self.due
    }

    /// Takes the latest tick that is due, with the number of due ticks before it.
    pub(crate) fn take(&mut self, now: i64) -> Option<Tick> {
        let due = self.due.filter(|&due| due <= now)?;
        let missed = now.abs_diff(due) / self.period_nanos;
        let latest = due.saturating_add_unsigned(missed.saturating_mul(self.period_nanos));
        self.due = Some(latest.saturating_add_unsigned(self.period_nanos));
        Some(Tick {
            input: self.input,
            due: latest,
            missed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_ticks_merge_into_one_and_the_phase_is_kept() {
        let mut timer = Timer::new(0, 10);
        assert_eq!(timer.take(1000), None, "not started");
        timer.start(1000);
        assert_eq!(
            timer.take(1000),
            Some(Tick {
                input: 0,
                due: 1000,
                missed: 0
            })
        );
        assert_eq!(timer.take(1009), None);
        assert_eq!(
            timer.take(1013),
            Some(Tick {
                input: 0,
                due: 1010,
                missed: 0
            })
        );
        assert_eq!(
            timer.take(1049),
            Some(Tick {
                input: 0,
                due: 1040,
                missed: 2
            })
        );
        assert_eq!(
            timer.take(1050),
            Some(Tick {
                input: 0,
                due: 1050,
                missed: 0
            })
        );
    }
}
