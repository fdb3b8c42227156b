use arrow_data::ArrayData;
use nervure_message::{
    DecodeError, Element, Header, Layout, Metadata, ReceivedRecord, Schema, View, ViewError,
    decode_head, payload_buffer,
};
use std::sync::Arc;
use std::time::Duration;

/// A received sample: a view of its producer's memory. The producer gets the memory back when the
/// last clone is dropped.
#[derive(Clone, Debug)]
pub struct Sample(nervure_shm::ReceivedSample);

/// Why a sample cannot be read in the requested form.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The sample's head (layout and metadata) is damaged.
    #[error("the sample's head cannot be read: {0}")]
    Head(#[from] DecodeError),
    /// The payload is of another kind, or damaged.
    #[error(transparent)]
    View(#[from] ViewError),
}

/// The payload as the owner of an Arrow buffer.
struct Payload(nervure_shm::ReceivedSample);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.0.payload()
    }
}

impl Sample {
    pub(crate) fn new(raw: nervure_shm::ReceivedSample) -> Self {
        Self(raw)
    }

    /// A sample that did not come over an edge, in memory of this process: for tools.
    ///
    /// # Errors
    /// If the metadata has too many entries or bytes.
    pub fn local<V: nervure_message::Encode + ?Sized>(
        value: &V,
        metadata: &Metadata,
        header: Header,
        frame: Option<&str>,
    ) -> Result<Self, nervure_message::MetadataError> {
        let raw = nervure_shm::ReceivedSample::local_announcing(value, metadata, header, frame)?;
        Ok(Self(raw))
    }

    /// The header: sequence number, times, and identifiers.
    pub fn header(&self) -> &Header {
        self.0.header()
    }

    /// The sample as the data plane delivered it.
    pub fn raw(&self) -> &nervure_shm::ReceivedSample {
        &self.0
    }

