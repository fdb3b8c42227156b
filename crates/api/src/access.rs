//! Which requests are answered.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    net::IpAddr,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use nervure_coordinator::digest;

use crate::Error;

/// Bytes of randomness of a token.
const TOKEN_BYTES: usize = 32;

/// The accepted host names of this server, and its token.
#[derive(Debug)]
pub struct Access {
    hosts: Vec<String>,
    /// The digest of the token. Digests are compared, so that the time of a comparison reveals nothing
    /// about the token.
    token: String,
    /// Whether the metrics are for all programs of this machine.
    are_metrics_open: bool,
}

impl Access {
    /// Requests for IP addresses, `localhost` and these names, with the token of this digest. On the
    /// loopback the metrics need none: Prometheus may run as another user.
    pub fn new(token: String, is_loopback: bool, hosts: &[String]) -> Self {
        Self {
            hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            token,
            are_metrics_open: is_loopback,
        }
    }

    /// Whether the `Host` of a request is this server. A web page whose own name resolves to this
    /// machine (DNS rebinding) sends that name, which is no IP address.
    pub fn is_own_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map(|(name, _)| name),
            None => host.split(':').next(),
        };
        let Some(name) = name.map(str::to_ascii_lowercase) else {
            return false;
        };
        name == "localhost" || name.parse::<IpAddr>().is_ok() || self.hosts.contains(&name)
    }

    /// Whether requests for a path need the token.
    pub fn needs_token(&self, path: &str) -> bool {
        !self.are_metrics_open || path != "/metrics"
    }

    /// Whether the `Authorization` of a request has the token.
    pub fn has_token(&self, authorization: Option<&str>) -> bool {
        let token = authorization.and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token)
        });
        token.is_some_and(|token| digest(token.trim().as_bytes()) == self.token)
    }
}

/// The digest of the token in this file, which is made with a new one if it does not exist.
pub fn load_or_make_token(path: &Path) -> Result<String, Error> {
    let failed = |source: io::Error| Error::Token {
        path: path.to_owned(),
        source,
    };
    let file = match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
    {
        Ok(mut file) => {
            let mut random = [0; TOKEN_BYTES];
            getrandom::fill(&mut random).map_err(Error::Random)?;
            // The digest of random bytes is as random, and is text.
            writeln!(file, "{}", digest(&random)).map_err(failed)?;
            file.sync_all().map_err(failed)?;
            File::open(path).map_err(failed)?
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            File::open(path).map_err(failed)?
        }
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(Error::TokenMode {
            path: path.to_owned(),
            mode: metadata.mode() & 0o777,
        });
    }
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).map_err(failed)?;
    let token = text.trim();
    if token.len() < TOKEN_BYTES {
        return Err(Error::NoToken {
            path: path.to_owned(),
            least: TOKEN_BYTES,
        });
    }
    Ok(digest(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_another_host_is_not_answered() {
        let access = Access::new(String::new(), true, &["Robot.lan".to_owned()]);
        for host in [
            "127.0.0.1:7710",
            "localhost",
            "LOCALHOST:1",
            "[::1]:7710",
            "[::1]",
            "192.168.1.4",
            "robot.lan:7710",
        ] {
            assert!(access.is_own_host(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:7710",
            "127.0.0.1.evil.example",
            "[evil.example]:80",
            "[::1",
            "localhost.evil.example",
        ] {
            assert!(!access.is_own_host(host), "{host}");
        }
    }

    #[test]
    fn a_request_needs_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("api-token");
        let of_file = load_or_make_token(&file).unwrap();
        assert_eq!(of_file, load_or_make_token(&file).unwrap());
        let open = Access::new(of_file.clone(), true, &[]);
        let closed = Access::new(of_file, false, &[]);
        assert!(!open.needs_token("/metrics") && closed.needs_token("/metrics"));
        assert!(open.needs_token("/v1/dataflows") && closed.needs_token("/v1/dataflows"));
        for access in [open, closed] {
            check_token(&access, &file);
        }
    }

    fn check_token(access: &Access, file: &Path) {
        let token = std::fs::read_to_string(file).unwrap();
        let token = token.trim();
        assert!(access.has_token(Some(&format!("Bearer {token}"))));
        assert!(access.has_token(Some(&format!("bearer {token}"))));
        for wrong in [
            None,
            Some(""),
            Some(token),
            Some("Bearer "),
            Some(&format!("Bearer {}", &token[1..])),
            Some(&format!("Basic {token}")),
        ] {
            assert!(!access.has_token(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_token_that_others_can_read_or_that_is_short_is_refused() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("api-token");
        load_or_make_token(&file).unwrap();
        let chmod = |mode| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        chmod(0o644);
        let error = load_or_make_token(&file).unwrap_err().to_string();
        assert!(error.contains("its mode is 644"), "{error}");
        chmod(0o600);
        std::fs::write(&file, "short\n").unwrap();
        let error = load_or_make_token(&file).unwrap_err().to_string();
        assert!(error.contains("holds no token"), "{error}");
    }
}
