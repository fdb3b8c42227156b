//! Round-trip time, one-way delay and its variation.

/// How long the smallest delay is believed, in seconds. Copa (NSDI 2018, section 2.2) and BBR use as much.
const BASE_WINDOW: f64 = 10.0;
/// The same beside a flow that fills the queue: it may not let it run empty for a while.
const COMPETING_BASE_WINDOW: f64 = 60.0;
/// The same where a queue of reports is judged, which nothing drains: were it taken for the path, more reports would be
/// asked for, and it would grow without end.
const REPORT_BASE_WINDOW: f64 = 60.0;

/// Reports may come so often, in seconds, and come at least so often.
const REPORT_INTERVALS: (f64, f64) = (0.001, 1.0);
const FIRST_REPORT_INTERVAL: f64 = 0.004;
/// A queue of reports that stands is one from here on, in seconds.
const REPORT_QUEUE: f64 = 0.010;
/// One that is so long is, whether it stands or not: no processor is stopped for so long.
const LONG_REPORT_QUEUE: f64 = 0.1;
/// Where they queue, reports become rarer by this factor, a round trip after the other, within these bounds relative to the
/// queue: it may be another flow's, and then rarer reports do not shorten it.
const REPORT_RARER: f64 = 1.5;
const RARER_BOUNDS: (f64, f64) = (0.5, 2.0);
/// Where they do not, they become more frequent, every second by so many a second and by so many times what they are. The
/// first makes those that share a way equal in time (Chiu and Jain, Computer Networks and ISDN Systems 17, 1989).
const MORE_REPORTS: f64 = 10.0;
const MORE_REPORTS_TIMES: f64 = 2.0;

/// Delays, in seconds. One-way delays are differences of unsynchronised clocks: only their variation means anything.
#[derive(Debug)]
pub struct Delays {
    known: bool,
    smoothed_rtt: f64,
    base_rtt: WindowedMin,
    /// The smallest round-trip time of a longer while.
    least_rtt: WindowedMin,
    base_one_way: WindowedMin,
    /// Smallest one-way delay of the running round.
    round_one_way: Option<f64>,
    last_one_way: f64,
    last_rtt: f64,
    noise: f64,
    /// In seconds.
    report_interval: f64,
    /// The shortest queue of reports since it was last judged, and when it is judged next.
    standing_report_queue: f64,
    judged_from: f64,
    /// When reports last became more frequent.
    relaxed: f64,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            known: false,
            smoothed_rtt: 0.0,
            base_rtt: WindowedMin::new(BASE_WINDOW),
            least_rtt: WindowedMin::new(REPORT_BASE_WINDOW),
            base_one_way: WindowedMin::new(BASE_WINDOW),
            round_one_way: None,
            last_one_way: 0.0,
            last_rtt: 0.0,
            noise: 0.0,
            report_interval: FIRST_REPORT_INTERVAL,
            standing_report_queue: f64::INFINITY,
            judged_from: 0.0,
            relaxed: 0.0,
        }
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
        self.least_rtt.insert(time, rtt);
        self.base_one_way.insert(time, one_way);
        self.judge_report_queue(time);
        self.round_one_way = Some(self.round_one_way.map_or(one_way, |least| least.min(one_way)));
    }

    /// On an air that many share, the reports to all of them may be more than the air takes: then they become rarer. One that
    /// comes late may come from a processor that was stopped, so the queue must have stood for a round trip and two reports.
    fn judge_report_queue(&mut self, time: f64) {
        let queue = self.report_queue();
        self.standing_report_queue = self.standing_report_queue.min(queue);
        if queue > LONG_REPORT_QUEUE {
            self.report_interval = self.report_interval.max(RARER_BOUNDS.0 * queue);
        }
        if time < self.judged_from {
            return;
        }
        let queue = std::mem::replace(&mut self.standing_report_queue, f64::INFINITY);
        if queue > REPORT_QUEUE {
            let (least, most) = (RARER_BOUNDS.0 * queue, RARER_BOUNDS.1 * queue);
            let rarer = (REPORT_RARER * self.report_interval()).clamp(least, most);
            self.report_interval = self.report_interval.max(rarer);
        }
        self.judged_from = time + self.last_rtt + 2.0 * self.report_interval();
    }

    /// Whether another flow fills the queue.
    pub fn set_competing(&mut self, competing: bool) {
        self.base_one_way.length = if competing { COMPETING_BASE_WINDOW } else { BASE_WINDOW };
    }

    /// The path has become longer: what was seen before the newest packet counts no more.
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
    pub fn relax_report_interval(&mut self, time: f64) {
        let since = std::mem::replace(&mut self.relaxed, time);
        if self.report_queue() < REPORT_QUEUE {
            let a_second = 1.0 / self.report_interval();
            let more = (MORE_REPORTS + MORE_REPORTS_TIMES * a_second) * (time - since).min(1.0);
            self.report_interval = 1.0 / (a_second + more);
        }
    }

    /// For how long the newest report waited on its way: what neither the path nor our own queue explains.
    fn report_queue(&self) -> f64 {
        self.last_rtt - self.least_rtt.value().unwrap_or(0.0) - self.queue()
    }

    /// How often the peer should report, in seconds.
    pub fn report_interval(&self) -> f64 {
        self.report_interval.clamp(REPORT_INTERVALS.0, REPORT_INTERVALS.1)
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
        Self { length, steps: Vec::new() }
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

    /// A processor that is stopped now and then makes no queue.
    #[test]
    fn a_report_that_is_late_once_makes_none_rarer() {
        let mut delays = Delays::default();
        for millis in 0..3000 {
            let rtt = if millis % 100 == 0 { 0.030 } else { 0.002 };
            delays.on_sample(f64::from(millis) * 1e-3, rtt, 0.001);
        }
        assert_eq!(delays.report_interval(), FIRST_REPORT_INTERVAL);
    }

    /// Two that share a way, and see the same queue, come to the same interval wherever they began.
    #[test]
    fn those_that_share_a_way_come_to_report_as_often() {
        let mut both = [Delays::default(), Delays::default()];
        both[0].report_interval = 0.3;
        let mut queue: f64 = 0.0;
        for step in 0..30_000 {
            let time = f64::from(step) * 1e-3;
            // Sixty a second are carried, whatever comes.
            let come: f64 = both.iter().map(|one| 1.0 / one.report_interval()).sum();
            queue = (queue + (come / 60.0 - 1.0) * 1e-3).max(0.0);
            for one in &mut both {
                one.on_sample(time, 0.002 + queue, 0.001);
                one.relax_report_interval(time);
            }
        }
        let [one, other] = both.map(|one| one.report_interval());
        assert!((0.8..1.25).contains(&(one / other)) && queue < 0.1, "{one} s, {other} s, queue {queue} s");
    }

    /// Reports queue where many share an air. That queue never runs empty, and is not taken for the path.
    #[test]
    fn a_queue_of_reports_makes_them_rare_however_long_it_stands() {
        let mut delays = Delays::default();
        for millis in 0..30_000 {
            let rtt = if millis < 100 { 0.002 } else { 0.5 };
            delays.on_sample(f64::from(millis) * 1e-3, rtt, 0.001);
            delays.relax_report_interval(f64::from(millis) * 1e-3);
        }
        assert!(delays.report_interval() > 0.1, "{} s", delays.report_interval());
    }
}
