//! `nervure serve`: the answers of other commands over HTTP.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use nervure_api::Settings;
use nervure_inspect::threads;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{failure::Failure, output};

impl From<nervure_api::Error> for Failure {
    fn from(error: nervure_api::Error) -> Self {
        Self::of(&error)
    }
}

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
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::internal("cannot watch for signals").because(error))?;
    threads::spawn(move || {
        if signals.forever().next().is_some() {
            std::process::exit(0);
        }
    })?;
    let files = (arguments.certificate.clone(), arguments.key.clone());
    let settings = Settings {
        listen: arguments.listen,
        certificate: match files {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => None,
        },
        hosts: arguments.host.clone(),
        note: output::write_note,
    };
    nervure_api::serve(&settings)?;
    Ok(ExitCode::SUCCESS)
}
