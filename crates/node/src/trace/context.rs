//! W3C Trace Context (<https://www.w3.org/TR/trace-context/>): `00-TRACE-SPAN-FLAGS`.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use nervure_message::Value;

use crate::sample::Sample;

/// The key of the metadata.
pub const TRACEPARENT: &str = "traceparent";

/// Never 0.
pub type SpanId = u64;

/// A trace, and a span of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Never 0.
    pub trace: u128,
    pub span: Option<SpanId>,
}

impl Context {
    /// A new span of a trace.
    pub fn new(trace: u128) -> Self {
        Self {
            trace,
            span: Some(random()),
        }
    }

    /// The trace of a sample, with the span of its publication if it has one.
    pub fn of_sample(sample: &Sample) -> Option<Self> {
        let trace = sample.header().trace_id;
        let metadata = (trace != 0).then(|| sample.metadata().ok())?;
        let value = metadata.as_ref().and_then(|all| all.get(TRACEPARENT));
        let named = match value {
            Some(Value::Text(text)) => Self::parse(text),
            _ => None,
        };
        let span = named.filter(|named| named.trace == trace)?.span;
        Some(Self { trace, span }).filter(|_| trace != 0)
    }

    /// `None` if the text has another form. Versions after 00 have the same fields at their begin.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
        parts.next().filter(|flags| flags.len() == 2)?;
        if version.len() != 2 || version == "ff" || trace.len() != 32 || span.len() != 16 {
            return None;
        }
        // The parsers of numbers take a sign.
        let is_hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if ![version, trace, span].into_iter().all(is_hexadecimal) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok()?;
        let span = u64::from_str_radix(span, 16).ok()?;
        (trace != 0 && span != 0).then_some(Self {
            trace,
            span: Some(span),
        })
    }
}

impl fmt::Display for Context {
    /// With the flag for a trace that is recorded.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "00-{:032x}-{:016x}-01",
            self.trace,
            self.span.unwrap_or_default()
        )
    }
}

/// The id of a new trace.
pub fn new_trace() -> u128 {
    u128::from(random()) << 64 | u128::from(random())
}

/// Not 0, and unpredictable enough not to meet another: the keys of the hash are random.
fn random() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    RandomState::new()
        .hash_one((std::process::id(), count))
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_read_as_it_is_written() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = Context::parse(text).unwrap();
        assert_eq!(context.to_string(), text);
        assert_eq!(context.span, Some(0xb7ad_6b71_6920_3331));
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
        assert_eq!(Context::parse(later), Some(context));
        for wrong in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ] {
            assert_eq!(Context::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ids_differ() {
        let ids: std::collections::BTreeSet<u64> = (0..1000).map(|_| random()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
