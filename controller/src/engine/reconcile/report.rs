//! The outputs of the reconciler: reports, progress, and why it ended.

use std::{collections::BTreeMap, sync::Arc};

use contract::names::{PolicyKey, ServiceKey};
use tokio::time::Instant;

use crate::{
    cluster_id::ClusterId,
    key::Key,
    problem::Problem,
    safety_brake::HeldLists,
    select::names::{DnsName, NameUse},
    tunnels::RemoteChassis,
};

/// Something that a person may want to know about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The store found something wrong with an object. What can be used of it is.
    Problem(Problem),
    /// All names of the DNS to ask for, which are others than before, or have other users.
    Names(BTreeMap<DnsName, NameUse>),
    /// What the southbound database should have of nodes of other zones: other than before.
    RemoteChassis(Arc<RemoteChassis>),
    /// This NetworkPolicy has to be read again: there is room for its rules.
    Reread(PolicyKey),
    /// A connection to an idled Service, which has no pods.
    NeedPods { service: ServiceKey, uid: Arc<str> },
    /// A list of the API server is doubted; none: the doubt is over. The receiver has everything
    /// listed again after some time, and the identity of the cluster read before that.
    HeldLists(Option<HeldLists>),
    /// The database has the rows of an object whose owner asks when it is in force. `since`: when
    /// they were known not to be right.
    Applied { key: Key, uid: Arc<str>, since: Instant },
    /// The database refused the rows of this object, which are retried for ever. Sent once for each
    /// distinct error.
    Refused { key: Key, uid: Option<Arc<str>>, error: String },
    /// The database accepts the rows of this object again.
    Recovered { key: Key },
    /// The object needs a row that another object has, and is refused alone. `by`: that object.
    Taken { key: Key, uid: Option<Arc<str>>, row: String, by: String },
    /// Another program changes a row of this object again and again; it is repaired more and more
    /// slowly.
    Contested { key: Key, uid: Option<Arc<str>>, row: String },
}

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Another process may lead now.
    LeadershipLost,
    /// Another process has taken the lock on the database, and leads.
    LockTaken,
    /// The channel of observations is closed.
    ObservationsEnded,
}

/// The state of the reconciler.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// The replica of the database is complete and up to date.
    pub loaded: bool,
    /// The API server and the database were found to belong to the same cluster, or one of the two
    /// does not tell. Stays true.
    pub own_cluster: bool,
    /// The cluster that the database was written for, as of then; none if it does not tell.
    pub cluster: ClusterId,
    /// Why this process may write nothing at all; none if it may write.
    pub blocked: Option<Arc<str>>,
    /// Which kinds of objects cannot be read although there may be some, and what to do; none if
    /// all can be.
    pub unread: Option<Arc<str>>,
    /// The object whose rows take long to compare; none if there is no such one.
    pub slow: Option<Arc<str>>,
    /// The rows of the cluster or of a node that the database refuses again and again; none if
    /// there are none.
    pub refused: Option<Arc<str>>,
    /// The same of other objects.
    pub refused_objects: Option<Arc<str>>,
    /// Everything was read, and the database shows the desired rows, except for `waiting` and
    /// `failing` objects.
    pub converged: bool,
    /// `converged` was true at least once since the start.
    pub ever_converged: bool,
    /// Objects whose rows have to be compared.
    pub dirty: usize,
    /// Objects whose rows refer to rows that are not there yet.
    pub waiting: usize,
    /// Objects whose rows were refused or are contested, and will be retried.
    pub failing: usize,
}

impl Progress {
    /// Whether the databases are known to be this zone's and this cluster's. All rows were compared
    /// once, so all objects are known, too.
    pub(crate) fn is_own(&self) -> bool {
        self.ever_converged && self.loaded && self.blocked.is_none()
    }
}
