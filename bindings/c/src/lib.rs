//! Nervure nodes in C. `include/nervure.h`, which is generated from this crate, describes the functions;
//! `include/nervure.hpp` wraps them for C++.
#![expect(unsafe_code, reason = "C passes pointers")]

mod builder;
mod building;
mod dtype;
mod event;
mod fields;
mod layout;
mod metadata;
mod misread;
mod node;
mod path;
mod pointers;
mod reader;
#[cfg(test)]
mod reader_tests;
mod receive;
mod record;
mod sample;
#[cfg(test)]
mod scene;
mod schemas;
mod send;
mod status;
mod structs;
mod transform;
mod value;
mod writer;

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn nervure_version() -> *const std::ffi::c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
