//! A struct as a program in C++ would have it, for tests.

use std::ffi::{CStr, c_void};
use std::mem::offset_of;
use std::ptr;

use crate::dtype::Dtype;
use crate::layout::{LayoutField, LayoutKind, Shape, TypeLayout};

/// A struct as a program in C++ would have it.
#[repr(C)]
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Scene {
    pub(crate) weight: f32,
    pub(crate) name: Vec<u8>,
    pub(crate) origin: Option<Place>,
    pub(crate) rows: Vec<Row>,
    pub(crate) image: Vec<u16>,
    pub(crate) corners: [f64; 2],
}

#[repr(C)]
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Place {
    pub(crate) x: f64,
    pub(crate) is_known: bool,
}

#[repr(C)]
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) tags: Vec<Vec<u8>>,
    pub(crate) values: Option<Vec<i32>>,
}

unsafe extern "C" fn items<T>(place: *const c_void, count: *mut usize) -> *const c_void {
    // SAFETY: the place is that of a vector.
    unsafe {
        let items = &*place.cast::<Vec<T>>();
        count.write(items.len());
        items.as_ptr().cast()
    }
}

unsafe extern "C" fn resize<T: Default + Clone>(place: *mut c_void, count: usize) -> *mut c_void {
    // SAFETY: as above.
    let items = unsafe { &mut *place.cast::<Vec<T>>() };
    items.resize(count, T::default());
    items.as_mut_ptr().cast()
}

unsafe extern "C" fn held<T>(place: *const c_void, count: *mut usize) -> *const c_void {
    // SAFETY: the place is that of an optional value.
    unsafe {
        let value = &*place.cast::<Option<T>>();
        count.write(value.is_some().into());
        value.as_ref().map_or(ptr::null(), ptr::from_ref).cast()
    }
}

unsafe extern "C" fn hold<T: Default>(place: *mut c_void, count: usize) -> *mut c_void {
    // SAFETY: as above.
    let value = unsafe { &mut *place.cast::<Option<T>>() };
    if count == 0 {
        *value = None;
        return ptr::null_mut();
    }
    ptr::from_mut(value.get_or_insert_default()).cast()
}

fn layout<T>(kind: LayoutKind) -> TypeLayout {
    TypeLayout {
        kind,
        dtype: Dtype::Bool,
        size: size_of::<T>(),
        name: ptr::null(),
        count: 0,
        fields: ptr::null(),
        item: ptr::null(),
        items: None,
        resize: None,
    }
}

fn kept(layout: TypeLayout) -> &'static TypeLayout {
    Box::leak(Box::new(layout))
}

pub(crate) fn number<T>(dtype: Dtype) -> &'static TypeLayout {
    kept(TypeLayout {
        dtype,
        ..layout::<T>(LayoutKind::Number)
    })
}

pub(crate) fn list<T: Default + Clone>(
    kind: LayoutKind,
    item: &'static TypeLayout,
) -> &'static TypeLayout {
    kept(TypeLayout {
        item,
        items: Some(items::<T>),
        resize: Some(resize::<T>),
        ..layout::<Vec<T>>(kind)
    })
}

fn optional<T: Default>(item: &'static TypeLayout) -> &'static TypeLayout {
    kept(TypeLayout {
        item,
        items: Some(held::<T>),
        resize: Some(hold::<T>),
        ..layout::<Option<T>>(LayoutKind::Optional)
    })
}

fn record<T>(
    name: &'static CStr,
    fields: &[(&'static CStr, usize, &'static TypeLayout)],
) -> &'static TypeLayout {
    let fields = fields.iter().map(|&(name, offset, layout)| LayoutField {
        name: name.as_ptr(),
        layout,
        offset,
    });
    let fields: &'static [LayoutField] = Box::leak(fields.collect());
    kept(TypeLayout {
        name: name.as_ptr(),
        count: fields.len(),
        fields: fields.as_ptr(),
        ..layout::<T>(LayoutKind::Record)
    })
}

pub(crate) fn scene() -> Shape {
    let text = list::<u8>(LayoutKind::Text, number::<u8>(Dtype::U8));
    let float = number::<f64>(Dtype::F64);
    let place = record::<Place>(
        c"Place",
        &[
            (c"x", offset_of!(Place, x), float),
            (
                c"is_known",
                offset_of!(Place, is_known),
                number::<bool>(Dtype::Bool),
            ),
        ],
    );
    let tags = list::<Vec<u8>>(LayoutKind::List, text);
    let values = list::<i32>(LayoutKind::List, number::<i32>(Dtype::I32));
    let row = record::<Row>(
        c"Row",
        &[
            (c"tags", offset_of!(Row, tags), tags),
            (
                c"values",
                offset_of!(Row, values),
                optional::<Vec<i32>>(values),
            ),
        ],
    );
    let corners = kept(TypeLayout {
        count: 2,
        item: float,
        ..layout::<[f64; 2]>(LayoutKind::Array)
    });
    let image = list::<u16>(LayoutKind::List, number::<u16>(Dtype::U16));
    Shape(record::<Scene>(
        c"Scene",
        &[
            (
                c"weight",
                offset_of!(Scene, weight),
                number::<f32>(Dtype::F32),
            ),
            (c"name", offset_of!(Scene, name), text),
            (
                c"origin",
                offset_of!(Scene, origin),
                optional::<Place>(place),
            ),
            (
                c"rows",
                offset_of!(Scene, rows),
                list::<Row>(LayoutKind::List, row),
            ),
            (c"image", offset_of!(Scene, image), image),
            (c"corners", offset_of!(Scene, corners), corners),
        ],
    ))
}

pub(crate) fn full() -> Scene {
    let row = |tags: &[&str], values| Row {
        tags: tags.iter().map(|tag| tag.as_bytes().to_vec()).collect(),
        values,
    };
    Scene {
        weight: 2.5,
        name: "grüß".into(),
        origin: Some(Place {
            x: 7.0,
            is_known: true,
        }),
        rows: vec![
            row(&["a", "bc"], Some(vec![1, -2, 3])),
            row(&[], None),
            row(&["d"], Some(vec![])),
        ],
        image: vec![0, 3, 1, 4, 2, 5],
        corners: [0.5, 1.5],
    }
}
