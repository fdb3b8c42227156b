//! Peers that write anything, wherever they can.
//!
//! A hostile peer does not use this library. It has the descriptors that its keeper gave it, and
//! writes to them. Its writes may end its own edge, with a reason. They never cause a panic, a
//! wrong memory access or an endless wait, and never harm other edges.

mod consumers;
mod descriptors;
mod producers;
mod rig;
mod sockets;
mod wake_pages;
mod words;
