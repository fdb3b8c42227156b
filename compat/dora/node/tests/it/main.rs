//! Programs that are written for dora, run by `nervure run`.

mod c;
mod cxx;
mod dataflow;
mod ends;
mod operators;
mod rust;
