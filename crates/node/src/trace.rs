//! Traces: the path of samples across nodes and machines.
//!
//! A sample of a trace has the trace's id in its header, and in its metadata `traceparent` of W3C Trace
//! Context with the span of its publication. Samples sent while a node handles such a sample continue
//! the trace. So does a sample whose metadata has a `traceparent`, for example of the program's own
//! spans. Sources begin traces if `NERVURE_TRACES_PER_SECOND` is set.
//!
//! Without traces, a node checks two words of its own memory per sample. Spans go to `nervure telemetry`
//! on this machine if it runs, in one packet each; a full socket drops them.

pub(crate) mod context;
mod report;
pub(crate) mod way;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nervure_message::{Head, Metadata, Value};
use nervure_protocol::TRACES_VARIABLE;
use nervure_protocol::keeper_to_node::Welcome;
use nervure_protocol::node_to_telemetry::{Span, Step};
use nervure_protocol::wiring::{self, InputSpec, Source};
use nervure_shm::{Receipt, monotonic_nanos};

use self::context::{Context, SpanId, TRACEPARENT};
pub(crate) use self::report::set_machine;
use self::way::Crossed;
use crate::sample::Sample;

/// The traces that pass a node.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    /// Whether the node begins traces, or has received a sample of one. Stays set.
    is_active: AtomicBool,
    dataflow: String,
    node: String,
    inputs: Vec<InputSpec>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The sample that the node handles, if it belongs to a trace.
    handled: Option<Handled>,
    /// Between two traces of an output, for a source that begins some.
    period_nanos: Option<u64>,
    /// When an output may begin the next trace, in nanoseconds of CLOCK_MONOTONIC.
    due: BTreeMap<String, u64>,
    /// Observers are not part of a trace.
    is_observer: bool,
}

#[derive(Clone, Debug)]
struct Handled {
    context: Context,
    parent: Option<SpanId>,
    topic: String,
    step: Step,
    begin: u64,
}

/// The parts of a new sample that decide which trace it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared<'a> {
    pub metadata: &'a Metadata,
    /// The sample that the value was computed from.
    pub like: Option<&'a Sample>,
    /// The trace that the program has set; 0 for none.
    pub trace_id: u128,
    /// The way of a sample that comes from another machine.
    pub way: Option<&'a Crossed>,
}

/// A sample of a trace that is being sent.
#[derive(Debug)]
pub(crate) struct Traced {
    traces: Arc<Traces>,
    topic: String,
    context: Context,
    parent: Option<SpanId>,
    metadata: Metadata,
    begin: u64,
    crossed: Option<Crossed>,
}

impl Traces {
    /// For a node, by its environment.
    pub fn of_environment(welcome: &Welcome, is_source: bool) -> Self {
        let rate = std::env::var(TRACES_VARIABLE).ok();
        let rate = rate.and_then(|rate| rate.parse::<f64>().ok());
        let rate = rate.filter(|rate| is_source && rate.is_finite() && *rate > 0.0);
        let period = rate.map(|rate| (1e9 / rate) as u64);
        let state = State {
            period_nanos: period,
            ..State::default()
        };
        Self {
            is_active: AtomicBool::new(period.is_some()),
            dataflow: welcome.dataflow.clone(),
            node: welcome.node.clone(),
            inputs: welcome.inputs.clone(),
            state: Mutex::new(state),
        }
    }

    #[inline]
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Never takes part.
    pub fn observe_only(&self) {
        self.state().is_observer = true;
    }

    /// Begins no traces: for a node that passes on what others send.
    pub fn begin_none(&self) {
        self.state().period_nanos = None;
    }

    /// The trace that a sample belongs to which is about to be sent.
    #[inline]
    pub fn of_sample(
        self: &Arc<Self>,
        output: &str,
        declared: Declared<'_>,
    ) -> Option<Box<Traced>> {
        match self.is_active() || declared.trace_id != 0 {
            false => None,
            true => Traced::new(self, output, &declared).map(Box::new),
        }
    }

    /// The node begins to handle a sample of a trace.
    #[cold]
    pub fn begin(&self, input: usize, sample: &Sample) {
        let header = sample.header();
        let parent = Context::of_sample(sample).and_then(|context| context.span);
        let spec = &self.inputs[input];
        let topic = match &spec.source {
            Source::Output { topic } => topic.clone(),
            Source::Timer { .. } => String::new(),
        };
        self.end();
        let mut state = self.state();
        if state.is_observer {
            return;
        }
        state.handled = Some(Handled {
            context: Context::new(header.trace_id),
            parent,
            topic,
            step: Step::Handled {
                input: spec.name.clone(),
                sequence: header.sequence,
                incarnation: header.incarnation,
                latency_nanos: sample.raw().latency_nanos(),
            },
            begin: sample.raw().received_mono(),
        });
        self.is_active.store(true, Ordering::Relaxed);
    }

