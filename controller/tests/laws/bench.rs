//! A control plane, the databases and ovn-northd, for one world after the other.

use ovsdb::Connection;
use tokio::runtime::{Builder, Runtime};

use crate::{logical::Logical, reference::config, running::Running};

/// The databases, and a connection to the northbound one.
pub(crate) struct Bench {
    runtime: Runtime,
    pub(crate) logical: Logical,
    connection: Connection,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let logical = Logical::start();
        let connection = runtime.block_on(logical.northbound.open());
        Self { runtime, logical, connection }
    }

    /// Writes what a control plane makes of what `observe` tells it, in place of what was there.
    pub(crate) fn write(&self, observe: impl FnOnce(&Running)) {
        self.runtime.block_on(async {
            self.logical.clear(&self.connection).await;
            let mut controller = Running::start(self.logical.northbound.endpoint(), config());
            observe(&controller);
            controller.converged().await;
            assert_eq!(controller.progress.borrow().failing, 0, "rows are refused");
            controller.stop().await;
        });
    }
}
