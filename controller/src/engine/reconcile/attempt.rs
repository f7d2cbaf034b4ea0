//! One transaction: what goes into it, and what its answer means for each key.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use contract::{error::chain, names::ServiceKey};
use ovsdb::{Outcome, TransactError};
use tokio::time::Instant;

use crate::{
    engine::{
        commit::{
            Batch, assemble,
            bisect::{Bisection, bisect},
            fault::{Fault, classify},
            work_queue::{Cause, Item, Turn, pause},
        },
        diff::{
            Difference, diff,
            edit::{Edit, Existing, Target},
            fit::fit,
            part::diff_parts,
        },
        northbound::CLUSTER_ID,
        reconcile::{
            InFlight, Reconciler, Report,
            database_lock::LOCK,
            flap::{Answer, Rests},
            taken::OtherKeys,
        },
    },
    key::{Key, Scope},
    kinds::{desired, desired_part},
    rows::{DesiredPart, RowName, Table},
};

/// Edits per transaction, more or less; a new pod has two, its port and the port's place in the
/// switch. Large transactions are slow and make other keys wait: one ovsdb-server takes 10,000
/// ports a second in transactions of one, 40,000 in transactions of 20 to 200, and 22,000 at 1,000.
const MOST_ROWS: usize = 1000;

/// Bytes of edits per transaction, more or less. A thousand ports are 400 kB; a thousand ACLs or
/// maps of a load balancer may be many times that, and ovsdb-server handles nothing else while it
/// reads them.
const MOST_BYTES: usize = 1 << 20;

/// Limits of one turn: keys that are compared, some microseconds each, and time. Then other events
/// have their turn. A wait of 5 ms is not noticed beside what else an event waits for; ten times as
/// much would show in the latency of a pod.
const TURN_KEYS: usize = 500;
/// The time of a turn: see [`TURN_KEYS`].
const TURN: Duration = Duration::from_millis(5);
/// Keys that are compared in any case. What follows from one event goes into one transaction: a
/// pod's port in its groups without its address in sets may open what neither the state before nor
/// the one after opens. So many are more than almost any event concerns, and cost a fraction of
/// [`TURN`], unless the process does not run meanwhile.
const FEWEST_KEYS: usize = 32;

/// Whether other events have their turn after this many keys.
fn is_over(begun: Instant, compared: usize) -> bool {
    compared >= TURN_KEYS || compared >= FEWEST_KEYS && begun.elapsed() >= TURN
}

/// The next transaction.
#[derive(Default)]
struct Plan {
    items: Vec<Item>,
    edits: Vec<Vec<Edit>>,
    /// By what they are called.
    inserted: HashMap<RowName, RowName>,
    /// Keys of which only the groups are written.
    partial: HashSet<Key>,
    rows: usize,
    bytes: usize,
}

impl Plan {
    /// All edits of a key go into one transaction: a limit is exceeded rather than a key split.
    fn add(&mut self, item: Item, edits: Vec<Edit>) {
        self.rows += edits.len();
        self.bytes += edits.iter().map(Edit::size).sum::<usize>();
        self.inserted
            .extend(edits.iter().filter_map(Edit::inserted).map(|row| (row.called(), row.clone())));
        self.items.push(item);
        self.edits.push(edits);
    }

    fn is_full(&self) -> bool {
        self.rows >= MOST_ROWS || self.bytes >= MOST_BYTES
    }
}

/// The inserts of port groups among the edits. Ports wait for their groups: those of a policy of
/// the cluster whose rules the database does not take must not wait for these, too, and with them
/// what isolates the pods otherwise.
fn new_groups(edits: &[Edit]) -> Vec<Edit> {
    let is_group = |edit: &&Edit| edit.inserted().is_some_and(|row| row.table == Table::PortGroup);
    edits.iter().filter(is_group).cloned().collect()
}

impl Reconciler {
    /// Hands out the store's decisions, and sends dirty keys as one transaction if none is in
    /// flight.
    pub(crate) fn write(&mut self) {
        let now = Instant::now();
        self.unfinished = false;
        if !self.may_write() {
            return;
        }
        // At once and not with the transaction: the plugin waits for both, the annotation and the
        // port.
        for annotation in self.store.take_annotations() {
            // Without a receiver, the process is about to end.
            let _ = self.annotations.send(annotation);
        }
        for (service, uid) in self.store.take_needs_of_pods() {
            self.report(Report::NeedPods { service, uid });
        }
        // Another task writes them. ovn-northd binds a node's port as soon as its chassis is there.
        if let Some(chassis) = self.store.take_remote_chassis() {
            self.report(Report::RemoteChassis(chassis));
        }
        self.write_rows(now);
        // What is found while keys settle, too: nothing else may happen for a long time.
        for problem in self.store.take_problems() {
            self.report(Report::Problem(problem));
        }
        for condition in self.store.take_conditions() {
            let _ = self.conditions.send(condition);
        }
        for policy in self.store.take_rereads() {
            self.report(Report::Reread(policy));
        }
        if let Some(names) = self.store.take_names() {
            self.report(Report::Names(names));
        }
        for status in self.store.take_statuses() {
            let _ = self.statuses.send(status);
        }
    }

