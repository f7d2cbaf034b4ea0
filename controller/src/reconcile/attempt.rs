//! One transaction: what goes into it, and what its answer means for each key.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use ovsdb::{Outcome, TransactError};
use tokio::time::Instant;

use super::{InFlight, Reconciler, Report, fence::LOCK, flap::Answer};
use crate::{
    commit::{
        Batch, assemble,
        backlog::{Cause, Turn, pause},
        blame::{Blame, blame},
    },
    desired::desired,
    diff::{
        Difference, diff,
        edit::{Edit, Existing, Target},
        fit::fit,
    },
    key::Key,
    northbound::CLUSTER_ID,
    rows::{RowName, Table},
};

/// Rows of one transaction, more or less. ovsdb-server is fastest with some hundred, and what is under way keeps others waiting.
const MOST_ROWS: usize = 1000;

/// Keys that are compared in one turn, and for how long at most: some microseconds each. Then whatever came meanwhile has its turn; an event
/// that waits so long is not noticed among what else it waits for.
const TURN_KEYS: usize = 500;
const TURN: Duration = Duration::from_millis(5);

/// What will be one transaction.
#[derive(Default)]
struct Plan {
    keys: Vec<(Key, Cause)>,
    edits: Vec<Vec<Edit>>,
    inserted: HashSet<RowName>,
    rows: usize,
}

impl Reconciler {
    /// Sends what is dirty, if nothing is under way.
    pub(super) fn write(&mut self) {
        let now = Instant::now();
        self.unfinished = false;
        if !self.may_write() {
            return;
        }
        for annotation in self.store.take_annotations() {
            // Nobody left to write it: the process is about to end.
            let _ = self.annotations.send(annotation);
        }
        for trouble in self.store.take_troubles() {
            self.report(Report::Trouble(trouble));
        }
        for trouble in self.store.take_shared() {
            self.report(Report::Shared(trouble));
        }
        for trouble in self.store.take_node_troubles() {
            self.report(Report::NodeTrouble(trouble));
        }
        if self.in_flight.is_some() || self.paused.is_some_and(|until| now < until) {
            return;
        }
        self.paused = None;
        self.backlog.retry_due(now);
        let Some(connection) = self.northbound.connection().cloned() else { return };
        let mut compared = 0;
        while let Some(turn) = self.backlog.turn() {
            let mut plan = Plan::default();
            match turn {
                Turn::Suspects(keys) => {
                    for key in keys {
                        self.consider(key, Cause::Store, connection.schema(), &mut plan);
                    }
                }
                Turn::Dirty => {
                    while plan.rows < MOST_ROWS
                        && compared < TURN_KEYS
                        && now.elapsed() < TURN
                        && let Some((key, cause)) = self.backlog.pop()
                    {
                        self.consider(key, cause, connection.schema(), &mut plan);
                        compared += 1;
                    }
                }
            }
            let Plan { mut keys, mut edits, .. } = plan;
            if keys.is_empty() {
                if compared >= TURN_KEYS || now.elapsed() >= TURN {
                    self.unfinished = true;
                    return;
                }
                continue;
            }
            if let Some(edit) = self.identify().filter(|_| keys.iter().all(|(key, _)| *key != Key::Cluster)) {
                keys.push((Key::Cluster, Cause::Store));
                edits.push(vec![edit]);
            }
            // Comparing has taken its time.
            if !self.leadership.is_leader() {
                self.mark_again(keys, now);
                return;
            }
            let batch = assemble(edits, connection.schema(), Some(LOCK));
            self.metrics.batch.observe(f64::from(u32::try_from(keys.len()).unwrap_or(u32::MAX)));
            let Batch { transaction, operations, written } = batch;
            let outcome = Box::pin(connection.transact(transaction));
            self.in_flight = Some(InFlight { keys, operations, written, outcome });
            return;
        }
    }

    /// Whose database this is, if that is known and not written yet. It goes with what is written anyway: a start writes nothing for it.
    fn identify(&self) -> Option<Edit> {
        let id = self.store.cluster_id()?;
        let row = self.northbound.cluster_router()?;
        let add = BTreeMap::from([(CLUSTER_ID.to_owned(), id.to_string())]);
        let is_written = self.northbound.cluster_id(row).is_some();
        let row = Existing { table: Table::LogicalRouter, row };
        (!is_written).then_some(Edit::Pairs { row, column: "external_ids", remove: Vec::new(), add })
    }

    /// Compares what a key should have with what it has: the difference joins the plan.
    fn consider(&mut self, key: Key, cause: Cause, schema: &ovsdb::Schema, plan: &mut Plan) {
        let rows = fit(desired(&self.store, &key), schema);
        match diff(&key, &rows, self.store.kept(&key), &self.northbound, &plan.inserted) {
            Difference::Missing(rows) => {
                tracing::debug!(%key, ?rows, "waits for rows");
                self.backlog.wait(key, rows);
            }
            Difference::Edits(edits) if edits.is_empty() => self.settle(key),
            Difference::Edits(edits) => {
                let now = Instant::now();
                if cause == Cause::Rows
                    && let Answer::Rest { pause, first } = self.flaps.repair(&key, now)
                {
                    let row = edits.first().map(|edit| self.describe(edit)).unwrap_or_default();
                    self.backlog.rest(key.clone(), now + pause);
                    if first {
                        self.contested(key, row, pause);
                    }
                    return;
                }
                plan.rows += edits.len();
                plan.inserted.extend(edits.iter().filter_map(Edit::inserted).cloned());
                plan.keys.push((key, cause));
                plan.edits.push(edits);
            }
        }
    }

