//! The tests, in one program.

mod capture;
mod emulator;
mod model;
mod netem;
mod network;
mod refusals;
