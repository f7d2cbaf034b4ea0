//! The address of a database server: the connection methods of ovsdb(7).
//!
//! Only parses and prints; `stream` connects.

use std::{fmt, path::PathBuf, str::FromStr};

/// The port registered for OVSDB, the default (ovsdb(7), "Connection Methods").
const DEFAULT_PORT: u16 = 6640;

/// The address of one server: `unix:<file>`, `tcp:<host>:<port>` or `ssl:<host>:<port>`.
///
/// An IPv6 address is written in brackets: `tcp:[::1]:6641`. The URL-like spelling
/// `tcp://host:port`, which some configuration files use, means the same. The default port is 6640.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    Unix(PathBuf),
    Tcp { host: String, port: u16 },
    Ssl { host: String, port: u16 },
}

/// The servers of one database, separated by commas. Each of them serves it. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints(Vec<Endpoint>);

/// Why a text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("endpoint {0:?} does not begin with \"unix:\", \"tcp:\" or \"ssl:\"")]
    Method(String),
    #[error("endpoint {0:?} names no file")]
    NoPath(String),
    #[error("endpoint {0:?} names no host")]
    NoHost(String),
    #[error("port {port:?} of endpoint {endpoint:?} is not a number from 1 to 65535")]
    Port { endpoint: String, port: String },
    #[error("no endpoint given")]
    Empty,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let unknown = || EndpointError::Method(text.to_owned());
        let (method, place) = text.split_once(':').ok_or_else(unknown)?;
        match method {
            "unix" => match place.strip_prefix("//").unwrap_or(place) {
                "" => Err(EndpointError::NoPath(text.to_owned())),
                // Several slashes mean the same as one. Kept, two in front would be read as the
                // URL-like spelling when the endpoint is printed and parsed again.
                path if path.starts_with("//") => {
                    Ok(Self::Unix(format!("/{}", path.trim_start_matches('/')).into()))
                }
                path => Ok(Self::Unix(path.into())),
            },
            "tcp" => host_and_port(text, place).map(|(host, port)| Self::Tcp { host, port }),
            "ssl" => host_and_port(text, place).map(|(host, port)| Self::Ssl { host, port }),
            _ => Err(unknown()),
        }
    }
}

fn host_and_port(endpoint: &str, place: &str) -> Result<(String, u16), EndpointError> {
    let place = place.strip_prefix("//").unwrap_or(place);
    let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').unwrap_or(port))),
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    // Slashes and brackets are left over from a malformed URL or IPv6 address. Printed and parsed
    // again, they would be another endpoint.
    if host.is_empty()
        || host.contains(|c: char| "/[]".contains(c) || c.is_whitespace() || c.is_control())
    {
        return Err(EndpointError::NoHost(endpoint.to_owned()));
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => match port.parse() {
            // `u16::from_str` accepts a plus sign.
            Ok(number) if number > 0 && !port.starts_with('+') => number,
            _ => {
                return Err(EndpointError::Port {
                    endpoint: endpoint.to_owned(),
                    port: port.to_owned(),
                });
            }
        },
    };
    Ok((host.to_owned(), port))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (method, host, port) = match self {
            Self::Unix(path) => return write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } => ("tcp", host, port),
            Self::Ssl { host, port } => ("ssl", host, port),
        };
        if host.contains(':') {
            write!(f, "{method}:[{host}]:{port}")
        } else {
            write!(f, "{method}:{host}:{port}")
        }
    }
}

impl Endpoints {
    /// The endpoints in the given order, in which they are tried.
    pub fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.0.iter()
    }
}

impl From<Endpoint> for Endpoints {
    fn from(endpoint: Endpoint) -> Self {
        Self(vec![endpoint])
    }
}

impl TryFrom<Vec<Endpoint>> for Endpoints {
    type Error = EndpointError;

    fn try_from(endpoints: Vec<Endpoint>) -> Result<Self, EndpointError> {
        if endpoints.is_empty() { Err(EndpointError::Empty) } else { Ok(Self(endpoints)) }
    }
}

impl FromStr for Endpoints {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(str::parse).collect::<Result<Vec<Endpoint>, _>>()?.try_into()
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, endpoint) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            endpoint.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
