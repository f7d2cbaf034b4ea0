//! The form of every failure: a CNI error object with a code.

use std::error::Error;

use serde::{Deserialize, Serialize};

/// The code of a CNI error. The specification and its Go library define 1 to 99; 100 and above are
/// this project's.
///
/// `docs/errors.md` has the same table, for administrators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// The CNI version of the configuration is not supported.
    IncompatibleVersion,
    /// The configuration asks for something that is not supported.
    UnsupportedField,
    /// The sandbox or pod does not exist any more; a retry cannot succeed.
    UnknownContainer,
    /// A `CNI_*` variable is missing or malformed.
    InvalidEnvironment,
    /// A file, socket or stream could not be used.
    Io,
    /// Something could not be decoded.
    Decode,
    /// The configuration is invalid.
    InvalidConfig,
    /// The network namespace is missing, is not a network namespace, or is the caller's own.
    InvalidNetns,
    /// Something is not there yet; a later retry may succeed.
    TryAgain,
    /// STATUS: an ADD could not succeed now.
    NotAvailable,
    /// STATUS: an ADD could not succeed now, and running pods may be affected too.
    NotAvailableLimited,
    /// The pod's annotation cannot be used.
    BadAnnotation,
    /// The sandbox already has this interface.
    AlreadyAttached,
    /// The name of the host's interface or of the port is in use for something else.
    NameTaken,
    /// The kernel refused a link, an address or a route.
    Kernel,
    /// Open vSwitch refused the port.
    OpenVSwitch,
    /// CHECK found a difference.
    CheckMismatch,
    /// A newer sandbox of the same pod has taken over the port.
    Superseded,
    /// Some resources of a sandbox could not be removed.
    Leftover,
    /// A defect of this program.
    Internal,
}

/// Number and name of each code.
const CODES: [(Code, u32, &str); 19] = [
    (Code::IncompatibleVersion, 1, "incompatible CNI version"),
    (Code::UnsupportedField, 2, "unsupported field"),
    (Code::UnknownContainer, 3, "unknown container"),
    (Code::InvalidEnvironment, 4, "invalid environment"),
    (Code::Io, 5, "I/O failure"),
    (Code::Decode, 6, "cannot decode"),
    (Code::InvalidConfig, 7, "invalid configuration"),
    (Code::InvalidNetns, 8, "invalid network namespace"),
    (Code::TryAgain, 11, "try again later"),
    (Code::NotAvailable, 50, "not available"),
    (Code::NotAvailableLimited, 51, "not available, running pods affected"),
    (Code::BadAnnotation, 100, "bad annotation"),
    (Code::AlreadyAttached, 101, "already attached"),
    (Code::NameTaken, 102, "name taken"),
    (Code::Kernel, 103, "kernel refused"),
    (Code::OpenVSwitch, 104, "Open vSwitch refused"),
    (Code::CheckMismatch, 105, "check mismatch"),
    (Code::Superseded, 106, "superseded"),
    (Code::Leftover, 107, "leftover"),
];

impl Code {
    /// Every code with its number and its short name, except [`Code::Internal`] (999).
    pub fn table() -> impl Iterator<Item = (Self, u32, &'static str)> {
        CODES.into_iter()
    }

    /// The number in the error object.
    pub fn number(self) -> u32 {
        CODES.iter().find(|(code, ..)| *code == self).map_or(999, |(_, number, _)| *number)
    }

