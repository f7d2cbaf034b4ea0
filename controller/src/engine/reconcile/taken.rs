//! Rows that two objects need. One of them has the row, the other one is refused and told whose it
//! is.
//!
//! Names of rows are not all chosen by this controller: a pod's port is called like its namespace
//! and the pod, a port group like a hash of its id, for which another id is found within seconds.
//! Whoever has the row keeps it, unless the other object is one that tenants of the cluster must
//! not keep from its rows.

use std::collections::HashMap;

use tokio::time::Instant;

use crate::{
    engine::{
        commit::work_queue::{Cause, Item},
        diff::{Holder, Need, Others, Taken},
        reconcile::{Reconciler, Report},
    },
    key::{Key, SetId},
    kinds::desired,
    rows::{DesiredRow, RowName},
    world::{Kept, Store},
};

/// The keys that take a row from another one, until they have it. By what the row is called.
#[derive(Debug, Default)]
pub(crate) struct Precedence(HashMap<RowName, (Key, RowName)>);

/// What the comparison of a key has to know of the others.
pub(crate) struct OtherKeys<'a> {
    pub(crate) store: &'a Store,
    pub(crate) precedence: &'a Precedence,
    /// What the transaction inserts already, by what it is called.
    pub(crate) inserted: &'a HashMap<RowName, RowName>,
}

impl Others for OtherKeys<'_> {
    fn insert(&self, row: &RowName) -> bool {
        !self.inserted.is_empty()
            && self.inserted.get(&row.called()).is_some_and(|other| other == row)
    }

    fn insert_another(&self, row: &RowName) -> bool {
        row.id.is_some() && self.inserted.get(&row.called()).is_some_and(|other| other != row)
    }

    fn wants(&self, key: &Key, row: &RowName) -> bool {
        let called = row.called();
        let is_called_so =
            |row: &DesiredRow| row.id.table == called.table && row.id.called() == called;
        self.store.kept(key).has(row.table) || desired(self.store, key).iter().any(is_called_so)
    }

    fn kept(&self, key: &Key) -> Kept {
        self.store.kept(key)
    }

    fn keeps_balancers(&self, key: &Key, of: &Key, on: &str) -> bool {
        self.store.keeps_balancers(key, of, on)
    }

    fn first(&self, row: &RowName) -> Option<(&Key, &RowName)> {
        if self.precedence.0.is_empty() {
            return None;
        }
        self.precedence.0.get(&row.called()).map(|(key, row)| (key, row))
    }
}

impl Reconciler {
    /// Forgets what the key has taken from another one: it has the row, or needs it no longer.
    pub(crate) fn forget_precedence(&mut self, key: &Key, rows: &[DesiredRow]) {
        if self.precedence.0.is_empty() {
            return;
        }
        let northbound = &self.northbound;
        let has = |id: &RowName| {
            northbound.find(id).is_some_and(|row| northbound.index.claim(row).owner() == Some(key))
        };
        let is_due = |id: &RowName| rows.iter().any(|row| row.id == *id) && !has(id);
        let own = self.precedence.0.iter().filter(|(_, (first, _))| first == key);
        let over = own.filter(|(_, (_, row))| !is_due(row)).map(|(called, _)| called.clone());
        let (over, now): (Vec<RowName>, _) = (over.collect(), Instant::now());
        for row in over {
            self.precedence.0.remove(&row);
            self.work_queue.changed(&row, now);
        }
    }

    /// The key needs rows that other objects have: it waits for them, and its object is told whose
    /// they are.
    pub(crate) fn refuse_taken(&mut self, key: Key, taken: &[Taken]) {
        let rows: Vec<RowName> = taken.iter().map(|taken| taken.row.clone()).collect();
        let mut refused = None;
        for Taken { row, need, by } in taken {
            match by {
                Holder::Key(other) if *need == Need::Own && comes_before(&key, other) => {
                    self.precedence.0.insert(row.called(), (key.clone(), row.clone()));
                    // Those whose rules name a set that is another one from now on, too.
                    let users = self.northbound.naming_set(row);
                    for key in std::iter::once(other.clone()).chain(users) {
                        self.work_queue.mark(Item::whole(key, Cause::Store), Instant::now());
                    }
                }
                Holder::Key(_) | Holder::Unknown(_) => refused = refused.or(Some((row, by))),
            }
        }
        let Some((row, by)) = refused else { return self.work_queue.wait(&key, &rows) };
        let row = row.describe();
        let by = match by {
            Holder::Key(other) => other.to_string(),
            Holder::Unknown(id) => format!("another program's object with the id {id}"),
        };
        if self.work_queue.taken(&key, &rows, format!("{row} is that of {by}")) {
            tracing::warn!(%key, row, by, "an object needs a row that another object has, and is refused");
            self.store.rows_failed(&key, &format!("{row} is that of {by}"));
            self.report(Report::Taken { uid: self.store.uid(&key), key, row, by });
        }
    }
}

/// Whether the first of two keys that need one row takes it from the second. Rows of the cluster
/// and of nodes come before what tenants choose the names of; what isolates pods comes before what
/// opens them.
fn comes_before(key: &Key, other: &Key) -> bool {
    place(key) < place(other)
}

fn place(key: &Key) -> u8 {
    match key {
        Key::Cluster => 0,
        Key::Node(_) | Key::Gateway(_) | Key::Transit(_) | Key::Chassis(_) => 1,
        Key::Isolation(_) | Key::ClusterPolicy(_) => 2,
        Key::Namespace(_) | Key::Custom(_) => 3,
        Key::Set(
            SetId::Namespace(_)
            | SetId::Nodes(_)
            | SetId::Pods(_)
            | SetId::Port(..)
            | SetId::PortIn(_),
        ) => 4,
        // Who writes a rule chooses all of its 253 characters.
        Key::Set(SetId::Name(_)) => 5,
        Key::Policy(_) => 6,
        Key::Pod(_) | Key::SourceNat(_) | Key::Service(_) => 7,
    }
}