    /// Sends dirty keys as one transaction if none is in flight.
    fn write_rows(&mut self, now: Instant) {
        // One transaction at a time: the next comparison needs a replica that shows this one's
        // rows.
        if self.in_flight.is_some() || self.paused.is_some_and(|until| now < until) {
            return;
        }
        self.paused = None;
        self.work_queue.retry_due(now);
        let Some(connection) = self.northbound.connection().cloned() else { return };
        let mut compared = 0;
        while let Some(turn) = self.work_queue.turn() {
            let mut plan = Plan::default();
            match turn {
                Turn::Suspects(keys) => {
                    // `Store`: a suspect is no repair, so it does not have to rest as a contested
                    // row.
                    for key in keys {
                        self.consider(
                            Item::whole(key, Cause::Store),
                            connection.schema(),
                            &mut plan,
                        );
                    }
                }
                Turn::Apart(item) => {
                    self.consider(item, connection.schema(), &mut plan);
                    compared += 1;
                }
                Turn::Dirty => {
                    while !plan.is_full()
                        && !is_over(now, compared)
                        && let Some(item) = self.work_queue.pop()
                    {
                        self.consider(item, connection.schema(), &mut plan);
                        compared += 1;
                    }
                }
            }
            let Plan { mut items, mut edits, partial, .. } = plan;
            // Nothing differs, or the keys wait or rest: go on with the next ones, until the turn
            // is over.
            if items.is_empty() {
                if is_over(now, compared) {
                    self.unfinished = true;
                    return;
                }
                continue;
            }
            // A key occurs once in a transaction, so not beside the cluster's own edits.
            if let Some(edit) =
                self.identify().filter(|_| items.iter().all(|item| item.key != Key::Cluster))
            {
                items.push(Item::whole(Key::Cluster, Cause::Store));
                edits.push(vec![edit]);
                if self.store.ask_every_tier() {
                    self.work_queue.mark(Item::whole(Key::Cluster, Cause::Store), now);
                }
            }
            // The comparison took time: the Lease may have run out.
            if !self.leadership.is_leader() {
                self.mark_again(items, now);
                return;
            }
            let batch = assemble(edits, connection.schema(), Some(LOCK));
            self.metrics.batch.observe(f64::from(u32::try_from(items.len()).unwrap_or(u32::MAX)));
            let Batch { transaction, operations, written } = batch;
            let outcome = Box::pin(connection.transact(transaction));
            self.in_flight = Some(InFlight { items, partial, operations, written, outcome });
            return;
        }
    }

    /// The edit that writes the cluster's identity into the database, if it is known and not
    /// written yet. It joins a transaction with other edits, so that a start writes nothing.
    fn identify(&self) -> Option<Edit> {
        let id = self.store.cluster_id()?;
        let row = self.northbound.cluster_router()?;
        let add = BTreeMap::from([(CLUSTER_ID.to_owned(), id.to_string())]);
        let is_written = self.northbound.cluster_id(row).is_some();
        let row = Existing { table: Table::LogicalRouter, row };
        (!is_written).then_some(Edit::Pairs {
            row,
            column: "external_ids",
            remove: Vec::new(),
            add,
        })
    }

