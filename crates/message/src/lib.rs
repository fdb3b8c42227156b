//! The memory layout of samples. No I/O, and no knowledge of the transport.
//!
//! A sample consists of a fixed [`Header`], a few `head` bytes and the payload. The head describes
//! the layout of the payload ([`Layout`]) and carries its [`Metadata`]. Bytes from a peer are
//! untrusted: every decoder limits its allocations, and its errors name the defect.
//!
//! ```
//! use nervure_message::{Element, Encode, Metadata, Tensor, View, encode_head};
//!
//! // The sender: a head on the stack, and one copy into the loaned block.
//! let pixels = [7_u8; 4 * 6 * 3];
//! let image = Tensor::new(&pixels, &[4, 6, 3])?;
//! let head = encode_head(&image, &Metadata::new())?;
//! let mut payload = vec![0; image.payload_bytes()];
//! image.write(&mut payload);
//!
//! // The receiver, in any process.
//! let (layout, metadata) = nervure_message::decode_head(&head)?;
//! let view = View::new(&layout, &payload)?;
//! assert_eq!(view.tensor()?.shape(), [4, 6, 3]);
//! assert_eq!(view.as_slice::<u8>()?, pixels);
//! assert!(metadata.decode()?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(target_endian = "big")]
compile_error!("payloads are little-endian in memory; nothing here swaps bytes");

pub mod array;
mod dtype;
mod encode;
mod header;
mod json;
mod layout;
mod metadata;
pub mod record;
mod schema;
mod tensor;
mod type_name;
mod view;
mod view_error;
mod wire;

pub use array::ArraySample;
pub use bytemuck::{AnyBitPattern, cast_slice, cast_slice_mut};
pub use dtype::{DType, Element};
pub use encode::{Encode, decode_head, encode_head};
pub use header::{Header, MemoryKind, Origin};
pub use json::JsonSample;
pub use layout::{Layout, Scalar};
pub use metadata::{EncodedMetadata, Metadata, MetadataError, Value};
pub use record::{Column, ReceivedRecord, Record, SerdeError, SerdeSample, TensorColumn};
pub use schema::{PYTHON_KIND, Schema, SchemaError};
pub use tensor::{Tensor, TensorError, TensorLayout, TensorView};
pub use type_name::{TypeName, TypeNameError};
pub use view::{View, payload_buffer};
pub use view_error::ViewError;
pub use wire::{DecodeError, Head};
