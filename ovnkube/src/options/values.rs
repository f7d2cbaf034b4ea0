//! Parsers for the values of options. An error ends the sentence that begins with the option's
//! name.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use contract::{
    mtu::Mtu,
    names::check_node_name,
    node_identity::{LONGEST_SECONDS, SHORTEST_SECONDS},
};
use ovsdb::{Endpoint, Endpoints as Databases};
use ovslog::Level;
use server::cni_conf::ConfFile;

use super::kind::{number, shown, span};

/// The name of a Node object.
pub(super) fn node_name(text: &str) -> Result<String, String> {
    if check_node_name(text).is_ok() {
        return Ok(text.to_owned());
    }
    let text = shown(text);
    Err(format!(
        "{text:?} is no node's name: lower-case letters, digits, '-' and '.', each part between dots begins and \
         ends with a letter or digit (is it the value of another option?)"
    ))
}

/// A namespace of Kubernetes (DNS-1123 label).
pub(super) fn namespace(text: &str) -> Result<String, String> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=63).contains(&text.len())
        && text.bytes().all(good)
        && !text.starts_with('-')
        && !text.ends_with('-')
    {
        return Ok(text.to_owned());
    }
    Err(format!("{:?} is no namespace: lower-case letters, digits and '-'", shown(text)))
}

pub(super) fn mtu(text: &str) -> Result<Mtu, String> {
    let bytes = number(text, 0, u64::MAX)?;
    Mtu::try_from(bytes).map_err(|error| error.to_string())
}

/// An MTU, or 0 for none.
pub(super) fn mtu_or_none(text: &str) -> Result<Option<Mtu>, String> {
    if number(text, 0, u64::MAX)? == 0 { Ok(None) } else { mtu(text).map(Some) }
}

/// A name, or a number of the first Go programs: 1 fatal, 2 error, 3 warn, 4 info, 5 debug. 0 and
/// numbers above 5 are klog's.
pub(super) fn level(text: &str) -> Result<Level, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        // There is no level above error: this program logs a fatal error as one.
        "fatal" | "1" | "2" => return Ok(Level::Error),
        "3" => return Ok(Level::Warn),
        _ => {}
    }
    text.parse().map_err(|error: ovslog::BadLevel| error.to_string())
}

pub(super) fn conf_file(text: &str) -> Result<ConfFile, String> {
    text.parse().map_err(|error: server::cni_conf::BadConfFile| error.to_string())
}

pub(super) fn file_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('/') || matches!(text, "." | "..") {
        return Err(format!("{:?}: give a file name; runtimes know the directory", shown(text)));
    }
    Ok(text.to_owned())
}

pub(super) fn whole_path(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if path.is_absolute() {
        Ok(path.to_owned())
    } else {
        Err(format!("{:?}: give the whole path, from / on", shown(text)))
    }
}

/// The local database server of Open vSwitch. The plugin reads it too, and has no TLS.
pub(super) fn endpoint(text: &str) -> Result<Endpoint, String> {
    match text.parse().map_err(|error: ovsdb::EndpointError| error.to_string())? {
        Endpoint::Ssl { .. } => Err(format!(
            "{:?}: the CNI plugin has no TLS; give unix:PATH or tcp:HOST:PORT of this node's own database",
            shown(text)
        )),
        endpoint @ (Endpoint::Unix(_) | Endpoint::Tcp { .. }) => Ok(endpoint),
    }
}

/// The members of one database, all with the same method: `tcp:IP:PORT`, `ssl:IP:PORT` (also with
/// `//`), `unix:PATH`.
pub(super) fn databases(text: &str) -> Result<Databases, String> {
    let databases: Databases =
        text.parse().map_err(|error: ovsdb::EndpointError| error.to_string())?;
    let method = |endpoint: &Endpoint| match endpoint {
        Endpoint::Unix(_) => "unix",
        Endpoint::Tcp { .. } => "tcp",
        Endpoint::Ssl { .. } => "ssl",
    };
    let first = databases.iter().next().map(method);
    let other = databases.iter().map(method).find(|method| Some(*method) != first);
    match other {
        None => Ok(databases),
        Some(other) => Err(format!(
            "{text:?} mixes {} and {other}: the members of a database are reached in one way",
            first.unwrap_or_default()
        )),
    }
}

