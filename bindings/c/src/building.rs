//! Functions that build records.

use std::ffi::c_char;

use nervure_node::binding::type_of_output;
use nervure_node::message::Scalar;

use crate::builder::{Builder, Node};
use crate::pointers::{self, owned};
use crate::send::Output;
use crate::status::{Failure, Status, guarded};
use crate::value::{Kind, Value};

/// Makes a record for an output. If the type of the output is a standard one, the record has the fields of that type with
/// their defaults, optional ones without a value, and takes no others. `output` may be NULL, for a record of any fields, such
/// as a request. Free it with `nervure_builder_free`.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_builder_new(
    output: *const Output,
    builder: *mut *mut Builder,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_builder_new", || unsafe {
        pointers::put(builder, std::ptr::null_mut(), "builder")?;
        let known = output
            .as_ref()
            .and_then(|output| type_of_output(&output.publisher));
        pointers::put(builder, owned(Builder::new(known)?), "builder")?;
        Ok(Status::Ok)
    })
}

/// Frees a record.
///
/// # Safety
/// `builder` is null, or from `nervure_builder_new` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_builder_free(builder: *mut Builder) {
    // SAFETY: the caller's promise.
    unsafe { pointers::free(builder) }
}

/// Sets the value at a path: a number, a text, bytes, a tensor or another record, which are copied. An index that is the number
/// of items of its list appends an item.
///
/// # Safety
/// The pointers are null or valid, and the value is as `nervure_value` describes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_builder_set(
    builder: *mut Builder,
    path: *const c_char,
    value: *const Value,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_builder_set", || unsafe {
        let path = pointers::text(path, "path")?;
        let value = node(Value::checked(value)?)?;
        let builder = pointers::exclusive(builder, "builder")?;
        builder.set(path, value)?;
        Ok(Status::Ok)
    })
}

/// Removes the value at a path: an optional field becomes null, a list empty.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_builder_clear(
    builder: *mut Builder,
    path: *const c_char,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_builder_clear", || unsafe {
        let path = pointers::text(path, "path")?;
        let builder = pointers::exclusive(builder, "builder")?;
        builder.set(path, Node::Null)?;
        Ok(Status::Ok)
    })
}

/// # Safety
/// As [`Value::decode`].
unsafe fn node(value: &Value) -> Result<Node, Failure> {
    // SAFETY: the kind names the member.
    unsafe {
        Ok(match value.kind {
            Kind::Bool => Node::Scalar(Scalar::Bool(value.r#as.boolean)),
            Kind::Integer => Node::Scalar(Scalar::Integer(value.r#as.integer)),
            Kind::Unsigned => Node::Scalar(Scalar::Unsigned(value.r#as.unsigned_integer)),
            Kind::Float => Node::Scalar(Scalar::Float(value.r#as.number)),
            Kind::Text => Node::Text(value.as_text()?.to_owned()),
            Kind::Bytes => Node::Bytes(value.as_bytes()?.to_vec()),
            Kind::Tensor => {
                let (layout, data) = value.as_tensor()?;
                Node::Tensor(layout, data.to_vec())
            }
            Kind::Builder => pointers::shared(value.r#as.builder, "builder")?
                .root
                .clone(),
            Kind::Arrow | Kind::Struct => {
                let kind = value.kind.name();
                return Err(Failure::argument(format!(
                    "{kind} of the program cannot be a field of a record"
                )));
            }
        })
    }
}
