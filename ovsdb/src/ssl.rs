//! Connections by `ssl:` (TLS 1.2 and 1.3): which files secure them, and what can be wrong.
//!
//! Knows certificates and keys; nothing of what is said over the connection. Only the settings and the errors are there without
//! the feature `ssl`.
//!
//! | part | what it does |
//! |---|---|
//! | `material` | reads the files |
//! | `certificate` | what a certificate says of itself |
//! | `verify` | whether the server is believed |
//! | `handshake` | makes the connection |
//! | `bootstrap` | writes the file of authorities that is missing |

mod error;

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

use std::path::PathBuf;

pub use error::{SslError, SslFile};
#[cfg(feature = "ssl")]
pub(crate) use handshake::connect;

/// What this side shows to a server, and which servers it believes. All files are PEM.
///
/// They are read at each attempt to connect, so that new ones count from the next connection on. A connection that stands is
/// left alone, as Open vSwitch leaves it: it was made with what was right at the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ssl {
    /// Without it, only servers that ask for no certificate let this side in; by default ovsdb-server asks.
    pub identity: Option<Identity>,
    /// The file of authorities, one or several: a server is believed if one of them has signed its certificate, or if its
    /// certificate is itself in the file.
    pub authority: PathBuf,
    /// What to do where that file does not exist.
    pub missing_authority: MissingAuthority,
    /// The name that the server's certificate has to be for: one of its alternative names, or else exactly its common name, which
    /// is where ovs-pki(8) writes the name. Without it any certificate of the authorities will do, as for the programs of Open vSwitch.
    pub common_name: Option<String>,
}

/// Whom this side says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The file of the key: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub private_key: PathBuf,
    /// The file of the certificate, followed by those between it and the authority, if there are any.
    pub certificate: PathBuf,
}

/// What to do without a file of authorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingAuthority {
    /// There is no connection.
    #[default]
    Refuse,
    /// The first server that answers is believed, once, and its authority written to the file, as with `--bootstrap-ca-cert` of
    /// the programs of Open vSwitch. Whoever answers in the server's place at that moment is believed ever after.
    Bootstrap,
}
