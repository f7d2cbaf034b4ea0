//! What a watch of the API server saw. Knows nothing of who asks, nor of what follows from it.

use contract::names::PodKey;

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

/// What was seen of one kind of object.
#[derive(Debug, Clone)]
pub enum Seen<K, V> {
    /// These are all there are: a first list, or one after a watch was lost. What is not in it is gone.
    All(Vec<V>),
    /// One object is as given.
    Applied(V),
    /// One object is gone.
    Deleted(K),
}
