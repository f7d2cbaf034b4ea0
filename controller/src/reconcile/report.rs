//! What the loop tells others.

use contract::names::PodKey;

use crate::{
    key::Key,
    trouble::{PodTrouble, Trouble},
};

/// Something that a person may want to know about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The store cannot give the pod what it needs.
    Trouble(Trouble<PodKey, PodTrouble>),
    /// The database refused the rows of this object; they are tried again, for ever. Once for each distinct error.
    Refused { key: Key, error: String },
    /// It did no longer.
    Recovered { key: Key },
    /// Somebody changes a row of this object again and again; it is repaired more and more slowly.
    Contested { key: Key, row: String },
}

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Another process may lead now.
    LeadershipLost,
    /// Whoever observed has stopped.
    ObservationsEnded,
}

/// How far the loop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// The database was read and is followed.
    pub loaded: bool,
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
