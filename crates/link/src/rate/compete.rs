//! Beside a flow that fills the queue: that flow's own law.
//!
//! Copa (Arun and Balakrishnan, NSDI 2018, section 2.3) leaves its delay target when the queue never empties, and
//! becomes as aggressive as an AIMD flow; Copa+ (ToN 2023) found that AIMD on its delay parameter is not friendly to
//! Cubic. So this follows Cubic's window itself (RFC 9438), with one change: only loss above the channel's own counts.

/// RFC 9438, section 4.1: window growth, in packets per second cubed.
const C: f64 = 0.4;
/// RFC 9438, section 4.6: what is left of the window after a loss.
pub const BETA: f64 = 0.7;

/// A window after RFC 9438, in packets.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    /// The window of the last loss.
    max: f64,
    /// When growth began, in seconds.
    since: f64,
    /// The window when growth began.
    start: f64,
}

impl Cubic {
    /// Begins below a window that is thought fair, as after a loss there.
    pub fn new(time: f64, fair: f64) -> Self {
        Self { max: fair, since: time, start: fair * BETA }
    }

    /// The window now: equation 1, and in its slow beginning as fast as Reno (equation 4), with `rtt` in seconds.
    pub fn window(&self, time: f64, rtt: f64) -> f64 {
        let elapsed = time - self.since;
        let inflection = ((self.max - self.start).max(0.0) / C).cbrt();
        let cubic = C * (elapsed - inflection).powi(3) + self.max;
        let reno = self.start + 3.0 * (1.0 - BETA) / (1.0 + BETA) * elapsed / rtt.max(1e-3);
        cubic.max(reno)
    }

    /// The queue overflowed while this window was in use.
    pub fn on_overflow(&mut self, time: f64, window: f64) {
        // Section 4.7, fast convergence: a flow whose window shrinks makes room.
        self.max = if window < self.max { window * (1.0 + BETA) / 2.0 } else { window };
        self.start = window * BETA;
        self.since = time;
    }
}
