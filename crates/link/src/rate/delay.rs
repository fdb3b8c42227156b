//! Round-trip time, one-way delay and its variation.

/// How long the smallest delay is believed, in seconds. Copa (NSDI 2018, section 2.2) and BBR use as much.
const BASE_WINDOW: f64 = 10.0;

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
    noise: f64,
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
        self.base_rtt.insert(time, rtt);
        self.base_one_way.insert(time, one_way);
        self.round_one_way = Some(self.round_one_way.map_or(one_way, |least| least.min(one_way)));
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

    /// Mean deviation of neighbouring one-way delays.
    pub fn noise(&self) -> f64 {
        self.noise
    }
}

/// The smallest value of a sliding window, in ten steps, so that memory is bounded.
#[derive(Debug, Default)]
struct WindowedMin {
    /// (start of the step, smallest value in it)
    steps: Vec<(f64, f64)>,
}

impl WindowedMin {
    fn insert(&mut self, time: f64, value: f64) {
        match self.steps.last_mut() {
            Some((start, least)) if time - *start < BASE_WINDOW / 10.0 => *least = least.min(value),
            _ => self.steps.push((time, value)),
        }
        self.steps.retain(|(start, _)| time - start < BASE_WINDOW);
    }

    fn value(&self) -> Option<f64> {
        self.steps.iter().map(|(_, least)| *least).reduce(f64::min)
    }
}