    /// A copy of the sample in private memory. It holds no block of its producer, and outlives its
    /// node or observer.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self(self.0.copied())
    }

    /// The time at which the value was true, in nanoseconds since the Unix epoch. The source sets
    /// it; [`Envelope::like`](crate::Envelope::like) passes it on.
    pub fn stamp(&self) -> i64 {
        self.header().stamp
    }

    /// Time from the sample's stamp to `now` ([`Handle::now`](crate::Handle::now)); zero for a
    /// stamp in the future.
    pub fn age(&self, now: i64) -> Duration {
        Duration::from_nanos(u64::try_from(now.saturating_sub(self.stamp())).unwrap_or(0))
    }

    /// Time from publication until this node took the sample from its queue.
    pub fn latency(&self) -> Duration {
        Duration::from_nanos(self.0.latency_nanos())
    }

    /// The layout of the payload: its kind, element type and shape.
    ///
    /// # Errors
    /// [`SampleError::Head`] if the producer wrote no valid head.
    pub fn layout(&self) -> Result<&Layout, SampleError> {
        self.0
            .layout()
            .map_err(|error| SampleError::Head(error.clone()))
    }

    /// The metadata that was sent with the value.
    ///
    /// # Errors
    /// [`SampleError::Head`] if the producer wrote no valid head.
    pub fn metadata(&self) -> Result<Metadata, SampleError> {
        Ok(decode_head(self.0.head())?.1.decode()?)
    }

    /// The name of the coordinate frame, if one was sent.
    pub fn frame(&self) -> Option<String> {
        let bytes = self.frame_bytes()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The name of the coordinate frame as its producer announced it.
    pub(crate) fn frame_bytes(&self) -> Option<Arc<[u8]>> {
        let id = self.header().frame_id;
        (id != 0).then(|| self.0.announcement(id)).flatten()
    }

    /// The payload with its layout.
    ///
    /// # Errors
    /// [`SampleError`] if the head is damaged, or describes more bytes than the payload has.
    pub fn view(&self) -> Result<View<'_>, SampleError> {
        Ok(View::new(self.layout()?, self.0.payload())?)
    }

    /// The payload's bytes, in any layout.
    pub fn bytes(&self) -> &[u8] {
        self.0.payload()
    }

    /// The value of a text sample.
    ///
    /// # Errors
    /// [`SampleError`] if the sample is not text.
    pub fn text(&self) -> Result<String, SampleError> {
        Ok(self.view()?.text()?)
    }

    /// The elements of a tensor, in place and in C order.
    ///
    /// # Errors
    /// [`SampleError`] if the sample is not a tensor of `T`, or not in C order.
    pub fn as_slice<T: Element + nervure_message::AnyBitPattern>(
        &self,
    ) -> Result<&[T], SampleError> {
        Ok(self.view()?.as_slice::<T>()?)
    }

    /// The value as an Arrow array, in place where Arrow allows it. The array holds the sample's
    /// block.
    ///
    /// # Errors
    /// [`SampleError`] if the array is not valid, or its schema did not arrive.
    pub fn array(&self) -> Result<ArrayData, SampleError> {
        self.array_of(self.schema()?.as_ref())
    }

    fn array_of(&self, schema: Option<&Schema>) -> Result<ArrayData, SampleError> {
        let buffer = payload_buffer(Payload(self.0.clone()));
        Ok(self.view()?.array(schema, &buffer)?)
    }

    /// A struct, dict or list, to be deserialized with serde. Its tensors are views of the sample.
    /// The record holds the sample's block.
    ///
    /// # Errors
    /// [`SampleError`] if the sample is not an Arrow array, or is damaged.
    pub fn record(&self) -> Result<ReceivedRecord, SampleError> {
        self.record_of(self.schema()?)
    }

    /// As [`Sample::record`]. `known` keeps the schema, and its bytes, for the next sample.
    pub(crate) fn record_with(
        &self,
        known: &mut Option<(Arc<[u8]>, Schema)>,
    ) -> Result<ReceivedRecord, SampleError> {
        let Some(bytes) = self.schema_bytes()? else {
            return self.record_of(None);
        };
        let schema = match known {
            Some((last, schema)) if *last == bytes => schema.clone(),
            _ => {
                let schema = Schema::decode(&bytes)?;
                *known = Some((bytes, schema.clone()));
                schema
            }
        };
        self.record_of(Some(schema))
    }

    fn record_of(&self, schema: Option<Schema>) -> Result<ReceivedRecord, SampleError> {
        let missing = || match self.layout() {
            Ok(Layout::Array(_)) => ViewError::SchemaMissing,
            Ok(other) => ViewError::Kind {
                expected: "an Arrow array",
                found: other.kind_name(),
            },
            Err(_) => ViewError::SchemaMissing,
        };
        Ok(ReceivedRecord::new(
            self.array_of(schema.as_ref())?,
            schema.ok_or_else(missing)?,
        ))
    }

    /// The schema of an Arrow array; `None` for other layouts.
    ///
    /// # Errors
    /// [`SampleError`] if the producer announced a damaged schema.
    pub fn schema(&self) -> Result<Option<Schema>, SampleError> {
        let bytes = self.schema_bytes()?;
        Ok(bytes.map(|bytes| Schema::decode(&bytes)).transpose()?)
    }

    fn schema_bytes(&self) -> Result<Option<Arc<[u8]>>, SampleError> {
        // A schema beside another layout is made up: the array of a tensor has not its type.
        let id = match self.layout()? {
            Layout::Array(_) => self.header().schema_id,
            _ => 0,
        };
        Ok((id != 0).then(|| self.0.announcement(id)).flatten())
    }
}

#[cfg(test)]
mod tests {
    use nervure_message::{Encode, JsonSample, TensorLayout};

    use super::*;

    /// A tensor with the schema of an array, as a producer may make it up.
    struct WithSchema(Schema);

    impl Encode for WithSchema {
        fn layout(&self) -> Layout {
            Layout::Tensor(TensorLayout::contiguous(u8::DTYPE, &[3]).unwrap())
        }

        fn payload_bytes(&self) -> usize {
            3
        }

        fn write(&self, payload: &mut [u8]) {
            payload.fill(7);
        }

        fn schema(&self) -> Option<&Schema> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_tensor_has_no_schema_whatever_was_announced() {
        let texts = JsonSample::new(&serde_json::json!(["a", "b", "c"])).unwrap();
        let value = WithSchema(Encode::schema(&texts).unwrap().clone());
        let sample = Sample::local(&value, &Metadata::new(), Header::default(), None).unwrap();
        assert!(sample.schema().unwrap().is_none());
        assert_eq!(sample.array().unwrap().len(), 3);
    }
}
