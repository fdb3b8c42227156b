//! Recordings, written and read again.

mod bags;
mod damage;
mod protobuf;
mod ros_bags;
mod round_trip;
mod series;
mod standard_types;
mod support;
