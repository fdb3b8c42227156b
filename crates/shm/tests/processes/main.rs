//! Both ends in processes of their own; one of them is killed with SIGKILL.

mod child;
mod consumer_dies;
mod producer_dies;
mod rig;