    /// The database shows the key's rows as they should be.
    fn settle(&mut self, key: Key) {
        if self.backlog.succeeded(&key) {
            self.recovered(&key);
        }
        if let Some(since) = self.backlog.settled(&key) {
            self.metrics.settle.observe(since.elapsed().as_secs_f64());
        }
        let changes = self.store.settled(&key);
        self.follow(changes);
    }

    fn contested(&self, key: Key, row: String, pause: Duration) {
        tracing::warn!(
            %key,
            row,
            ?pause,
            "somebody else changes this row of the northbound database again and again: is a second controller running?"
        );
        self.report(Report::Contested { uid: self.store.uid(&key), key, row });
    }

    /// Such as `Logical_Switch_Port shop_cart-0`.
    fn describe(&self, edit: &Edit) -> String {
        match edit.subject() {
            Target::Inserted(id) => format!("{} {}", id.table.name(), id.name),
            Target::Existing(row) => self.northbound.describe(row),
        }
    }

    /// The transaction under way was answered, or will never be.
    pub(super) fn answered(&mut self, outcome: Result<Outcome, TransactError>) {
        let Some(InFlight { keys, operations, written, outcome: _ }) = self.in_flight.take() else { return };
        let now = Instant::now();
        let error = match outcome {
            Ok(_) => {
                self.count("committed");
                self.refusals = 0;
                for (table, rows) in written {
                    self.metrics.rows.with_label_values(&[table.name()]).inc_by(rows);
                }
                for (key, _) in keys {
                    if self.backlog.succeeded(&key) {
                        self.recovered(&key);
                    }
                    self.backlog.mark(key, Cause::Rows, now);
                }
                return;
            }
            Err(error) => error,
        };
        match blame(&error) {
            Blame::Connection => {
                self.count("lost");
                tracing::info!(error = chain(&error), "a transaction of the northbound database is lost; it is made anew once connected");
                // There may be another connection already.
                self.loaded &= self.northbound.connection().is_some_and(|connection| !connection.is_closed());
                self.mark_again(keys, now);
            }
            Blame::Race(index) => {
                self.count("overtaken");
                let overtaken = operations.get(index).cloned().unwrap_or_default();
                for (place, (key, cause)) in keys.into_iter().enumerate() {
                    // As repairs: if it happens again and again, not at once.
                    let cause = if overtaken.contains(&place) { Cause::Rows } else { cause };
                    self.backlog.mark(key, cause, now);
                }
            }
            Blame::Lock => {
                self.count("refused");
                self.fence.refused();
                self.mark_again(keys, now);
            }
            Blame::Server => {
                self.count("refused");
                let pause = pause(self.refusals);
                self.refusals = self.refusals.saturating_add(1);
                tracing::warn!(error = chain(&error), ?pause, "the northbound database takes no transactions; they are tried again");
                self.paused = Some(now + pause);
                self.mark_again(keys, now);
            }
            Blame::Operation(index) => {
                self.count("refused");
                let blamed = operations.get(index).cloned().unwrap_or_default();
                self.part(keys, &blamed, &error, now);
            }
            Blame::Somebody => {
                self.count("refused");
                self.part(keys, &[], &error, now);
            }
        }
    }

    /// Separates the keys at fault from the others. `blamed` are their places, if the server told.
    fn part(&mut self, keys: Vec<(Key, Cause)>, blamed: &[usize], error: &TransactError, now: Instant) {
        let alone = blamed.iter().collect::<HashSet<_>>().len() == 1 || keys.len() == 1;
        let narrows = !blamed.is_empty() && blamed.iter().collect::<HashSet<_>>().len() < keys.len();
        if narrows || alone {
            let is_blamed = |place: usize| keys.len() == 1 || blamed.contains(&place);
            let (at_fault, others): (Vec<_>, Vec<_>) = keys.iter().cloned().enumerate().partition(|(place, _)| is_blamed(*place));
            self.mark_again(others.into_iter().map(|(_, key)| key).collect(), now);
            let at_fault: Vec<Key> = at_fault.into_iter().map(|(_, (key, _))| key).collect();
            match <[Key; 1]>::try_from(at_fault) {
                Ok([key]) => self.refused(key, error, now),
                Err(several) => self.backlog.suspect(several),
            }
            return;
        }
        let mut first: Vec<Key> = keys.into_iter().map(|(key, _)| key).collect();
        let second = first.split_off(first.len() / 2);
        self.backlog.suspect(first);
        self.backlog.suspect(second);
    }

    fn refused(&mut self, key: Key, error: &TransactError, now: Instant) {
        let error = chain(error);
        let (another, pause) = self.backlog.fail(key.clone(), error.clone(), now);
        if another {
            tracing::warn!(%key, error, ?pause, "the northbound database refuses the rows of this object; they are tried again");
            self.report(Report::Refused { uid: self.store.uid(&key), key, error });
        }
    }

    fn recovered(&self, key: &Key) {
        tracing::info!(%key, "the northbound database takes the rows of this object again");
        self.report(Report::Recovered { key: key.clone() });
    }

    fn report(&self, report: Report) {
        // Nobody listens: what matters is in the log.
        let _ = self.reports.send(report);
    }

    fn mark_again(&mut self, keys: Vec<(Key, Cause)>, now: Instant) {
        for (key, cause) in keys {
            self.backlog.mark(key, cause, now);
        }
    }

    fn count(&self, result: &str) {
        self.metrics.transactions.with_label_values(&[result]).inc();
    }
}

/// The error with its causes.
fn chain(error: &TransactError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
