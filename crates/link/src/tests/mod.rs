//! The link on simulated networks: every run repeats exactly from its seed.

mod app;
mod hostile;
mod networks;
mod restart;
