//! Quantities as people write them: `54mbit`, `20%`, `100ms`, `64kib`.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::{Aggregation, Aqm, Bursts, LossPlace, Outage, Policer, Queue};

const TIMES: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 60e9),
    ("h", 3600e9),
];
const RATES: &[(&str, f64)] = &[("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
const SIZES: &[(&str, f64)] = &[
    ("b", 1.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("kib", 1024.0),
    ("mib", 1024.0 * 1024.0),
];

/// A value that is written as text. `EXPECTED` ends the sentence "expected ..".
pub(crate) trait Quantity: Sized {
    const EXPECTED: &'static str;

    fn read(text: &str) -> Option<Self>;
}

/// A quantity for the command line and for files; its errors name the expected form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Written<Q>(pub(crate) Q);

impl<Q: Quantity> FromStr for Written<Q> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        Q::read(text)
            .map(Self)
            .ok_or_else(|| format!("expected {}, got `{text}`", Q::EXPECTED))
    }
}

impl<'de, Q: Quantity> Deserialize<'de> for Written<Q> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<Q>(PhantomData<Q>);
        impl<Q: Quantity> Visitor<'_> for Text<Q> {
            type Value = Written<Q>;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str(Q::EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text(PhantomData))
    }
}

/// Bits a second, or unlimited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate(pub(crate) Option<u64>);

impl Quantity for Rate {
    const EXPECTED: &'static str = "a rate such as \"54mbit\" or \"1gbit\", or \"unlimited\"";

    fn read(text: &str) -> Option<Self> {
        if text == "unlimited" {
            return Some(Self(None));
        }
        let bits = amount(text.strip_suffix("/s").unwrap_or(text), RATES)?;
        (1.0..=1e15)
            .contains(&bits)
            .then_some(Self(Some(bits.round() as u64)))
    }
}

impl Quantity for Duration {
    const EXPECTED: &'static str = "a time such as \"100ms\" or \"2.5s\"";

    fn read(text: &str) -> Option<Self> {
        let nanos = if text == "0" {
            0.0
        } else {
            amount(text, TIMES)?
        };
        (nanos <= 1e18).then_some(Self::from_nanos(nanos.round() as u64))
    }
}

/// A probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(pub(crate) f64);

impl Quantity for Share {
    const EXPECTED: &'static str = "a share such as \"20%\" or \"0.2\", from 0 to 1";

    fn read(text: &str) -> Option<Self> {
        let value = match text.strip_suffix('%') {
            Some(percent) => number(percent)? / 100.0,
            None => number(text)?,
        };
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }
}

impl Quantity for Queue {
    const EXPECTED: &'static str = "a queue as a time (\"100ms\") or a size (\"64kib\", \"100kb\")";

    fn read(text: &str) -> Option<Self> {
        let size = || {
            amount(text, SIZES)
                .filter(|&bytes| bytes <= 1e15)
                .map(|bytes| Self::Bytes(bytes as u64))
        };
        Duration::read(text).map(Self::Time).or_else(size)
    }
}

impl Quantity for LossPlace {
    const EXPECTED: &'static str =
        "\"air\" (a lost packet has cost its airtime) or \"ingress\" (it is lost before the queue)";

    fn read(text: &str) -> Option<Self> {
        match text {
            "air" => Some(Self::AfterSerialiser),
            "ingress" => Some(Self::BeforeSerialiser),
            _ => None,
        }
    }
}

/// Bursts, or none of them.
impl Quantity for Option<Bursts> {
    const EXPECTED: &'static str = "mean good time, mean bad time and perhaps the loss in it, such as \
         \"270ms:30ms\" or \"1s:50ms:80%\", or \"none\"";