pub(super) fn is_tls(databases: &Databases) -> bool {
    databases.iter().any(|endpoint| matches!(endpoint, Endpoint::Ssl { .. }))
}

/// `ADDRESS:PORT`, `[ADDRESS]:PORT`, `:PORT` for every address of the machine, or `localhost:PORT`.
pub(crate) fn bind_address(text: &str) -> Result<SocketAddr, String> {
    let bad = || {
        format!(
            "{:?} is no address and port, such as 0.0.0.0:9410, [::1]:9410 or :9410",
            shown(text)
        )
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
    let port: u16 = port.parse().map_err(|_| bad())?;
    let address = match host {
        // Also IPv4: `endpoints::listener` binds it for both.
        "" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(host) => IpAddr::V6(host.parse().map_err(|_| bad())?),
            None => IpAddr::V4(host.parse().map_err(|_| bad())?),
        },
    };
    Ok(SocketAddr::new(address, port))
}

/// The API server's URL. `HOST:PORT` alone means `http`, as in `external_ids` of the Python
/// programs.
pub(super) fn server_url(text: &str) -> Result<String, String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let host = rest.split('/').next().unwrap_or_default();
    let bad = match scheme {
        "http" | "https" if host.is_empty() => "names no host",
        "http" | "https" if host.contains('@') => {
            "has a user's name or password in it: give a token or a certificate instead"
        }
        "http" | "https" if text.contains(char::is_whitespace) => "has a space in it",
        "http" | "https" => {
            return Ok(format!("{scheme}://{rest}").trim_end_matches('/').to_owned());
        }
        _ => "is not of the form https://HOST:PORT",
    };
    // The part before the @ may be a password: do not repeat the address in an error.
    let shown = if host.contains('@') {
        "the API server's address".to_owned()
    } else {
        format!("{:?}", shown(text))
    };
    Err(format!("{shown} {bad}"))
}

/// One or more encapsulations, as ovn-controller takes them. It also knows `stt`, for which Linux
/// has no device: no packet would leave the node.
pub(super) fn encap_type(text: &str) -> Result<String, String> {
    let unknown = text.split(',').map(str::trim).find(|name| !["geneve", "vxlan"].contains(name));
    unknown.map_or_else(
        || Ok(text.to_owned()),
        |name| Err(format!("{:?} is none of geneve, vxlan", shown(name))),
    )
}

/// IP addresses, separated by commas: a node with several networks has several.
pub(super) fn addresses(text: &str) -> Result<String, String> {
    let wrong = text.split(',').map(str::trim).find(|address| address.parse::<IpAddr>().is_err());
    wrong.map_or_else(
        || Ok(text.to_owned()),
        |address| Err(format!("{:?} is no IP address", shown(address))),
    )
}

/// How long a client certificate is requested to be valid: no less than the API server takes, and
/// no more than is approved.
pub(super) fn certificate_duration(text: &str) -> Result<Duration, String> {
    let duration = span(text)?;
    if (SHORTEST_SECONDS..=LONGEST_SECONDS).contains(&duration.as_secs()) {
        Ok(duration)
    } else {
        Err(format!("{:?} is not from 10m to 8760h", shown(text)))
    }
}

pub(super) fn node_mode(text: &str) -> Result<(), String> {
    match text {
        "full" => Ok(()),
        "dpu" | "dpu-host" => {
            Err(format!("{text:?}: DPUs are not part of this version; only full is"))
        }
        _ => Err(format!("{:?} is none of full, dpu, dpu-host", shown(text))),
    }
}
