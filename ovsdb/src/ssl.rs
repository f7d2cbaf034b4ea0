//! `ssl:` connections (TLS 1.2 and 1.3): the files that secure them, and their errors.
//!
//! Knows certificates and keys, but not the protocol over the connection. Without the feature
//! `ssl`, only the settings and the errors exist.
//!
//! | part | what it does |
//! |---|---|
//! | `material` | reads the files |
//! | `certificate` | reads a certificate's names and validity |
//! | `verify` | verifies the server's certificate |
//! | `handshake` | makes the connection |
//! | `bootstrap` | writes a missing CA file |

#[cfg(feature = "ssl")]
mod bootstrap;
#[cfg(feature = "ssl")]
mod certificate;
#[cfg(feature = "ssl")]
mod handshake;
#[cfg(feature = "ssl")]
mod material;
#[cfg(feature = "ssl")]
mod verify;

use std::{fmt, path::PathBuf, pin::Pin};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::ConnectFault;

/// The client's key and certificate, and the authorities that it trusts. All files are PEM.
///
/// They are read for each attempt to connect, so that a replaced file takes effect with the next
/// connection. An established connection stays, as in Open vSwitch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ssl {
    /// The client's key and certificate. Without them, only servers that request no client
    /// certificate accept the connection; ovsdb-server requests one by default.
    pub identity: Option<Identity>,
    /// The CA file, with one or several authorities. A server is trusted if one of them signed its
    /// certificate, or if the certificate itself is in the file.
    pub authority: PathBuf,
    /// What to do if that file does not exist.
    pub missing_authority: MissingAuthority,
    /// The name that the server's certificate has to have: among its subject alternative names, or
    /// exactly as its common name, which is where ovs-pki(8) writes it. Without a name, any
    /// certificate that the authorities signed is accepted, as by the programs of Open vSwitch.
    pub common_name: Option<String>,
    connect: Connect,
}

impl Ssl {
    /// Servers with a certificate from this CA file are trusted; everything else is for the fields
    /// to say.
    pub fn new(authority: PathBuf) -> Self {
        Self {
            identity: None,
            authority,
            missing_authority: MissingAuthority::default(),
            common_name: None,
            connect: Connect(connect),
        }
    }

    /// Connects, and verifies the server.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> Result<Halves, ConnectFault> {
        (self.connect.0)(host, port, self).await
    }
}

/// How a connection is secured. A pointer: the linker then leaves TLS, a megabyte, out of a program
/// that makes no [`Ssl`], even if another program of the same build has the feature.
#[derive(Clone, Copy)]
struct Connect(for<'a> fn(&'a str, u16, &'a Ssl) -> Connecting<'a>);

/// An attempt to connect.
type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Halves, ConnectFault>> + Send + 'a>>;

/// The two directions of a connection.
type Halves = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TLS")
    }
}

/// There is one function.
impl PartialEq for Connect {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Connect {}

#[cfg(feature = "ssl")]
fn connect<'a>(host: &'a str, port: u16, ssl: &'a Ssl) -> Connecting<'a> {
    Box::pin(async move {
        let (reader, writer) = tokio::io::split(handshake::connect(host, port, ssl).await?);
        Ok((Box::new(reader) as _, Box::new(writer) as _))
    })
}

#[cfg(not(feature = "ssl"))]
fn connect<'a>(_host: &'a str, _port: u16, _ssl: &'a Ssl) -> Connecting<'a> {
    Box::pin(async { Err(crate::error::SslError::NotBuiltIn.into()) })
}

/// The client's key and certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The file with the private key: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub private_key: PathBuf,
    /// The file with the certificate, followed by intermediate certificates, if any.
    pub certificate: PathBuf,
}

/// What to do without a CA file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingAuthority {
    /// The connection fails.
    #[default]
    Refuse,
    /// The authority of the first server that answers is written to the file and trusted from then
    /// on, as with the option `--bootstrap-ca-cert` of the programs of Open vSwitch. An attacker
    /// that answers in the server's place at that moment is trusted, too.
    Bootstrap,
}
