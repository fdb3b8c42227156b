//! `nervure serve`: the answers of other commands over HTTP.
//!
//! A process of its own: it connects to keepers and the daemon as `status` does, and nothing depends on it.

mod access;
mod child;
mod common;
mod connection;
pub mod families;
mod membership;
mod metrics;
mod orders;
mod recorders;
mod recordings;
mod server;
pub mod snapshot;
mod streams;
mod tls;
mod v1;

pub use child::end_with_server;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use nervure_fleet::connection::folder;
use nervure_inspect::threads;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::failure::Failure;

/// The port unless another is named.
const PORT: u16 = 7710;

#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Listen on this address. One beyond this machine needs `--certificate` and `--key`.
    #[arg(long, value_name = "IP:PORT", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))]
    listen: SocketAddr,
    /// Serve HTTPS with this certificate chain, a PEM file.
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The private key of the certificate, a PEM file.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Answer requests for this host name too, besides IP addresses and `localhost`; again for each
    /// name.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
}

/// Serves until a signal.
pub fn serve(arguments: &ServeArguments) -> Result<ExitCode, Failure> {
    let tls = match (&arguments.certificate, &arguments.key) {
        (Some(certificate), Some(key)) => Some(tls::acceptor(certificate, key)?),
        _ => None,
    };
    let is_local = arguments.listen.ip().is_loopback();
    if !is_local && tls.is_none() {
        let text = format!(
            "{} is reachable from other machines, and there is no `--certificate`",
            arguments.listen
        );
        return Err(Failure::invalid(text).hint(
            "name a certificate and its key, or listen on 127.0.0.1 and forward a port: \
             `ssh -L 7710:127.0.0.1:7710 HOST`",
        ));
    }
    let file = folder()?.path().join("api-token");
    let access = access::Access::new(
        access::load_or_make_token(&file)?,
        is_local,
        &arguments.host,
    );
    note!("the token of requests is in {}", file.display());
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::internal("cannot watch for signals").because(error))?;
    threads::spawn(move || {
        if signals.forever().next().is_some() {
            std::process::exit(0);
        }
    })?;
    server::serve(arguments.listen, tls, access)
}
