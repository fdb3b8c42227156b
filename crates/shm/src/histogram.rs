//! Histograms of durations, which are cheap to count in shared memory.

/// Number of buckets: 8 per octave, from 1.024 us to beyond two minutes.
pub(crate) const BUCKETS: usize = 224;
const _: () = assert!(BUCKETS <= 1 << u8::BITS && BUCKETS.is_multiple_of(8));

/// A histogram of durations. Buckets are an eighth of an octave wide, so that a quantile is at most
/// 12.5 % too high.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The buckets that are not empty, by their index, with their counts. The durations of an edge are
    /// in few of them, and tools keep several histograms of each edge.
    buckets: Vec<(u8, u64)>,
    max_nanos: u64,
}

impl Histogram {
    /// A histogram with the counts of all buckets.
    pub(crate) fn of(counts: impl IntoIterator<Item = u64>, max_nanos: u64) -> Self {
        let counts = (0..=u8::MAX).zip(counts);
        Self {
            buckets: counts.filter(|(_, count)| *count > 0).collect(),
            max_nanos,
        }
    }

    /// Number of durations counted.
    pub fn count(&self) -> u64 {
        saturating_sum(self.buckets.iter().map(|(_, count)| *count))
    }

    /// The longest duration counted, in nanoseconds.
    pub fn max_nanos(&self) -> u64 {
        self.max_nanos
    }

    /// The durations counted since `earlier`, a copy of the same histogram. The maximum remains
    /// that of all time.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let since = |(bucket, now): &(u8, u64)| (*bucket, now.saturating_sub(earlier.at(*bucket)));
        let buckets = self.buckets.iter().map(since);
        Self {
            buckets: buckets.filter(|(_, count)| *count > 0).collect(),
            max_nanos: self.max_nanos,
        }
    }

    fn place(&self, bucket: u8) -> Result<usize, usize> {
        self.buckets
            .binary_search_by_key(&bucket, |(bucket, _)| *bucket)
    }

    fn at(&self, bucket: u8) -> u64 {
        self.place(bucket).map_or(0, |place| self.buckets[place].1)
    }

    fn add(&mut self, bucket: u8, count: u64) {
        match self.place(bucket) {
            Ok(place) => self.buckets[place].1 = self.buckets[place].1.saturating_add(count),
            Err(place) => self.buckets.insert(place, (bucket, count)),
        }
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.buckets {
            self.add(*bucket, *count);
        }
        self.max_nanos = self.max_nanos.max(other.max_nanos);
    }

    /// The duration in nanoseconds below which the share `quantile` (0 to 1) of all durations lies;
    /// `None` if nothing was counted.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * quantile).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        self.buckets.iter().find_map(|(bucket, count)| {
            seen = u64::saturating_add(seen, *count);
            (seen >= rank).then(|| bucket_end(usize::from(*bucket)).min(self.max_nanos))
        })
    }

    /// The octaves from the one that ends at 8.192 us: the end of each in nanoseconds, and the number
    /// of durations in it. The last one has no end: it counts longer durations too.
    pub fn octaves(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut octaves = [0; BUCKETS / 8];
        for (bucket, count) in &self.buckets {
            let octave = &mut octaves[usize::from(*bucket) / 8];
            *octave = u64::saturating_add(*octave, *count);
        }
        let ends = (0..).map(|octave| bucket_end(8 * octave + 7));
        ends.zip(octaves)
    }

    /// The sum of all durations in nanoseconds, with the middle of a bucket for each duration in it:
    /// at most 0.6 us or a sixteenth away from each duration.
    pub fn sum_nanos(&self) -> u64 {
        let of_bucket = self.buckets.iter().map(|(bucket, count)| {
            let bucket = usize::from(*bucket);
            let begin = bucket.checked_sub(1).map_or(0, bucket_end);
            let middle = (begin + bucket_end(bucket)) / 2;
            middle.min(self.max_nanos).saturating_mul(*count)
        });
        saturating_sum(of_bucket)
    }

    /// Counts one duration, in nanoseconds.
    pub fn record(&mut self, nanos: u64) {
        self.add(bucket_of(nanos) as u8, 1);
        self.max_nanos = self.max_nanos.max(nanos);
    }
}

/// A sum that cannot overflow: a node may have overwritten its counters.
pub(crate) fn saturating_sum(counters: impl IntoIterator<Item = u64>) -> u64 {
    counters.into_iter().fold(0, u64::saturating_add)
}

/// Bucket of a duration. The unit is 1024 ns: 8 buckets of one unit each, then 8 per octave.
pub(crate) fn bucket_of(nanos: u64) -> usize {
    let units = nanos >> 10;
    if units < 8 {
        return units as usize;
    }
    let octave = units.ilog2() as usize;
    let eighth = (units >> (octave - 3)) as usize & 7;
    ((octave - 2) * 8 + eighth).min(BUCKETS - 1)
}

/// End of a bucket in nanoseconds.
fn bucket_end(bucket: usize) -> u64 {
    if bucket < 8 {
        return (bucket as u64 + 1) << 10;
    }
    let (octave, eighth) = (bucket / 8 + 2, bucket as u64 % 8);
    (8 + eighth + 1) << (octave - 3) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_duration_and_overstate_by_at_most_an_eighth() {
        let mut last = 0;
        for nanos in (0..2000).chain((1..60).map(|shift| (1u64 << shift) + 12_345)) {
            let bucket = bucket_of(nanos);
            assert!(bucket < BUCKETS);
            assert!(bucket_of(nanos + 1) >= bucket);
            if bucket < BUCKETS - 1 {
                assert!(bucket_end(bucket) > nanos, "{nanos}");
                assert!(bucket_end(bucket) <= nanos + nanos / 8 + 1025, "{nanos}");
            }
            last = last.max(bucket);
        }
        assert_eq!(last, BUCKETS - 1);
    }

    #[test]
    fn the_durations_since_an_earlier_copy_are_those_recorded_after_it() {
        let mut all = Histogram::default();
        let mut later = Histogram::default();
        for nanos in [9_000, 5, 1 << 40, 9_000] {
            all.record(nanos);
        }
        let earlier = all.clone();
        for nanos in [70_000, 5, 9_000] {
            all.record(nanos);
            later.record(nanos);
        }
        later.max_nanos = all.max_nanos;
        assert_eq!(all.since(&earlier), later);
        later.merge(&earlier);
        assert_eq!(all, later);
        assert_eq!(all.since(&all).count(), 0);
    }

    #[test]
    fn octaves_count_every_duration_and_the_sum_is_near() {
        let mut histogram = Histogram::default();
        let durations = [
            0,
            1,
            5_000,
            8_191,
            8_192,
            20_000,
            33_000_000,
            4_000_000_000,
            1 << 50,
        ];
        for nanos in durations {
            histogram.record(nanos);
        }
        let octaves: Vec<_> = histogram.octaves().collect();
        assert_eq!((octaves[0], octaves[1]), ((8_192, 4), (16_384, 1)));
        assert!(octaves.windows(2).all(|pair| pair[1].0 == 2 * pair[0].0));
        assert_eq!(octaves.iter().map(|(_, count)| count).sum::<u64>(), 9);

        let mut histogram = Histogram::default();
        for nanos in &durations[..8] {
            histogram.record(*nanos);
        }
        let sum: u64 = durations[..8].iter().sum();
        assert!(histogram.sum_nanos().abs_diff(sum) <= sum / 16 + 8 * 600);
    }
}
