//! Records as messages that viewers display: the message of Foxglove for their type, filled from the
//! sources that the type names, or else a message with the fields of the record.

mod descriptor;
mod fill;

use std::sync::Arc;

use nervure_message::array::ArrayLayout;
use nervure_message::record::{RecordColumns, RecordPlaces, RecordView};
use nervure_message::{Layout, Schema};
use nervure_types::{Definition, SampleCheck};
use prost_reflect::prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::channel_schema::{ChannelSchema, foxglove};
use crate::declared_type::DeclaredType;
use crate::sample::IncomingSample;
use fill::{Fill, FillError};

/// Writes the records of one schema.
#[derive(Debug)]
pub(crate) struct RecordMessages {
    columns: RecordColumns,
    message: MessageDescriptor,
    schema: ChannelSchema,
    /// The type, if it names the sources of the message's fields.
    definition: Option<Arc<Definition>>,
}

impl RecordMessages {
    /// Prepares writing of records like this one; `None` if they cannot be messages. Samples that do
    /// not fit their type become messages with their own fields.
    pub(crate) fn new(
        sample: &IncomingSample<'_>,
        layout: &Layout,
        declared: &DeclaredType,
    ) -> Option<Self> {
        let schema = sample.schema.as_ref()?;
        let columns = RecordColumns::new(schema).ok()?;
        let fits = |definition: &&Arc<Definition>| {
            !definition.facts.foxglove_fields.is_empty()
                && SampleCheck::new("", (**definition).clone())
                    .check(layout, Some(schema))
                    .is_ok()
        };
        let definition = declared.definition.as_ref().filter(fits).cloned();
        let known = definition.as_ref().and_then(|definition| {
            let name = definition.facts.foxglove.as_deref()?;
            Some((name.to_owned(), foxglove(name)?.to_vec()))
        });
        let (message, name, data) = match known {
            Some((name, data)) => {
                let pool = DescriptorPool::decode(&*data).ok()?;
                (pool.get_message_by_name(&name)?, name, data)
            }
            None => {
                let (set, message) = descriptor::describe(declared.name.as_deref(), &columns)?;
                let name = message.full_name().to_owned();
                (message, name, set.encode_to_vec())
            }
        };
        Some(Self {
            columns,
            message,
            schema: ChannelSchema {
                name,
                encoding: "protobuf",
                data,
            },
            definition,
        })
    }

    /// The schema of the channel.
    pub(crate) fn schema(&self) -> &ChannelSchema {
        &self.schema
    }

    /// The fields of the message for a record.
    ///
    /// # Errors
    /// If the record is damaged.
    pub(crate) fn encode(
        &self,
        sample: &IncomingSample<'_>,
        layout: &ArrayLayout,
    ) -> Result<Vec<u8>, FillError> {
        let mut places = RecordPlaces::default();
        places.find(&self.columns, layout, sample.payload.len())?;
        let view = RecordView::new(&self.columns, &places, sample.payload);
        let mut message = DynamicMessage::new(self.message.clone());
        let mut fill = Fill::new(view, sample);
        match &self.definition {
            Some(definition) => fill.fields(&mut message, &definition.facts.foxglove_fields)?,
            None => fill.whole(&mut message)?,
        }
        Ok(message.encode_to_vec())
    }
}

/// Whether an array is one record: a dict, dataclass or struct.
pub(crate) fn is_record(schema: &Schema, layout: &ArrayLayout) -> bool {
    let kind = schema.root().metadata().get(nervure_message::PYTHON_KIND);
    layout.len() == 1
        && !schema.is_record_batch()
        && matches!(schema.data_type(), arrow_schema::DataType::Struct(_))
        && kind.is_none_or(|kind| kind != "list")
}
