//! What the loop tells others.

use std::sync::Arc;

use contract::names::PodKey;

use crate::{
    doubt::Doubted,
    key::{Key, NodeName},
    trouble::{NodeTrouble, PodTrouble, SharedAddress, Trouble},
};

/// Something that a person may want to know about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The store cannot give the pod what it needs.
    Trouble(Trouble<PodKey, PodTrouble>),
    /// A port that is not ours has the pod's address, too. The pod keeps it.
    Shared(Trouble<PodKey, SharedAddress>),
    /// What the node says of itself cannot be used; what it said before goes on to count.
    NodeTrouble(Trouble<NodeName, NodeTrouble>),
    /// What the API server lists is not believed; none: it is again. It is to be asked again after some time, first for its identity.
    Doubt(Option<Doubted>),
    /// The database refused the rows of this object; they are tried again, for ever. Once for each distinct error.
    Refused { key: Key, uid: Option<Arc<str>>, error: String },
    /// It did no longer.
    Recovered { key: Key },
    /// Somebody changes a row of this object again and again; it is repaired more and more slowly.
    Contested { key: Key, uid: Option<Arc<str>>, row: String },
}

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Another process may lead now.
    LeadershipLost,
    /// Another process has taken the lock on the database, and leads.
    LockTaken,
    /// Whoever observed has stopped.
    ObservationsEnded,
}

/// How far the loop is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// The database was read and is followed.
    pub loaded: bool,
    /// It was found that the API server is of the cluster which the database was written for, or that one of both does not say.
    pub own_cluster: bool,
    /// Why nothing is written, whatever there is to write.
    pub blocked: Option<Arc<str>>,
    /// Everything was read, and the database shows what it should, except for the rows of `waiting` and `failing` objects.
    pub converged: bool,
    /// It was so once since the start.
    pub ever_converged: bool,
    /// Objects whose rows have to be compared.
    pub dirty: usize,
    /// Objects whose rows refer to rows that are not there yet.
    pub waiting: usize,
    /// Objects whose rows were refused, waiting to be tried again.
    pub failing: usize,
}