    /// The short name that starts a message.
    pub fn name(self) -> &'static str {
        CODES.iter().find(|(code, ..)| *code == self).map_or("internal error", |(.., name)| name)
    }

    /// What the code means, and what an administrator should do: two cells of a Markdown table.
    pub fn explanation(self) -> (&'static str, &'static str) {
        match self {
            Self::IncompatibleVersion => (
                "the configuration's `cniVersion` is not supported, or too old for the verb",
                "change `/etc/cni/net.d`",
            ),
            Self::UnsupportedField => (
                "the configuration asks for something that is not supported: a device (`deviceID`, SR-IOV), \
                 a primary user-defined network, one network twice in a pod",
                "change the configuration, or the pod's networks",
            ),
            Self::UnknownContainer => (
                "the pod was deleted or replaced, or a DEL overtook the ADD",
                "nothing; the runtime starts a new sandbox if it wants one",
            ),
            Self::InvalidEnvironment => {
                ("a `CNI_*` variable is missing or malformed", "look at the caller")
            }
            Self::Io => ("standard input or output could not be used", "look at the caller"),
            Self::Decode => (
                "the configuration, or the server's answer, is not JSON of the expected shape",
                "look at `/etc/cni/net.d`",
            ),
            Self::InvalidConfig => {
                ("a key has a value that cannot be used", "look at `/etc/cni/net.d`")
            }
            Self::InvalidNetns => ("missing, no namespace, or the host's own", "see `lsns -t net`"),
            Self::TryAgain => (
                "server, database, bridge, annotation or flows are not there yet; \
                 CHECK: what listens on the server's socket hangs, or answers what no server answers",
                "the message names which; the runtime tries again",
            ),
            Self::NotAvailable => (
                "STATUS: this node cannot do its part of an ADD now \
                 ([what counts](decisions/status-in-a-moment.md))",
                "the message names each missing part",
            ),
            Self::NotAvailableLimited => ("STATUS: Open vSwitch itself is missing", "the same"),
            Self::BadAnnotation => (
                "the pod's annotation cannot be used; the value is named",
                "find the program that wrote it",
            ),
            Self::AlreadyAttached => {
                ("the sandbox has this interface, or another call for it is under way", "DEL first")
            }
            Self::NameTaken => (
                "the name of the host's link or of the port is in use for something else",
                "`ip -d link`, `ovs-vsctl find Interface`",
            ),
            Self::Kernel => {
                ("a link, an address or a route", "the message has the kernel's reason")
            }
            Self::OpenVSwitch => (
                "ovs-vswitchd cannot use the device, or the database refused a transaction of ADD or CHECK",
                "`ovs-vsctl show`, ovs-vswitchd's log",
            ),
            Self::CheckMismatch => (
                "CHECK found a difference; the first is named",
                "find the program that changed the pod's network",
            ),
            Self::Superseded => ("a newer sandbox of the pod has the port", "nothing"),
            Self::Leftover => (
                "something could not be removed; also where the database refused the transaction of a DEL \
                 or GC, while one that is out of reach is code 11",
                "DEL again; the message says what is left",
            ),
            Self::Internal => ("a defect of this program", "report it, with the log"),
        }
    }

    /// The code for a number. A number that is not in the table is [`Code::Internal`].
    pub fn from_number(number: u32) -> Self {
        CODES.iter().find(|(_, n, _)| *n == number).map_or(Self::Internal, |(code, ..)| *code)
    }
}

/// A CNI error object (SPEC.md, "Error"), as it is sent over the server's socket and to the
/// runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniError {
    #[serde(rename = "cniVersion", default, skip_serializing_if = "String::is_empty")]
    pub cni_version: String,
    /// [`Code::number`].
    pub code: u32,
    /// What failed, for which pod, at which stage, after how long.
    pub msg: String,
    /// What to look at next.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl CniError {
    /// An error without a version; the plugin fills in the caller's.
    pub fn new(code: Code, msg: impl Into<String>, details: impl Into<String>) -> Self {
        Self {
            cni_version: String::new(),
            code: code.number(),
            msg: msg.into(),
            details: details.into(),
        }
    }
}

/// An error with its causes, as one line. A cause that the error above it quotes already is left
/// out: some libraries repeat it in their own text.
pub fn chain(error: &dyn Error) -> String {
    let causes =
        std::iter::successors(error.source(), |cause| (*cause).source()).map(ToString::to_string);
    causes.fold(error.to_string(), |text, cause| {
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Link(&'static str, #[source] Option<Box<Link>>);

    #[test]
    fn a_chain_has_every_cause_once() {
        let inner = Link("no such file", None);
        let quoting = Link("open the socket: no such file", Some(inner.into()));
        assert_eq!(
            chain(&Link("no connection", Some(quoting.into()))),
            "no connection: open the socket: no such file"
        );
    }

    #[test]
    fn codes_and_numbers_are_one_to_one() {
        for (code, number, _) in Code::table() {
            assert_eq!((code.number(), Code::from_number(number)), (number, code));
        }
        assert_eq!((Code::Internal.number(), Code::from_number(12345)), (999, Code::Internal));
    }
}
