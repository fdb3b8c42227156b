//! Measures the samples of a topic.

use nervure_protocol::daemon_to_daemon::Figures;

use crate::Sample;

/// The samples of a topic since the last figures.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    last_published: Option<u64>,
    figures: Figures,
}

impl Meter {
    /// Adds a sample, before which some were missed. `now` is the dataflow's clock.
    pub fn add(&mut self, sample: &Sample, missed: u64, now: i64) {
        let published = sample.header().publish_mono;
        let figures = &mut self.figures;
        // Only between consecutive samples: the times of missed ones are unknown.
        if let (Some(last), 0) = (self.last_published, missed) {
            figures.intervals.add(published.saturating_sub(last) as f64);
        }
        self.last_published = Some(published);
        figures.samples += 1;
        figures.missed += missed;
        figures.bytes.add(sample.bytes().len() as f64);
        figures.ages.add(sample.age(now).as_nanos() as f64);
        figures.latencies.add(sample.latency().as_nanos() as f64);
    }

    /// Takes the figures, and begins again.
    pub fn take(&mut self) -> Figures {
        std::mem::take(&mut self.figures)
    }
}