    /// The node has handled the sample.
    #[cold]
    pub fn end(&self) {
        let handled = self.state().handled.take();
        if let Some(handled) = handled {
            let span = self.span(handled.context, handled.parent);
            let span = Span {
                topic: handled.topic,
                step: handled.step,
                ..span
            };
            report::send(span, handled.begin);
        }
    }

    fn span(&self, context: Context, parent: Option<SpanId>) -> Span {
        let hexadecimal = |id: SpanId| format!("{id:016x}");
        Span {
            trace: format!("{:032x}", context.trace),
            span: context.span.map(hexadecimal).unwrap_or_default(),
            parent: parent.map(hexadecimal).unwrap_or_default(),
            dataflow: self.dataflow.clone(),
            node: self.node.clone(),
            ..Span::default()
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The trace of a new sample, and the span that causes it.
    fn cause(&self, output: &str, declared: &Declared<'_>) -> Option<(u128, Option<SpanId>)> {
        let mut state = self.state();
        let named = declared.metadata.get(TRACEPARENT);
        let named = named.and_then(|value| match value {
            Value::Text(text) => Context::parse(text),
            _ => None,
        });
        let like = || declared.like.and_then(Context::of_sample);
        let explicit = || {
            (declared.trace_id != 0).then_some(Context {
                trace: declared.trace_id,
                span: None,
            })
        };
        let cause = named.or_else(like).or_else(explicit);
        match (cause, &state.handled) {
            // Metadata that is passed on names the publication of the handled sample.
            (Some(cause), Some(handled)) if cause.trace == handled.context.trace => {
                Some((cause.trace, handled.context.span))
            }
            (Some(cause), _) => Some((cause.trace, cause.span)),
            (None, Some(handled)) => Some((handled.context.trace, handled.context.span)),
            (None, None) => state.begins(output).then(|| (context::new_trace(), None)),
        }
    }
}

impl State {
    /// Whether an output begins a trace now.
    fn begins(&mut self, output: &str) -> bool {
        let Some(period) = self.period_nanos else {
            return false;
        };
        let now = monotonic_nanos();
        match self.due.get_mut(output) {
            Some(due) if *due > now => false,
            Some(due) => {
                *due = (*due + period).max(now);
                true
            }
            None => {
                self.due.insert(output.to_owned(), now + period);
                true
            }
        }
    }
}

impl Traced {
    /// `None` if the sample belongs to no trace.
    #[cold]
    fn new(traces: &Arc<Traces>, output: &str, declared: &Declared<'_>) -> Option<Self> {
        let (trace, parent) = traces.cause(output, declared)?;
        let context = Context::new(trace);
        let mut metadata = declared.metadata.clone();
        metadata.insert(TRACEPARENT, context.to_string());
        // A sample with full metadata is sent without the trace.
        metadata.write(&mut Head::new()).ok()?;
        Some(Self {
            traces: Arc::clone(traces),
            topic: wiring::topic(&traces.node, output),
            context,
            parent,
            metadata,
            begin: monotonic_nanos(),
            crossed: declared.way.cloned(),
        })
    }

    pub fn trace_id(&self) -> u128 {
        self.context.trace
    }

    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The sample was sent.
    #[cold]
    pub fn report(self, receipt: Receipt) {
        let Receipt { queued, missed, .. } = receipt;
        let (begin, step) = match self.crossed {
            None => (self.begin, Step::Sent { queued, missed }),
            Some(way) => (
                self.begin.saturating_sub(way.latency_nanos.unwrap_or(0)),
                Step::Crossed {
                    from: way.from,
                    error_nanos: way.latency_nanos.map(|_| way.error_nanos),
                    queued,
                    missed,
                },
            ),
        };
        let span = Span {
            topic: self.topic,
            step,
            ..self.traces.span(self.context, self.parent)
        };
        report::send(span, begin);
    }
}

/// The metadata that are sent.
pub(crate) fn metadata_of<'a>(traced: Option<&'a Traced>, declared: Declared<'a>) -> &'a Metadata {
    traced.map_or(declared.metadata, Traced::metadata)
}

/// Reports a sample that was sent, if it belongs to a trace.
#[inline]
pub(crate) fn report_sent(traced: Option<Box<Traced>>, receipt: Receipt) {
    if let Some(traced) = traced {
        traced.report(receipt);
    }
}
