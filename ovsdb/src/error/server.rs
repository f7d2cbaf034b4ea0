//! The error that a server returns instead of a result (RFC 7047 §3.1, `<error>`).

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

/// An error as a server reported it: its kind, and an explanation for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OvsdbError {
    /// The error string of the protocol.
    pub kind: ErrorKind,
    /// The explanation. Not meant to be parsed; may be empty.
    pub details: String,
    /// The part of the request that the server could not parse, as JSON.
    pub syntax: Option<String>,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $text:literal,)*) => {
        /// The error strings of RFC 7047 §3.1, §4.1.3 and §5.2, of ovsdb-server(7) §3.1, and of the
        /// server's source.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum ErrorKind {
            $($(#[$doc])* $kind,)*
            /// An error string that this crate does not know.
            Other(String),
        }

        impl ErrorKind {
            /// The error string, as the server spells it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$kind => $text,)*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for ErrorKind {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$kind,)*
                    _ => Self::Other(text.to_owned()),
                }
            }
        }
    };
}

kinds! {
    /// A strong reference to a missing row, or the deletion of a row that has strong references.
    ReferentialIntegrityViolation = "referential integrity violation",
    /// A value that the schema forbids, such as a second row with the same name.
    ConstraintViolation = "constraint violation",
    ResourcesExhausted = "resources exhausted",
    IoError = "I/O error",
    DuplicateUuidName = "duplicate uuid-name",
    DuplicateUuid = "duplicate uuid",
    /// The condition of a `wait` did not become true in time.
    TimedOut = "timed out",
    /// The transaction has an `abort` operation.
    Aborted = "aborted",
    DomainError = "domain error",
    RangeError = "range error",
    UnknownDatabase = "unknown database",
    UnknownTable = "unknown table",
    UnknownColumn = "unknown column",
    UnknownFunction = "unknown function",
    UnknownMutator = "unknown mutator",
    UnknownMethod = "unknown method",
    UnknownMonitor = "unknown monitor",
    SyntaxError = "syntax error",
    SyntaxErrorOrUnknownColumn = "syntax error or unknown column",
    /// An `assert` of a lock that this connection does not hold.
    NotOwner = "not owner",
    NotSupported = "not supported",
    /// For example a write to a server that is a read-only backup.
    NotAllowed = "not allowed",
    /// This member of a cluster cannot serve the request at the moment.
    NotLeader = "not leader",
    PermissionError = "permission error",
    Canceled = "canceled",
    ClusterError = "cluster error",
    InconsistentData = "inconsistent data",
    InternalError = "internal error",
    /// A map or set with a duplicate key.
    OvsdbServerError = "ovsdb error",
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for OvsdbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        if !self.details.is_empty() {
            write!(f, ": {}", self.details)?;
        }
        match &self.syntax {
            Some(syntax) => write!(f, " (in {syntax})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for OvsdbError {}

impl<'de> Deserialize<'de> for OvsdbError {
    /// Takes an object or a bare string. JSON-RPC leaves the form open; "unknown method" is a bare
    /// string.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ErrorVisitor;

        impl<'de> Visitor<'de> for ErrorVisitor {
            type Value = OvsdbError;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an OVSDB error")
            }

            fn visit_str<E>(self, text: &str) -> Result<OvsdbError, E> {
                Ok(OvsdbError { kind: text.into(), details: String::new(), syntax: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OvsdbError, A::Error> {
                let object =
                    WireError::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                let WireError { error, details, io_error, syntax } = object;
                let details = explanation(details, io_error);
                Ok(OvsdbError { kind: error.as_str().into(), details, syntax })
            }
        }

        deserializer.deserialize_any(ErrorVisitor)
    }
}

#[derive(Deserialize)]
struct WireError {
    error: String,
    details: Option<String>,
    #[serde(rename = "io-error")]
    io_error: Option<String>,
    syntax: Option<String>,
}

/// The details, with the operating system's reason of an `I/O error`: `No space left on device`.
pub(crate) fn explanation(details: Option<String>, io_error: Option<String>) -> String {
    match (details, io_error) {
        (Some(details), Some(reason)) => format!("{details} ({reason})"),
        (details, reason) => details.or(reason).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
