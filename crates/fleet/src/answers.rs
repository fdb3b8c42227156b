//! JSON about the fleet that commands write with `--json` and that the API answers.

use std::net::IpAddr;

use nervure_coordinator::{Role, Standing};
use nervure_daemon::{clock::ClockOffset, state::Actual};
use serde::Serialize;

/// The machines of the fleet: `nervure machine list --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Machines {
    /// The machines.
    pub machines: Vec<ListedMachine>,
}

/// A machine of the fleet.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListedMachine {
    /// Its name.
    pub name: String,
    /// `operator`, `robot` or `observer`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub role: Role,
    /// `paired`, `waiting` or `revoked`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub standing: Standing,
    /// Whether its daemon has a link to the coordinator's machine.
    pub reachable: bool,
    /// Offset of its clock relative to the coordinator's.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub clock: Option<ClockOffset>,
    /// Its public key.
    pub key: String,
    /// The address that its daemon connects from; before that, the address that it paired from.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub address: IpAddr,
    /// The address of its link.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub link: Option<std::net::SocketAddr>,
    /// Its report.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub actual: Option<Actual>,
}

/// An invitation: `nervure machine invite --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Invited {
    /// For `nervure join`.
    pub invitation: String,
    /// `operator`, `robot` or `observer`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub role: Role,
    /// Whether any number of machines may use it, each of which waits for approval.
    pub with_approval: bool,
    /// Its lifetime.
    pub valid_seconds: f64,
}

/// A machine that was approved or revoked: `nervure machine approve --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ManagedMachine {
    /// Its name.
    pub machine: String,
    /// `operator`, `robot` or `observer`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub role: Role,
    /// `paired` or `revoked`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub standing: Standing,
}
