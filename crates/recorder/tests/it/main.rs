//! Recordings, written and read again.

mod damage;
mod round_trip;
mod support;
