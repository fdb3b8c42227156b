use crate::sample::Sample;
use crate::trace::Declared;
use crate::trace::way::Crossed;
use nervure_message::{Header, Metadata, Origin};
use nervure_shm::{Output, SendError};

pub(super) static NO_METADATA: Metadata = Metadata::new();

/// Time, coordinate frame, trace and metadata of a sent value.
#[derive(Clone, Debug, Default)]
pub struct Envelope<'a> {
    stamp: Option<i64>,
    like: Option<&'a Sample>,
    metadata: Option<&'a Metadata>,
    frame: Option<&'a str>,
    correlation_id: u64,
    trace_id: u128,
    crossed: Option<&'a Crossed>,
    origin: Option<Origin>,
}

impl<'a> Envelope<'a> {
    /// An empty envelope. Its sample is stamped with the time of publication.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time at which the value was true, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn stamp(mut self, nanos: i64) -> Self {
        self.stamp = Some(nanos);
        self
    }

    /// Takes stamp, frame, trace and correlation id from the sample that the value was computed
    /// from, where they are not set here.
    #[must_use]
    pub fn like(mut self, sample: &'a Sample) -> Self {
        self.like = Some(sample);
        self
    }

    /// Adds named values.
    #[must_use]
    pub fn metadata(mut self, metadata: &'a Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Sets the coordinate frame.
    #[must_use]
    pub fn frame(mut self, name: &'a str) -> Self {
        self.frame = Some(name);
        self
    }

    /// Sets the number that ties an answer to its request.
    #[must_use]
    pub fn correlation_id(mut self, id: u64) -> Self {
        self.correlation_id = id;
        self
    }

    /// Sets the trace that the value belongs to (the trace-id of W3C trace context).
    #[must_use]
    pub fn trace_id(mut self, id: u128) -> Self {
        self.trace_id = id;
        self
    }

    /// The way of a sample of a trace that comes from another machine.
    #[must_use]
    pub(crate) fn crossed(mut self, way: &'a Crossed) -> Self {
        self.crossed = Some(way);
        self
    }

    /// Where a sample from another machine was first published.
    #[must_use]
    pub(crate) fn origin(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    pub(super) fn known_origin(&self) -> Option<Origin> {
        self.origin
    }

    #[inline]
    pub(super) fn declared(&self) -> Declared<'a> {
        Declared {
            metadata: self.metadata.unwrap_or(&NO_METADATA),
            like: self.like,
            trace_id: self.trace_id,
            way: self.crossed,
        }
    }

    /// Makes the header, and announces the frame's name on the output: receivers look it up by the
    /// hash in the header.
    #[inline]
    pub(super) fn header(&self, output: &Output, schema_id: u64) -> Result<Header, SendError> {
        let mut header = Header {
            correlation_id: self.correlation_id,
            trace_id: self.trace_id,
            schema_id,
            ..Header::default()
        };
        header.stamp = self.stamp.unwrap_or(0);
        if let Some(name) = self.frame {
            header.frame_id = twox_hash::XxHash3_64::oneshot(name.as_bytes()).max(1);
            output.announce(header.frame_id, name.as_bytes())?;
        }
        if let Some(sample) = self.like {
            self.inherit(sample, &mut header, output)?;
        }
        Ok(header)
    }

    /// Fills in unset fields from `like`.
    #[inline(never)]
    fn inherit(
        &self,
        like: &Sample,
        header: &mut Header,
        output: &Output,
    ) -> Result<(), SendError> {
        let known = like.header();
        if self.stamp.is_none() {
            header.stamp = known.stamp;
        }
        if header.trace_id == 0 {
            header.trace_id = known.trace_id;
        }
        if header.correlation_id == 0 {
            header.correlation_id = known.correlation_id;
        }
        if self.frame.is_none() && known.frame_id != 0 {
            if let Some(name) = like.raw().announcement(known.frame_id) {
                output.announce(known.frame_id, &name)?;
            }
            header.frame_id = known.frame_id;
        }
        Ok(())
    }
}
