//! How packets leave a cluster with a world around it, and how they come in.
//!
//! Must not know: what a gateway consists of.

use std::fmt;

use clap::ValueEnum;

/// The gateways of all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GatewayMode {
    /// None: pods leave over their host's own routes.
    None,
    /// Through the host's own stack.
    Local,
    /// Through OVN and the bridge of the node's NIC.
    Shared,
}

impl GatewayMode {
    /// Whether nodes have gateway routers.
    pub(super) fn has_router(self) -> bool {
        self.option().is_some()
    }

    /// The option of the server on a node.
    pub(super) fn option(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Local => Some("--gateway-mode=local"),
            Self::Shared => Some("--gateway-mode=shared"),
        }
    }
}

impl fmt::Display for GatewayMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "none",
            Self::Local => "local",
            Self::Shared => "shared",
        })
    }
}
