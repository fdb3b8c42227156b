//! Round-trip time, one-way delay and its variation.

/// How long the smallest delay is believed, in seconds. Copa (NSDI 2018, section 2.2) and BBR use as much.
const BASE_WINDOW: f64 = 10.0;
/// The same beside a flow that fills the queue: it may not let it run empty for a while.
const COMPETING_BASE_WINDOW: f64 = 60.0;

/// Reports may come so often, in seconds, and come at least so often.
const REPORT_INTERVALS: (f64, f64) = (0.001, 1.0);
/// A queue of reports is one from here on, in seconds.
const REPORT_QUEUE: f64 = 0.010;

/// Delays, in seconds. One-way delays are differences of unsynchronised clocks: only their variation means anything.
#[derive(Debug, Default)]
pub struct Delays {
    known: bool,
    smoothed_rtt: f64,
    base_rtt: WindowedMin,
    base_one_way: WindowedMin,
    /// Smallest one-way delay of the running round.
    round_one_way: Option<f64>,
    last_one_way: f64,
    last_rtt: f64,
    noise: f64,
    report_interval: ReportInterval,
}

/// In seconds.
#[derive(Debug)]
struct ReportInterval(f64);

impl Default for ReportInterval {
    fn default() -> Self {
        Self(0.004)
    }
}

impl Delays {
    pub fn on_sample(&mut self, time: f64, rtt: f64, one_way: f64) {
        // RFC 6298, section 2: the first sample counts in full, the others by an eighth.
        if self.known {
            self.smoothed_rtt += (rtt - self.smoothed_rtt) / 8.0;
            // RFC 3550, section 6.4.1: mean deviation between neighbours, by a sixteenth.
            self.noise += ((one_way - self.last_one_way).abs() - self.noise) / 16.0;
        } else {
            self.smoothed_rtt = rtt;
        }
        self.known = true;
        self.last_one_way = one_way;
        self.last_rtt = rtt;
        self.base_rtt.insert(time, rtt);
        self.base_one_way.insert(time, one_way);
        if self.report_queue() > REPORT_QUEUE {
            // On an air that many share, the reports to all of them may be more than the air takes.
            self.report_interval.0 = self.report_interval.0.max(self.report_queue() / 4.0);
        }
        self.round_one_way = Some(self.round_one_way.map_or(one_way, |least| least.min(one_way)));
    }

    /// Whether another flow fills the queue.
    pub fn set_competing(&mut self, competing: bool) {
        self.base_one_way.length = if competing { COMPETING_BASE_WINDOW } else { BASE_WINDOW };
    }

    /// The path has become longer: what was seen before the newest packet counts no more.
    pub fn forget_base(&mut self) {
        self.base_one_way.steps.clear();
        self.base_rtt.steps.clear();
    }

    pub fn known(&self) -> bool {
        self.known
    }

    pub fn rtt(&self) -> f64 {
        self.smoothed_rtt
    }

    pub fn base_rtt(&self) -> f64 {
        self.base_rtt.value().unwrap_or(0.0)
    }

    /// The one-way delay above its smallest value, of the newest packet.
    pub fn queue(&self) -> f64 {
        self.base_one_way.value().map_or(0.0, |base| self.last_one_way - base)
    }

    /// The queue that stood for the whole round: smaller delays are not due to jitter. (Copa's standing RTT.)
    pub fn take_round_queue(&mut self) -> f64 {
        let least = self.round_one_way.take().unwrap_or(self.last_one_way);
        self.base_one_way.value().map_or(0.0, |base| least - base)
    }

    /// Makes reports more frequent again when they do not queue. Call it once a round.
    pub fn relax_report_interval(&mut self) {
        if self.report_queue() < REPORT_QUEUE {
            self.report_interval.0 *= 0.9;
        }
    }

    /// For how long the newest report waited on its way: what neither the path nor our own queue explains.
    fn report_queue(&self) -> f64 {
        self.last_rtt - self.base_rtt() - self.queue()
    }

    /// How often the peer should report, in seconds.
    pub fn report_interval(&self) -> f64 {
        self.report_interval.0.clamp(REPORT_INTERVALS.0, REPORT_INTERVALS.1)
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

impl Default for WindowedMin {
    fn default() -> Self {
        Self { length: BASE_WINDOW, steps: Vec::new() }
    }
}

impl WindowedMin {
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