    fn read(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(None);
        }
        let mut parts = text.split(':');
        let good_mean = Duration::read(parts.next()?)?;
        let bad_mean = Duration::read(parts.next()?)?;
        let loss = parts
            .next()
            .map_or(Some(1.0), |text| Share::read(text).map(|share| share.0))?;
        // Times shorter than a packet at a gigabit mean nothing, and take long to step through.
        let shortest = good_mean.min(bad_mean);
        (parts.next().is_none() && shortest >= Duration::from_micros(10)).then_some(Some(Bursts {
            good_mean,
            bad_mean,
            loss,
        }))
    }
}

/// Reordering: the share of packets, and how long they are held back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reorder {
    pub(crate) share: f64,
    pub(crate) delay: Duration,
}

impl Quantity for Reorder {
    const EXPECTED: &'static str = "a share and how long those are held back, such as \"1%:5ms\"";

    fn read(text: &str) -> Option<Self> {
        let (share, delay) = text.split_once(':')?;
        Some(Self {
            share: Share::read(share)?.0,
            delay: Duration::read(delay)?,
        })
    }
}

impl Quantity for Option<Outage> {
    const EXPECTED: &'static str = "\"lose\" (packets are sent and none arrives), \"hold\" (they wait in the queue) or \"none\"";

    fn read(text: &str) -> Option<Self> {
        match text {
            "lose" => Some(Some(Outage::Lose)),
            "hold" => Some(Some(Outage::Hold)),
            "none" => Some(None),
            _ => None,
        }
    }
}

/// Active queue management, or none.
impl Quantity for Option<Aqm> {
    const EXPECTED: &'static str = "\"codel\" or \"fq-codel\", perhaps with target and interval and \
         with \"ecn\" for marks in place of drops, such as \"fq-codel:5ms:100ms:ecn\", or \"none\"";

    fn read(text: &str) -> Option<Self> {
        let (text, ecn) = match text.strip_suffix(":ecn") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let mut parts = text.split(':');
        let fair = match parts.next()? {
            "none" => return (text == "none" && !ecn).then_some(None),
            "codel" => false,
            "fq-codel" => true,
            _ => return None,
        };
        let mut aqm = Aqm {
            fair,
            ecn,
            ..Aqm::default()
        };
        if let Some(target) = parts.next() {
            aqm.target = Duration::read(target)?;
            aqm.interval = Duration::read(parts.next()?)?;
        }
        (parts.next().is_none() && !aqm.interval.is_zero()).then_some(Some(aqm))
    }
}

/// A policer, or none.
impl Quantity for Option<Policer> {
    const EXPECTED: &'static str =
        "a rate and the size of the bucket, such as \"20mbit:100kb\", or \"none\"";

    fn read(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(None);
        }
        let (rate, burst) = text.split_once(':')?;
        Some(Some(Policer {
            rate_bits_per_second: Rate::read(rate)?.0?,
            burst_bytes: amount(burst, SIZES).filter(|&bytes| bytes <= 1e15)? as u64,
        }))
    }
}

/// Aggregation, or none.
impl Quantity for Option<Aggregation> {
    const EXPECTED: &'static str = "the longest transmission, the most packets in it and the time of access \
         to the air, such as \"4ms:64:150us\", or \"none\"";

    fn read(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(None);
        }
        let mut parts = text.split(':');
        let longest = Duration::read(parts.next()?)?;
        let packets = parts.next()?.parse().ok().filter(|&packets| packets > 0)?;
        let access = Duration::read(parts.next()?)?;
        parts.next().is_none().then_some(Some(Aggregation {
            access,
            longest,
            packets,
        }))
    }
}

/// An interruption on the command line: its start and length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interruption {
    pub(crate) at: Duration,
    pub(crate) lasting: Duration,
}

impl Quantity for Interruption {
    const EXPECTED: &'static str = "when and for how long, such as \"10s:2s\"";

    fn read(text: &str) -> Option<Self> {
        let (at, lasting) = text.split_once(':')?;
        Some(Self {
            at: Duration::read(at)?,
            lasting: Duration::read(lasting)?,
        })
    }
}

