//! Types in the memory of a program, for reading and writing its structs.

use std::ffi::{CStr, c_char, c_void};

use nervure_node::message::DType;

use crate::dtype::{Dtype, dtype_from};

/// Kind of a type in memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "programs make them"))]
pub enum LayoutKind {
    /// A number or truth value of type `dtype`, of at most 64 bits.
    Number = 0,
    /// A text: `items` are its bytes.
    Text = 1,
    /// A struct with `count` fields.
    Record = 2,
    /// `count` values of type `item`, one after the other.
    Array = 3,
    /// Any number of values of type `item`.
    List = 4,
    /// A value of type `item`, or none: `items` are one or none.
    Optional = 5,
}

/// A type in memory. It lives as long as the program, and is not changed. `nervure.hpp` makes those of generated structs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TypeLayout {
    /// Kind of the type.
    pub kind: LayoutKind,
    /// Type of the number.
    pub dtype: Dtype,
    /// Size in bytes, with the gap before the next one in an array.
    pub size: usize,
    /// Name of the struct, for messages.
    pub name: *const c_char,
    /// Number of fields or items.
    pub count: usize,
    /// The fields of the struct, in the order in which they are sent.
    pub fields: *const LayoutField,
    /// Type of the items.
    pub item: *const TypeLayout,
    /// Returns the first item of a text, list or optional value, and their number.
    pub items:
        Option<unsafe extern "C" fn(place: *const c_void, count: *mut usize) -> *const c_void>,
    /// Sets the number of items, and returns the first; NULL if the memory is exhausted.
    pub resize: Option<unsafe extern "C" fn(place: *mut c_void, count: usize) -> *mut c_void>,
}

/// A field of a struct.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LayoutField {
    /// Its name in records.
    pub name: *const c_char,
    /// Its type.
    pub layout: *const TypeLayout,
    /// Its distance from the beginning of the struct, in bytes.
    pub offset: usize,
}

// SAFETY: layouts are not changed.
unsafe impl Sync for TypeLayout {}

impl std::fmt::Debug for TypeLayout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TypeLayout")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// A checked layout: its pointers are valid, and it lives as long as the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape(pub(crate) &'static TypeLayout);

impl Shape {
    pub(crate) const NUMBER: Self = Self(&TypeLayout::number(Dtype::F64, 8));
    pub(crate) const INTEGER: Self = Self(&TypeLayout::number(Dtype::I64, 8));
    pub(crate) const BOOLEAN: Self = Self(&TypeLayout::number(Dtype::Bool, 1));

    pub(crate) fn kind(self) -> LayoutKind {
        self.0.kind
    }

    /// The type of a number's bytes.
    pub(crate) fn dtype(self) -> DType {
        dtype_from(self.0.dtype)
    }

    pub(crate) fn item(self) -> Self {
        // SAFETY: a layout of this kind has one, as the program has promised.
        Self(unsafe { &*self.0.item })
    }

    pub(crate) fn fields(self) -> &'static [LayoutField] {
        match self.0.count {
            0 => &[],
            // SAFETY: a record has as many fields, as the program has promised.
            count => unsafe { std::slice::from_raw_parts(self.0.fields, count) },
        }
    }

    /// The first item at a place, and the number of items.
    ///
    /// # Safety
    /// `place` points to a value of this type.
    pub(crate) unsafe fn items(self, place: *const u8) -> (*const u8, usize) {
        let mut count = 0;
        let items = self.0.items.expect("a layout of this kind has `items`");
        // SAFETY: the caller's promise.
        let first = unsafe { items(place.cast(), &raw mut count) };
        (first.cast(), count)
    }

    /// Sets the number of items at a place. Returns the first; null if the memory is exhausted.
    ///
    /// # Safety
    /// `place` points to a value of this type.
    pub(crate) unsafe fn resize(self, place: *mut u8, count: usize) -> *mut u8 {
        let resize = self.0.resize.expect("a layout of this kind has `resize`");
        // SAFETY: the caller's promise.
        unsafe { resize(place.cast(), count) }.cast()
    }

    /// The name of the type, for messages.
    pub(crate) fn name(self) -> String {
        match self.kind() {
            LayoutKind::Number => number_name(self.0.dtype).to_owned(),
            LayoutKind::Text => "string".to_owned(),
            LayoutKind::Record if self.0.name.is_null() => "a struct".to_owned(),
            // SAFETY: not null, so it is a text of C.
            LayoutKind::Record => unsafe { text(self.0.name) }.to_owned(),
            LayoutKind::Array => format!("{}[{}]", self.item().name(), self.0.count),
            LayoutKind::List => format!("{}[]", self.item().name()),
            LayoutKind::Optional => self.item().name(),
        }
    }
}

impl LayoutField {
    pub(crate) fn name(&self) -> &'static str {
        // SAFETY: names of fields are texts of C that live as long as the program.
        unsafe { text(self.name) }
    }

    pub(crate) fn shape(&self) -> Shape {
        // SAFETY: a field has a layout, as the program has promised.
        Shape(unsafe { &*self.layout })
    }
}

impl TypeLayout {
    const fn number(dtype: Dtype, size: usize) -> Self {
        Self {
            kind: LayoutKind::Number,
            dtype,
            size,
            name: std::ptr::null(),
            count: 0,
            fields: std::ptr::null(),
            item: std::ptr::null(),
            items: None,
            resize: None,
        }
    }
}

/// # Safety
/// A text of C that lives as long as the program.
unsafe fn text(start: *const c_char) -> &'static str {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(start) }.to_str().unwrap_or("?")
}

/// The name of a number in `.msg` files.
fn number_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "bool",
        Dtype::I8 => "int8",
        Dtype::I16 => "int16",
        Dtype::I32 => "int32",
        Dtype::I64 => "int64",
        Dtype::U8 => "uint8",
        Dtype::U16 => "uint16",
        Dtype::U32 => "uint32",
        Dtype::U64 => "uint64",
        Dtype::F32 => "float32",
        Dtype::F64 => "float64",
        Dtype::F16 | Dtype::Bf16 | Dtype::C64 | Dtype::C128 | Dtype::Custom => "another number",
    }
}
