use crate::id::{DataId, NodeId, OperatorId};
use crate::metadata::Metadata;
use dora_arrow_convert::DoraArray;

/// An event of a node. Ignore the kinds that are of no interest.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// Data arrived at an input, or a timer is due: then the data is an empty null array.
    Input {
        /// The input's name.
        id: DataId,
        /// Time and parameters.
        metadata: Metadata,
        /// The data, in place in its producer's memory where Arrow allows it.
        data: DoraArray,
    },
    /// The producer of an input has ended, or the input was silent for longer than it may be.
    InputClosed {
        /// The input's name.
        id: DataId,
    },
    /// An input that was silent for too long has data again.
    InputRecovered {
        /// The input's name.
        id: DataId,
    },
    /// A node that feeds this one was restarted.
    NodeRestarted {
        /// The id of the node that was restarted.
        id: NodeId,
    },
    /// The node has to end. After it come the samples that are queued, and nothing else.
    Stop(StopCause),
    /// Never sent: dora reloads operators in Python with it.
    Reload {
        /// The operator.
        operator_id: Option<OperatorId>,
    },
    /// A parameter of this node was set.
    ParamUpdate {
        /// The parameter's name.
        key: String,
        /// Its new value.
        value: serde_json::Value,
    },
    /// Never sent: the parameters of a Nervure node cannot be deleted.
    ParamDeleted {
        /// The parameter's name.
        key: String,
    },
    /// A node that feeds this one has failed.
    NodeFailed {
        /// The inputs that it feeds.
        affected_input_ids: Vec<DataId>,
        /// What happened.
        error: String,
        /// The id of the node that failed.
        source_node_id: NodeId,
    },
    /// Data could not be read, or none came before a timeout.
    Error(String),
}

/// Why a node has to end.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StopCause {
    /// The dataflow was stopped.
    Manual,
    /// All inputs of the node are closed.
    AllInputsClosed,
}