    /// Compares a key's desired rows with the replica, and adds the difference to the plan.
    fn consider(&mut self, item: Item, schema: &ovsdb::Schema, plan: &mut Plan) {
        if !self.store.may_begin(&item.key)
            && self.northbound.index.owned(&item.key).next().is_none()
        {
            tracing::debug!(key = %item.key, "waits until a list of what denies is accepted");
            return self.work_queue.wait(&item.key, &[]);
        }
        let begun = Instant::now();
        let mut rests = Rests::Long;
        let difference = self.parts(&item.key, &item.scope).unwrap_or_else(|| {
            let rows = fit(desired(&self.store, &item.key), schema);
            rests = Rests::of(&item.key, &rows);
            self.forget_precedence(&item.key, &rows);
            let Self { store, precedence, northbound, .. } = self;
            let others = OtherKeys { store, precedence, inserted: &plan.inserted };
            diff(&item.key, rows, northbound, &others)
        });
        self.slow.compared(&item.key, begun.elapsed());
        let Difference { edits, missing, later, taken } = difference;
        let Item { key, cause, .. } = &item;
        if !edits.is_empty() {
            let now = Instant::now();
            self.work_queue.weigh(key, edits.iter().map(Edit::size).sum());
            // Another writer has changed rows that were right, or was faster. To answer at once,
            // each time, would be a fight without end.
            if *cause == Cause::Rows
                && let Answer::Rest { pause, first } = self.flaps.repair(key, rests, now)
            {
                let row = edits.first().map(|edit| self.describe(edit)).unwrap_or_default();
                self.work_queue.rest(key, now + pause);
                if first {
                    self.contested(item.key, row, pause);
                }
                return;
            }
            let groups =
                if self.work_queue.is_refused(key) { new_groups(&edits) } else { Vec::new() };
            if groups.is_empty() {
                plan.add(item, edits);
            } else {
                plan.partial.insert(key.clone());
                plan.add(item, groups);
            }
        } else if !taken.is_empty() {
            self.refuse_taken(item.key, &taken);
        } else if !missing.is_empty() {
            tracing::debug!(%key, ?missing, "waits for rows");
            self.work_queue.wait(key, &missing);
        } else {
            self.settle(item.key.clone());
            if !later.is_empty() {
                tracing::debug!(key = %item.key, ?later, "is right but for sets that are not there yet");
                self.work_queue.wait(&item.key, &later);
            }
        }
    }

    /// The difference of single parts of the key's rows; none if the rows have to be compared as a
    /// whole.
    fn parts(&self, key: &Key, scope: &Scope) -> Option<Difference> {
        let Scope::Parts(parts) = scope else { return None };
        // Of rows that are partly kept, only the whole tells which.
        if !self.store.kept(key).is_nothing() {
            return None;
        }
        let parts: Vec<DesiredPart> =
            parts.iter().map(|part| desired_part(&self.store, key, part)).collect::<Option<_>>()?;
        let edits = diff_parts(key, &parts, &self.northbound)?;
        Some(Difference { edits, ..Difference::default() })
    }

    /// The replica shows the key's desired rows.
    fn settle(&mut self, key: Key) {
        if self.work_queue.succeeded(&key) {
            self.recovered(&key);
        }
        let since = self.work_queue.settled(&key);
        if let Some(since) = since {
            self.metrics.settle.observe(since.elapsed().as_secs_f64());
        }
        self.report_applied(&key, since);
        if let Key::Service(service) = &key {
            self.programmed(&service.clone());
        }
        // An address that the key no longer uses has left the database only now: another pod may
        // have it.
        self.follow(|store, dirty| store.settled(&key, dirty));
    }

    /// The database has the Service's endpoints: measures the time since they changed, by the clock
    /// of the program that noticed the change.
    fn programmed(&mut self, service: &ServiceKey) {
        let triggers = self.store.take_triggers(service);
        if triggers.is_empty() {
            return;
        }
        let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else { return };
        for since in triggers.into_iter().filter_map(|trigger| since(trigger, now)) {
            self.metrics.programming.observe(since.as_secs_f64());
        }
    }

    fn contested(&mut self, key: Key, row: String, pause: Duration) {
        tracing::warn!(
            %key,
            row,
            ?pause,
            "another program changes this row of the northbound database again and again: \
             is a second controller running?"
        );
        self.store.rows_failed(&key, &format!("another program changes {row} again and again"));
        self.report(Report::Contested { uid: self.store.uid(&key), key, row });
    }

    /// The row of an edit in words, such as `Logical_Switch_Port shop_cart-0`.
    fn describe(&self, edit: &Edit) -> String {
        match edit.subject() {
            Target::Inserted(id) => format!("{} {}", id.table.name(), id.name),
            Target::Existing(row) => self.northbound.describe(row),
        }
    }

