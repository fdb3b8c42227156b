//! The identity of a machine: an Ed25519 key pair, and TLS between ends that know each other's keys.
//!
//! The link between machines and the connections to the coordinator prove the same key, so a
//! machine is paired once for both.

mod key;
pub mod tls;

pub use key::{IdentityError, KeyPair, ParsePublicKeyError, PublicKey};
