//! Dataflows on a virtual clock. [`World`] stands for the shell and the nodes, and checks the
//! invariants that every node relies on.

mod any_order;
mod calls;
mod drain;
mod edge_status;
mod guests;
mod joined;
mod last_values;
mod life;
mod orders;
mod params;
mod pause;
mod remote;
mod replace;
mod wiring;
mod world;

use world::{World, block, drop_oldest, node};
