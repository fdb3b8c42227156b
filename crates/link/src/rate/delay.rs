//! Round-trip time, one-way delay and its variation.

/// Shortest time for which the smallest delay is believed, in seconds: as in Copa (NSDI 2018, section 2.2) and BBR.
const BASE_WINDOW: f64 = 10.0;
/// The same beside a flow that fills the queue, which may stay filled for a while.
const COMPETING_BASE_WINDOW: f64 = 60.0;
/// The same for a queue of reports, which nothing drains: attributed to the path, it would bring about more reports and
/// grow without end.
const REPORT_BASE_WINDOW: f64 = 60.0;

/// Shortest and longest interval of reports, in seconds.
const REPORT_INTERVALS: (f64, f64) = (0.001, 1.0);
const FIRST_REPORT_INTERVAL: f64 = 0.004;
/// Least delay that is attributed to a queue of reports, in seconds.
const REPORT_QUEUE: f64 = 0.010;

/// Delays, in seconds. One-way delays are differences of unsynchronised clocks: only their variation means anything.
#[derive(Debug)]
pub struct Delays {
    known: bool,
    /// No sample of the path in use has arrived yet.
    is_new_path: bool,
    smoothed_rtt: f64,
    /// Smoothed round-trip time without the queue of this direction.
    smoothed_path: f64,
    base_rtt: WindowedMin,
    /// The smallest round-trip time of a longer window.
    least_rtt: WindowedMin,
    base_one_way: WindowedMin,
    /// Smallest one-way delay of the running round.
    round_one_way: Option<f64>,
    last_one_way: f64,
    last_rtt: f64,
    noise: f64,
    /// In seconds.
    report_interval: f64,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            known: false,
            is_new_path: true,
            smoothed_rtt: 0.0,
            smoothed_path: 0.0,
            base_rtt: WindowedMin::new(BASE_WINDOW),
            least_rtt: WindowedMin::new(REPORT_BASE_WINDOW),
            base_one_way: WindowedMin::new(BASE_WINDOW),
            round_one_way: None,
            last_one_way: 0.0,
            last_rtt: 0.0,
            noise: 0.0,
            report_interval: FIRST_REPORT_INTERVAL,
        }
    }
}

impl Delays {
    pub fn on_sample(&mut self, time: f64, rtt: f64, one_way: f64) {
        let is_first = std::mem::take(&mut self.is_new_path);
        // RFC 6298, section 2: the first sample counts in full, the others by an eighth.
        if !is_first {
            self.smoothed_rtt += (rtt - self.smoothed_rtt) / 8.0;
            // RFC 3550, section 6.4.1: mean deviation between neighbours, by a sixteenth.
            self.noise += ((one_way - self.last_one_way).abs() - self.noise) / 16.0;
        } else {
            self.smoothed_rtt = rtt;
        }
        self.last_one_way = one_way;
        self.last_rtt = rtt;
        self.base_rtt.insert(time, rtt);
        self.least_rtt.insert(time, rtt);
        self.base_one_way.insert(time, one_way);
        let path = (rtt - self.queue()).max(self.base_rtt());
        self.smoothed_path = if is_first {
            path
        } else {
            self.smoothed_path + (path - self.smoothed_path) / 8.0
        };
        self.known = true;
        if self.report_queue() > REPORT_QUEUE {
            // On a shared air, the reports to all hosts may exceed its capacity.
            self.report_interval = self.report_interval.max(self.report_queue() / 4.0);
        }
        self.round_one_way = Some(
            self.round_one_way
                .map_or(one_way, |least| least.min(one_way)),
        );
    }

    /// Another path is in use, with about this round-trip time until it is measured.
    pub fn on_path_changed(&mut self, rtt: f64) {
        self.is_new_path = true;
        if self.known {
            (self.smoothed_rtt, self.smoothed_path) = (rtt, rtt);
        }
        self.round_one_way = None;
        self.forget_base();
    }

    /// The smallest delay is believed until the next drain can show it again. `drain_period`: seconds between two
    /// drains.
    pub fn set_base_window(&mut self, competing: bool, drain_period: f64) {
        self.base_one_way.length = if competing {
            COMPETING_BASE_WINDOW
        } else {
            drain_period.clamp(BASE_WINDOW, COMPETING_BASE_WINDOW)
        };
    }

    /// The path has become longer: delays from before the newest packet no longer count.
    pub fn forget_base(&mut self) {
        self.base_one_way.steps.clear();
        self.base_rtt.steps.clear();
        self.least_rtt.steps.clear();
    }

    pub fn known(&self) -> bool {
        self.known
    }

    pub fn rtt(&self) -> f64 {
        self.smoothed_rtt
    }

    /// The round-trip time without the queue of this direction: reports may wait on their way back.
    pub fn path_rtt(&self) -> f64 {
        self.smoothed_path
    }

    pub fn base_rtt(&self) -> f64 {
        self.base_rtt.value().unwrap_or(0.0)
    }

    /// The one-way delay above its smallest value, of the newest packet.
    pub fn queue(&self) -> f64 {
        self.base_one_way
            .value()
            .map_or(0.0, |base| self.last_one_way - base)
    }

    /// The queue that stood for the whole round: jitter only adds to the smallest delay. (Copa's standing RTT.)
    pub fn take_round_queue(&mut self) -> f64 {
        let least = self.round_one_way.take().unwrap_or(self.last_one_way);
        self.base_one_way.value().map_or(0.0, |base| least - base)
    }

    /// Makes reports more frequent again when they do not queue. Call it once a round.
    pub fn relax_report_interval(&mut self) {
        if self.report_queue() < REPORT_QUEUE {
            self.report_interval *= 0.9;
        }
    }

    /// Waiting time of the newest report on its way: the round trip without the path and our own queue.
    fn report_queue(&self) -> f64 {
        self.last_rtt - self.least_rtt.value().unwrap_or(0.0) - self.queue()
    }

    /// Requested interval of reports, in seconds.
    pub fn report_interval(&self) -> f64 {
        self.report_interval
            .clamp(REPORT_INTERVALS.0, REPORT_INTERVALS.1)
    }

    /// Mean deviation of neighbouring one-way delays.
    pub fn noise(&self) -> f64 {
        self.noise
    }
}

/// The smallest value of a sliding window, in ten steps, so that memory is bounded.
#[derive(Debug)]
struct WindowedMin {
    length: f64,
    /// (start of the step, smallest value in it)
    steps: Vec<(f64, f64)>,
}

impl WindowedMin {
    fn new(length: f64) -> Self {
        Self {
            length,
            steps: Vec::new(),
        }
    }

    fn insert(&mut self, time: f64, value: f64) {
        match self.steps.last_mut() {
            Some((start, least)) if time - *start < self.length / 10.0 => *least = least.min(value),
            _ => self.steps.push((time, value)),
        }
        let length = self.length;
        self.steps.retain(|(start, _)| time - start < length);
    }

    fn value(&self) -> Option<f64> {
        self.steps.iter().map(|(_, least)| *least).reduce(f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports queue on a shared air. That queue never runs empty, and is not taken for the path.
    #[test]
    fn a_queue_of_reports_makes_them_rare_however_long_it_stands() {
        let mut delays = Delays::default();
        for millis in 0..30_000 {
            let rtt = if millis < 100 { 0.002 } else { 0.5 };
            delays.on_sample(f64::from(millis) * 1e-3, rtt, 0.001);
            delays.relax_report_interval();
        }
        assert!(
            delays.report_interval() > 0.1,
            "{} s",
            delays.report_interval()
        );
    }
}
