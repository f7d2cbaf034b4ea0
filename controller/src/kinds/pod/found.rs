//! The ports of pods as they were found in the database at the start, and addresses that leave
//! them.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use contract::{mac::Mac, names::PodKey};

/// Addresses that pods no longer use, by pod. They are not free before the pod's key is settled.
pub(crate) type Leaving = HashMap<PodKey, Vec<IpAddr>>;

/// Ports that were found at the start, of pods without a network yet.
pub(crate) type Found = HashMap<PodKey, FoundPort>;

/// A pod's port in the northbound database, as it was found at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPort {
    /// UID of the pod that it was made for (`iface-id-ver`). The port of a static pod may have
    /// none.
    pub uid: Option<Arc<str>>,
    pub mac: Option<Mac>,
    pub addresses: Vec<IpAddr>,
}