    /// Takes the answer to the transaction in flight, or the error that there will be none.
    pub(crate) fn answered(&mut self, outcome: Result<Outcome, TransactError>) {
        let Some(InFlight { items, partial, operations, written, outcome: _ }) =
            self.in_flight.take()
        else {
            return;
        };
        let now = Instant::now();
        let error = match outcome {
            Ok(_) => {
                self.count("committed");
                self.refusals = 0;
                for (table, rows) in written {
                    self.metrics.rows.with_label_values(&[table.name()]).inc_by(rows);
                }
                for item in items {
                    self.requests.written(&item.key);
                    if !partial.contains(&item.key) && self.work_queue.succeeded(&item.key) {
                        self.recovered(&item.key);
                    }
                    // Compared once more: only what the replica shows counts as done.
                    self.work_queue.mark(Item { cause: Cause::Rows, ..item }, now);
                }
                return;
            }
            Err(error) => error,
        };
        match classify(&error) {
            Fault::Connection => {
                self.count("lost");
                tracing::info!(
                    error = chain(&error),
                    "the connection to the northbound database was lost during a transaction; \
                     retrying once connected"
                );
                // The replica may follow another connection already.
                self.loaded &=
                    self.northbound.connection().is_some_and(|connection| !connection.is_closed());
                self.mark_again(items, now);
            }
            Fault::Race(index) => {
                self.count("overtaken");
                let overtaken = operations.get(index).cloned().unwrap_or_default();
                for (place, item) in items.into_iter().enumerate() {
                    // `Rows` counts as a repair, so a key that loses again and again has to rest.
                    // What the other writer has changed may be more than a part.
                    let is_overtaken = overtaken.contains(&place);
                    let item = if is_overtaken { Item::whole(item.key, Cause::Rows) } else { item };
                    self.work_queue.mark(item, now);
                }
            }
            Fault::Lock => {
                self.count("refused");
                self.database_lock.refused();
                self.mark_again(items, now);
            }
            Fault::Server => {
                self.count("refused");
                let pause = pause(self.refusals);
                self.refusals = self.refusals.saturating_add(1);
                tracing::warn!(
                    error = chain(&error),
                    ?pause,
                    "the northbound database takes no transactions; they are tried again"
                );
                self.paused = Some(now + pause);
                self.mark_again(items, now);
            }
            Fault::Operation(index) => {
                self.count("refused");
                let blamed = operations.get(index).cloned().unwrap_or_default();
                self.part(items, &blamed, &error, now);
            }
            Fault::Unnamed => {
                self.count("refused");
                self.part(items, &[], &error, now);
            }
        }
    }

    /// Separates the keys at fault from the others. `blamed`: their indexes, if the server named an
    /// operation.
    fn part(&mut self, items: Vec<Item>, blamed: &[usize], error: &TransactError, now: Instant) {
        match bisect(items, blamed, |item| self.work_queue.changes(&item.key)) {
            Bisection::Found { at_fault, innocent } => {
                self.mark_again(innocent, now);
                self.refused(at_fault.key, error, now);
            }
            Bisection::Suspects { groups, innocent } => {
                self.mark_again(innocent, now);
                for group in groups {
                    self.work_queue.suspect(group.into_iter().map(|item| item.key).collect());
                }
            }
        }
    }

    fn refused(&mut self, key: Key, error: &TransactError, now: Instant) {
        let error = chain(error);
        let (another, pause) = self.work_queue.fail(&key, error.clone(), now);
        // Retries with the same error are not logged again.
        if another {
            tracing::warn!(
                %key,
                error,
                ?pause,
                "the northbound database refuses the rows of this object; they are tried again"
            );
            self.store
                .rows_failed(&key, &format!("the northbound database refuses its rows: {error}"));
            self.report(Report::Refused { uid: self.store.uid(&key), key, error });
        }
    }

    fn recovered(&self, key: &Key) {
        tracing::info!(%key, "the northbound database takes the rows of this object again");
        self.report(Report::Recovered { key: key.clone() });
    }

    pub(crate) fn report(&self, report: Report) {
        // Without a receiver, what matters is in the log.
        let _ = self.reports.send(report);
    }

    fn mark_again(&mut self, items: Vec<Item>, now: Instant) {
        for item in items {
            self.work_queue.mark(item, now);
        }
    }

    fn count(&self, result: &str) {
        self.metrics.transactions.with_label_values(&[result]).inc();
    }
}

/// A change of endpoints that was longer ago is not measured: its time is an annotation, which
/// every user of a namespace may write. The API server, and the program that noticed the change,
/// take seconds.
const OLDEST_TRIGGER: Duration = Duration::from_secs(600);

/// How long ago a change was, in microseconds since 1970; none if it cannot be right.
fn since(trigger: i64, now: Duration) -> Option<Duration> {
    let at = Duration::from_micros(u64::try_from(trigger).ok()?);
    now.checked_sub(at).filter(|since| *since <= OLDEST_TRIGGER)
}

#[cfg(test)]
mod tests;
