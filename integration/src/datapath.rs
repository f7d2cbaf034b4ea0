//! Which of Open vSwitch's datapaths the lab's switches use: the userspace one, which every kernel
//! runs, or the kernel's own, where there is the module (`make test-kernel`).

use std::env;

/// Environment variable: the datapath type, as `Bridge.datapath_type` has it. `netdev` where unset.
const VARIABLE: &str = "LAB_DATAPATH";

/// A datapath of Open vSwitch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datapath {
    /// In ovs-vswitchd's own process.
    Netdev,
    /// The kernel's module `openvswitch`, shared by the switches of all namespaces.
    System,
}

impl Datapath {
    /// The lab's datapath.
    ///
    /// # Panics
    /// If the environment names one that there is not: a test must not run on another datapath than
    /// asked for.
    pub fn of_lab() -> Self {
        match env::var(VARIABLE).as_deref() {
            Err(env::VarError::NotPresent) | Ok("" | "netdev") => Self::Netdev,
            Ok("system") => Self::System,
            other => panic!("{VARIABLE} is {other:?}, neither netdev nor system"),
        }
    }

    /// Its name in `Bridge.datapath_type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Netdev => "netdev",
            Self::System => "system",
        }
    }

    /// The column with its value, for `ovs-vsctl set Bridge`.
    pub fn column(self) -> String {
        format!("datapath_type={}", self.name())
    }

    /// Options of ovs-vswitchd: without the module it would complain at each start.
    pub(crate) fn switch_options(self) -> &'static [&'static str] {
        match self {
            Self::Netdev => &["--disable-system"],
            Self::System => &[],
        }
    }

    /// Whether checksums are left to the NIC. Packets through the userspace datapath meet none.
    pub fn leaves_checksums(self) -> bool {
        self == Self::System
    }
}
