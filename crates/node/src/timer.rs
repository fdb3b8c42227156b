//! Timers of a node: deadlines on the dataflow's clock, kept in the node's own wait.

/// A timer input.
#[derive(Debug)]
pub(crate) struct Timer {
    /// Index of the input.
    pub(crate) input: usize,
    period_nanos: u64,
    /// When it is due next, on the dataflow's clock; `None` until the dataflow starts.
    due: Option<i64>,
}

/// A timer that came due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) input: usize,
    pub(crate) due: i64,
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

    /// The first tick is due at once.
    pub(crate) fn start(&mut self, now: i64) {
        self.due.get_or_insert(now);
    }

    /// When it is due, on the dataflow's clock.
    pub(crate) fn due(&self) -> Option<i64> {
        self.due
    }

    /// Takes the tick if it is due: the latest one, with the count of those before it.
    pub(crate) fn take(&mut self, now: i64) -> Option<Due> {
        let due = self.due.filter(|&due| due <= now)?;
        let missed = now.abs_diff(due) / self.period_nanos;
        let latest = due.saturating_add_unsigned(missed.saturating_mul(self.period_nanos));
        self.due = Some(latest.saturating_add_unsigned(self.period_nanos));
        Some(Due {
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
    fn missed_ticks_merge_into_one_and_the_beat_is_kept() {
        let mut timer = Timer::new(0, 10);
        assert_eq!(timer.take(1000), None, "not started");
        timer.start(1000);
        assert_eq!(
            timer.take(1000),
            Some(Due {
                input: 0,
                due: 1000,
                missed: 0
            })
        );
        assert_eq!(timer.take(1009), None);
        assert_eq!(
            timer.take(1013),
            Some(Due {
                input: 0,
                due: 1010,
                missed: 0
            })
        );
        assert_eq!(
            timer.take(1049),
            Some(Due {
                input: 0,
                due: 1040,
                missed: 2
            })
        );
        assert_eq!(
            timer.take(1050),
            Some(Due {
                input: 0,
                due: 1050,
                missed: 0
            })
        );
    }
}
