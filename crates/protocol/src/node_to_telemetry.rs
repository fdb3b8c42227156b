//! Reports of nodes on traced samples, to `nervure telemetry` on their machine. Nothing answers:
//! each packet is one [`Span`].

use serde::{Deserialize, Serialize};

use crate::domain::Domain;

/// The longest name of a node, topic or machine that is taken over.
pub const MAX_NAME_BYTES: usize = 512;

/// The name of the socket of `nervure telemetry` in the abstract namespace, in a domain.
#[must_use]
pub fn socket_name(domain: &Domain, uid: u32) -> String {
    let at = if domain.name().is_some() { "@" } else { "" };
    // Three parts: no keeper has such a name.
    format!("nervure{at}{domain}/{uid}/telemetry")
}

/// A part of the way of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The trace, 32 hexadecimal digits as in W3C Trace Context.
    pub trace: String,
    /// This span, 16 hexadecimal digits.
    pub span: String,
    /// The span that caused this one; empty for the first one of a trace.
    #[serde(default)]
    pub parent: String,
    /// The step that the span covers.
    pub step: Step,
    /// The dataflow.
    pub dataflow: String,
    /// The node, or on another machine its stand-in.
    pub node: String,
    /// The machine of the node; empty without a fleet.
    #[serde(default)]
    pub machine: String,
    /// The topic, `node/output`.
    pub topic: String,
    /// Begin, in nanoseconds since the Unix epoch.
    pub start_utc_nanos: u64,
    /// End, in nanoseconds since the Unix epoch.
    pub end_utc_nanos: u64,
    /// Spans of this process that were dropped since its last one: the socket was full.
    #[serde(default)]
    pub dropped_before: u64,
}

/// A step on the way of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Step {
    /// Its node sent it. The span includes the wait for room in the queues of consumers.
    Sent {
        /// Consumers that got it.
        queued: u32,
        /// Consumers that missed it.
        missed: u32,
    },
    /// It crossed the link between machines: the span begins with its publication there and ends
    /// with its publication here.
    Crossed {
        /// The machine that it came from.
        from: String,
        /// Largest error of the begin, since it compares the clocks of two machines. `None` if they
        /// have not been compared: the begin is then the publication here.
        #[serde(default)]
        error_nanos: Option<u64>,
        /// Consumers that got it.
        queued: u32,
        /// Consumers that missed it.
        missed: u32,
    },
    /// A node handled it: from taking it out of the queue until the node asked for the next event.
    Handled {
        /// The input.
        input: String,
        /// The sequence number of the sample.
        sequence: u64,
        /// The number of restarts of its producer.
        incarnation: u32,
        /// From publication until it was taken.
        latency_nanos: u64,
    },
    /// A step of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Span {
    /// Whether the ids and the names have their form: any process of the user can send a span.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let is_id = |text: &str, digits| {
            text.len() == digits
                && text.bytes().all(|byte| byte.is_ascii_hexdigit())
                && text.bytes().any(|byte| byte != b'0')
        };
        let other_name = match &self.step {
            Step::Crossed { from, .. } => from,
            Step::Handled { input, .. } => input,
            Step::Sent { .. } | Step::Unknown => "",
        };
        let names = [&self.dataflow, &self.node, &self.machine, &self.topic];
        is_id(&self.trace, 32)
            && is_id(&self.span, 16)
            && (self.parent.is_empty() || is_id(&self.parent, 16))
            && names.iter().all(|name| name.len() <= MAX_NAME_BYTES)
            && other_name.len() <= MAX_NAME_BYTES
            && self.step != Step::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_with_another_form_is_not_valid() {
        let span = Span {
            trace: "0af7651916cd43dd8448eb211c80319c".to_owned(),
            span: "b7ad6b7169203331".to_owned(),
            step: Step::Sent {
                queued: 1,
                missed: 0,
            },
            ..Span::default()
        };
        assert!(span.is_valid());
        let with = |change: fn(&mut Span)| {
            let mut changed = span.clone();
            change(&mut changed);
            changed.is_valid()
        };
        assert!(!with(|span| span.trace = "0".repeat(32)));
        assert!(!with(|span| span.trace.push('0')));
        assert!(!with(|span| span.span = "b7ad6b716920333x".to_owned()));
        assert!(!with(|span| span.parent = "1".to_owned()));
        assert!(!with(|span| span.topic = "x".repeat(MAX_NAME_BYTES + 1)));
        assert!(!with(|span| span.step = Step::Unknown));
        let json = crate::encode(&span).unwrap();
        assert_eq!(crate::decode::<Span>(&json).unwrap(), span);
    }

    #[test]
    fn no_keeper_has_the_name_of_the_socket() {
        for domain in ["", "red"] {
            let name = socket_name(&domain.parse().unwrap(), 1000);
            assert_eq!(crate::address::KeeperAddress::parse(&name), None, "{name}");
        }
    }
}
