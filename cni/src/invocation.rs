//! The runtime's request: the `CNI_*` variables, checked before anything is changed.
//!
//! Where the specification leaves room, the plugin does what the Go library's `skel` does: which
//! variables a verb needs, which names are valid, and that a call without `CNI_COMMAND` describes
//! the plugin and succeeds.

use std::{collections::BTreeMap, path::PathBuf, str::FromStr};

use cni_plugin::Command;
use contract::{
    cni_args::{PodArgs, PodArgsError},
    names::{BadName, IfName, SandboxId},
    net_conf::NetConf,
    spec_version::SpecVersion,
};

/// The `CNI_*` variables of a call.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

/// The runtime's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// No verb: a person has started the plugin by hand.
    About,
    Version,
    Add(Subject),
    Del(Subject),
    Check(Subject),
    Gc,
    Status,
}

/// The interface that a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub sandbox: SandboxId,
    pub if_name: IfName,
    /// Path of the pod's network namespace. DEL may lack it.
    pub netns: Option<PathBuf>,
    /// `None` if `CNI_ARGS` does not name a pod, which DEL does not need.
    pub pod: Option<PodArgs>,
}

/// Why a call is invalid.
#[derive(Debug, thiserror::Error)]
pub enum BadCall {
    #[error("required env variables [{}] missing", .0.join(","))]
    Missing(Vec<&'static str>),
    #[error("unknown CNI_COMMAND: {0}")]
    UnknownVerb(String),
    #[error(transparent)]
    Name(#[from] BadName),
    #[error(transparent)]
    Args(#[from] PodArgsError),
    #[error("config version {version} does not allow {verb}")]
    VersionForbids { version: SpecVersion, verb: &'static str },
}

/// A verb: those that `cni-plugin` knows, and those that came after it.
#[derive(Clone, Copy)]
enum Verb {
    Base(Command),
    Gc,
    Status,
}

impl Environment {
    /// The variables of this process. Other variables of the runtime's environment are not kept,
    /// and never reach the server.
    pub fn of_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("CNI_"))
            .collect()
    }

    /// The value of a variable; `None` if it is missing or empty.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// All `CNI_*` variables, as they go to the server.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

impl Call {
    /// Reads the verb and everything that it needs.
    ///
    /// # Errors
    /// An unknown verb, a missing variable, or a container id, interface name or `CNI_ARGS` that is
    /// not valid.
    pub fn parse(environment: &Environment) -> Result<Self, BadCall> {
        let Some(command) = environment.value("CNI_COMMAND") else {
            return Ok(Self::About);
        };
        let verb: Verb = command.parse()?;
        // All missing variables in one message, as `skel` reports them.
        let missing: Vec<_> = verb
            .required()
            .iter()
            .copied()
            .filter(|name| environment.value(name).is_none())
            .collect();
        if !missing.is_empty() {
            return Err(BadCall::Missing(missing));
        }
        let pod = || environment.value("CNI_ARGS").map(PodArgs::parse).transpose();
        Ok(match verb {
            Verb::Base(Command::Version) => Self::Version,
            Verb::Base(Command::Add) => Self::Add(Subject::parse(environment, pod()?)?),
            Verb::Base(Command::Check) => Self::Check(Subject::parse(environment, pod()?)?),
            // DEL finds everything by the sandbox's id: malformed `CNI_ARGS` must not leave
            // anything behind.
            Verb::Base(Command::Del) => {
                Self::Del(Subject::parse(environment, pod().unwrap_or_default())?)
            }
            Verb::Gc => Self::Gc,
            Verb::Status => Self::Status,
        })
    }

    /// The verb's name; empty for a call without one.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::About => "",
            Self::Version => "VERSION",
            Self::Add(_) => "ADD",
            Self::Del(_) => "DEL",
            Self::Check(_) => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
        }
    }

    /// The interface that the call is about, if it is about one.
    pub fn subject(&self) -> Option<&Subject> {
        match self {
            Self::Add(subject) | Self::Del(subject) | Self::Check(subject) => Some(subject),
            Self::About | Self::Version | Self::Gc | Self::Status => None,
        }
    }

    /// Checks that a configuration of this version may use this verb (SPEC.md, the versions that
    /// introduced CHECK, GC and STATUS).
    ///
    /// # Errors
    /// [`BadCall::VersionForbids`] if it may not.
    pub fn allowed_by(&self, conf: &NetConf) -> Result<(), BadCall> {
        let since = match self {
            Self::About | Self::Version | Self::Add(_) | Self::Del(_) => SpecVersion::V0_1_0,
            Self::Check(_) => SpecVersion::V0_4_0,
            Self::Gc | Self::Status => SpecVersion::V1_1_0,
        };
        if conf.version < since {
            Err(BadCall::VersionForbids { version: conf.version, verb: self.verb() })
        } else {
            Ok(())
        }
    }
}

impl FromStr for Verb {
    type Err = BadCall;

    fn from_str(command: &str) -> Result<Self, BadCall> {
        match command {
            "GC" => Ok(Self::Gc),
            "STATUS" => Ok(Self::Status),
            base => base
                .parse()
                .map(Self::Base)
                // Cut, because the value may be anything.
                .map_err(|_| BadCall::UnknownVerb(base.chars().take(64).collect())),
        }
    }
}

impl Verb {
    /// The variables that the verb requires.
    fn required(self) -> &'static [&'static str] {
        match self {
            Self::Base(Command::Add | Command::Check) => {
                &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"]
            }
            Self::Base(Command::Del) => &["CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"],
            Self::Gc | Self::Status => &["CNI_PATH"],
            Self::Base(Command::Version) => &[],
        }
    }
}

impl Subject {
    fn parse(environment: &Environment, pod: Option<PodArgs>) -> Result<Self, BadCall> {
        let text = |name| environment.value(name).unwrap_or_default();
        Ok(Self {
            sandbox: text("CNI_CONTAINERID").parse()?,
            if_name: text("CNI_IFNAME").parse()?,
            netns: environment.value("CNI_NETNS").map(PathBuf::from),
            pod,
        })
    }
}

#[cfg(test)]
mod tests;
