//! The mark of a new database, which is not served to ovn-northd before it has all rows: northd
//! would make a network without pods of it, and ovn-controller would follow. The entry point of the
//! image sets the mark with the zone's name, and opens the database's socket when it is gone.

use ovsdb::{Mutation, Transaction, Where};

use super::{Reconciler, database_lock::LOCK};
use crate::engine::northbound::FILLING;

impl Reconciler {
    /// Takes the mark away once the database shows all desired rows.
    pub(crate) fn tell_filled(&mut self) {
        let is_filled = self.primed && self.in_flight.is_none() && self.work_queue.dirty() == 0;
        if !is_filled || !self.may_write() || !self.northbound.is_filling() {
            self.told_filled = false;
            return;
        }
        // The replica shows the mark until the answer.
        if std::mem::replace(&mut self.told_filled, true) {
            return;
        }
        let Some(connection) = self.northbound.connection() else { return };
        let mut transaction = Transaction::new();
        transaction.assert(LOCK);
        let remove = Mutation::delete_keys("external_ids", [FILLING]);
        transaction.mutate("NB_Global", Where::all(), vec![remove]);
        transaction.comment("ovnkube: all rows are there");
        let answer = connection.transact(transaction);
        tokio::spawn(async move {
            match answer.await {
                Ok(_) => tracing::info!("the new northbound database has all rows"),
                // The next connection, and the next change of the rows, has it tried again.
                Err(error) => {
                    tracing::warn!(%error, "the mark of the new northbound database is not removed")
                }
            }
        });
    }
}