/// A number with one of the units, in the unit of factor 1.
fn amount(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let digits = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let unit = text[digits..].trim_start().to_lowercase();
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    Some(number(&text[..digits])? * factor)
}

/// Digits with at most one point: no sign, no exponent, no infinity.
fn number(text: &str) -> Option<f64> {
    let plain = text
        .chars()
        .all(|letter| letter.is_ascii_digit() || letter == '.');
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        assert_eq!(Rate::read("54mbit"), Some(Rate(Some(54_000_000))));
        assert_eq!(Rate::read("1.5 Gbit/s"), Some(Rate(Some(1_500_000_000))));
        assert_eq!(Rate::read("unlimited"), Some(Rate(None)));
        assert_eq!(Share::read("20%"), Some(Share(0.2)));
        assert_eq!(Share::read("0.2"), Some(Share(0.2)));
        assert_eq!(
            Queue::read("100ms"),
            Some(Queue::Time(Duration::from_millis(100)))
        );
        assert_eq!(Queue::read("64kib"), Some(Queue::Bytes(65_536)));
        let bursts = Bursts {
            good_mean: Duration::from_secs(1),
            bad_mean: Duration::from_millis(50),
            loss: 0.8,
        };
        assert_eq!(Option::<Bursts>::read("1s:50ms:80%"), Some(Some(bursts)));
        let reorder = Reorder {
            share: 0.01,
            delay: Duration::from_millis(5),
        };
        assert_eq!(Reorder::read("1%:5ms"), Some(reorder));
        assert_eq!(Option::<Aqm>::read("codel"), Some(Some(Aqm::default())));
        let aqm = Aqm {
            target: Duration::from_millis(2),
            interval: Duration::from_millis(30),
            fair: true,
            ecn: true,
        };
        assert_eq!(
            Option::<Aqm>::read("fq-codel:2ms:30ms:ecn"),
            Some(Some(aqm))
        );
        let policer = Policer {
            rate_bits_per_second: 20_000_000,
            burst_bytes: 100_000,
        };
        assert_eq!(Option::<Policer>::read("20mbit:100kb"), Some(Some(policer)));
        let aggregation = Aggregation {
            access: Duration::from_micros(150),
            longest: Duration::from_millis(4),
            packets: 64,
        };
        assert_eq!(
            Option::<Aggregation>::read("4ms:64:150us"),
            Some(Some(aggregation))
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "", "54", "mbit", "-1mbit", "0mbit", "1e3mbit", "inf", "54mbits",
        ] {
            assert_eq!(Rate::read(text), None, "{text}");
        }
        for text in ["101%", "1.1", "-1%", "nan", "inf", "%"] {
            assert_eq!(Share::read(text), None, "{text}");
        }
        for text in ["5", "ms", "99999999999h", "-1s"] {
            assert_eq!(Duration::read(text), None, "{text}");
        }
        for text in ["1s", "1s:0s", "1s:1ns", "1s:1s:50%:1"] {
            assert_eq!(Option::<Bursts>::read(text), None, "{text}");
        }
        for text in [
            "red",
            "codel:5ms",
            "codel:5ms:0",
            "none:ecn",
            "codel:5ms:1s:x",
        ] {
            assert_eq!(Option::<Aqm>::read(text), None, "{text}");
        }
        for text in ["20mbit", "unlimited:1kb", "1mbit:1", "0mbit:1kb"] {
            assert_eq!(Option::<Policer>::read(text), None, "{text}");
        }
        for text in ["4ms", "4ms:0:1us", "4ms:64", "4ms:64:1us:1"] {
            assert_eq!(Option::<Aggregation>::read(text), None, "{text}");
        }
        let error = "54".parse::<Written<Rate>>().unwrap_err();
        assert_eq!(
            error,
            "expected a rate such as \"54mbit\" or \"1gbit\", or \"unlimited\", got `54`"
        );
    }
}
