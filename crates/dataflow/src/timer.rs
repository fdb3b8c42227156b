//! Timers: `nervure/timer/hz/30`, `nervure/timer/millis/20`, `nervure/timer/secs/1`;
//! `dora/timer/..` is the same.

/// Shortest period: a wake-up costs about 20 microseconds, and the node needs time for its work.
const MIN_PERIOD_NANOS: f64 = 100_000.0;
const MAX_PERIOD_NANOS: f64 = 24.0 * 3600.0 * 1e9;

struct Unit {
    name: &'static str,
    /// The period in nanoseconds for a number of this unit.
    nanos: fn(f64) -> f64,
    example: &'static str,
}

const UNITS: &[Unit] = &[
    Unit {
        name: "hz",
        nanos: |rate| 1e9 / rate,
        example: "hz/30",
    },
    Unit {
        name: "secs",
        nanos: |seconds| seconds * 1e9,
        example: "secs/1",
    },
    Unit {
        name: "millis",
        nanos: |milliseconds| milliseconds * 1e6,
        example: "millis/20",
    },
    Unit {
        name: "micros",
        nanos: |microseconds| microseconds * 1e3,
        example: "micros/500",
    },
    Unit {
        name: "nanos",
        nanos: |nanoseconds| nanoseconds,
        example: "nanos/500000",
    },
];

/// Why a text is not a timer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TimerError {
    pub message: String,
    /// A valid timer close to the text, without `nervure/timer/`.
    pub suggestion: Option<String>,
}

/// The period in nanoseconds of the timer `text`, the part after `timer/`.
pub(crate) fn parse_timer(text: &str) -> Result<u64, TimerError> {
    let error = |message: String, suggestion: Option<String>| TimerError {
        message,
        suggestion,
    };
    let Some((unit, number)) = text.split_once('/') else {
        let example = UNITS
            .iter()
            .find(|known| known.name == text)
            .map(|unit| unit.example.to_owned());
        let suggestion = example
            .or_else(|| reordered(text))
            .unwrap_or_else(|| "hz/30".to_owned());
        return Err(error(
            "a timer needs a unit and a number".to_owned(),
            Some(suggestion),
        ));
    };
    let names = UNITS.iter().map(|unit| unit.name);
    let Some(known) = UNITS.iter().find(|known| known.name == unit) else {
        let near = other_spelling(unit).or_else(|| nervure_protocol::nearest(unit, names.clone()));
        let message = format!(
            "{} is not a unit of timers; they are {}",
            crate::quote::quoted(unit),
            names.collect::<Vec<_>>().join(", ")
        );
        return Err(error(message, near.map(|near| format!("{near}/{number}"))));
    };
    // Rust's parser also accepts "inf", "nan" and exponents.
    let is_plain = number
        .chars()
        .all(|character| character.is_ascii_digit() || character == '.');
    let Some(number) = is_plain.then(|| number.parse::<f64>().ok()).flatten() else {
        let message = format!("{} is not a number", crate::quote::quoted(number));
        return Err(error(message, Some(known.example.to_owned())));
    };
    if number <= 0.0 {
        return Err(error(
            "a timer cannot have a rate or a period of 0".to_owned(),
            None,
        ));
    }
    let nanos = (known.nanos)(number);
    if nanos < MIN_PERIOD_NANOS {
        return Err(error(
            "the timer is too fast: at most 10000 ticks a second".to_owned(),
            None,
        ));
    }
    if nanos > MAX_PERIOD_NANOS {
        return Err(error(
            "the timer is too slow: at least one tick a day".to_owned(),
            None,
        ));
    }
    Ok(nanos.round() as u64)
}

/// `hz/30` for `30hz`.
fn reordered(text: &str) -> Option<String> {
    let (number, unit) =
        text.split_at(text.find(|character: char| character.is_ascii_alphabetic())?);
    let unit = other_spelling(unit).or_else(|| {
        UNITS
            .iter()
            .map(|known| known.name)
            .find(|name| *name == unit)
    })?;
    let timer = format!("{unit}/{number}");
    parse_timer(&timer).is_ok().then_some(timer)
}

fn other_spelling(unit: &str) -> Option<&'static str> {
    match unit.to_ascii_lowercase().as_str() {
        "s" | "sec" | "second" | "seconds" => Some("secs"),
        "ms" | "milli" | "millisecond" | "milliseconds" => Some("millis"),
        "us" | "micro" | "microsecond" | "microseconds" => Some("micros"),
        "ns" | "nano" | "nanosecond" | "nanoseconds" => Some("nanos"),
        "hertz" | "fps" | "rate" => Some("hz"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_have_periods() {
        assert_eq!(parse_timer("hz/30"), Ok(33_333_333));
        assert_eq!(parse_timer("hz/0.5"), Ok(2_000_000_000));
        assert_eq!(parse_timer("millis/20"), Ok(20_000_000));
        assert_eq!(parse_timer("secs/1"), Ok(1_000_000_000));
        assert_eq!(parse_timer("micros/500"), Ok(500_000));
    }

    #[test]
    fn refuses_other_texts_with_a_suggestion() {
        for text in [
            "",
            "hz",
            "hz/",
            "hz/0",
            "hz/-1",
            "hz/inf",
            "hz/nan",
            "hz/1e3",
            "hz/1/2",
            "secs/0.0",
            "fps/30",
            "hz/10001",
            "secs/86401",
            "nanos/1",
        ] {
            assert!(parse_timer(text).is_err(), "{text}");
        }
        assert_eq!(
            parse_timer("ms/20").unwrap_err().suggestion.as_deref(),
            Some("millis/20")
        );
        assert_eq!(
            parse_timer("20ms").unwrap_err().suggestion.as_deref(),
            Some("millis/20")
        );
    }
}
