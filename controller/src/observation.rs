//! What a watch of the API server saw. Knows nothing of who asks, nor of what follows from it.

use contract::names::PodKey;
pub use kubeapi::watch::Seen;

use crate::{
    cluster_id::ClusterId,
    key::NodeName,
    store::{Node, Pod},
};

/// Something seen in the API server.
#[derive(Debug, Clone)]
pub enum Observation {
    Nodes(Seen<NodeName, Node>),
    Pods(Seen<PodKey, (PodKey, Pod)>),
    /// The API server is this cluster's; asked before the first lists, and after some time while a list is doubted.
    Cluster(ClusterId),
}
