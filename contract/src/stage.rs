//! The steps of one ADD, in the order in which they end.
//!
//! Error messages, log lines, metrics and failpoints all use these names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A step of an ADD. Steps that do not depend on each other overlap in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Open the kernel's sockets, on the host and inside the pod's network namespace.
    Netns,
    /// Connect to OVSDB and read its schema.
    Ovsdb,
    /// Ask the server, which waits for the pod's annotation.
    Annotation,
    /// Create the veth with its peer in the pod's namespace.
    Veth,
    /// Commit the port on `br-int`.
    Port,
    /// Configure addresses, routes and sysctls inside the pod.
    Pod,
    /// Wait until ovs-vswitchd has assigned the port's OpenFlow number.
    Ofport,
    /// Wait until ovn-controller has installed the port's flows.
    OvnInstalled,
    /// Hand the result to the runtime.
    Result,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 9] = [
        Self::Netns,
        Self::Ovsdb,
        Self::Annotation,
        Self::Veth,
        Self::Port,
        Self::Pod,
        Self::Ofport,
        Self::OvnInstalled,
        Self::Result,
    ];

    /// The name used in messages, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Netns => "netns",
            Self::Ovsdb => "ovsdb",
            Self::Annotation => "annotation",
            Self::Veth => "veth",
            Self::Port => "port",
            Self::Pod => "pod",
            Self::Ofport => "ofport",
            Self::OvnInstalled => "ovn_installed",
            Self::Result => "result",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How long a stage took, and when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    pub stage: Stage,
    /// Milliseconds from the start of the request to the start of the stage.
    pub start: f64,
    /// Milliseconds from the start of the request to the end of the stage.
    pub end: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_has_one_name_everywhere() {
        for stage in Stage::ALL {
            assert_eq!(serde_json::to_string(&stage).unwrap(), format!("{:?}", stage.name()));
        }
    }
}
