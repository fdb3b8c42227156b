//! The sending half of a node.

use dora_node_api::arrow::array::ArrayRef;
use dora_node_api::dora_core::config::DataId;
use dora_node_api::{DoraNode, MetadataParameters, Parameter, REQUEST_ID};
use eyre::Result;

/// Sends outputs.
#[derive(Debug)]
pub struct OutputSender(pub DoraNode);

impl OutputSender {
    pub fn send_bytes(
        &mut self,
        id: &str,
        data: &[u8],
        parameters: MetadataParameters,
    ) -> Result<()> {
        let id = id.parse::<DataId>()?;
        Ok(self.0.send_output_bytes(id, parameters, data.len(), data)?)
    }

    pub fn send_array(
        &mut self,
        id: &str,
        array: ArrayRef,
        parameters: MetadataParameters,
    ) -> Result<()> {
        Ok(self.0.send_output(id.parse()?, parameters, array)?)
    }

    pub fn close(&mut self, ids: Vec<String>) -> Result<()> {
        let ids = ids.iter().map(|id| id.parse::<DataId>());
        Ok(self.0.close_outputs(ids.collect::<Result<_, _>>()?)?)
    }
}

/// Adds a new request id, which is returned.
pub fn add_request_id(parameters: &mut MetadataParameters) -> String {
    let request_id = DoraNode::new_request_id();
    let parameter = Parameter::String(request_id.clone());
    parameters.insert(REQUEST_ID.to_owned(), parameter);
    request_id
}
