//! Recordings, written and read again.

mod bags;
mod damage;
mod round_trip;
mod support;
