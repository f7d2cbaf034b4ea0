//! Metrics of ports that were written, restored and removed.

use prometheus::{IntCounter, IntCounterVec};

use super::{Reason, register::Register};

#[derive(Debug)]
pub(super) struct Attachments {
    written: IntCounter,
    transactions: IntCounter,
    put_back: IntCounter,
    removed: IntCounterVec,
}

impl Attachments {
    pub(super) fn register(register: &Register<'_>) -> prometheus::Result<Self> {
        let removed = register.counters(
            "ovnkube_node_stale_attachments_removed_total",
            "Ports and links that were left of pods and that no DEL removed, by what was wrong with them.",
            &["reason"],
        )?;
        // Every series exists from the start, so that `rate()` sees the first increment.
        Reason::ALL.iter().for_each(|reason| removed.with_label_values(&[reason.name()]).inc_by(0));
        let put_back = register.int_counter(
            "ovnkube_node_reattached_ports_total",
            "Ports of pods that had vanished from Open vSwitch and were put back; \
             the pods had no network meanwhile.",
        )?;
        let written = register.int_counter(
            "ovnkube_node_ports_written_total",
            "Ports of new pods that the server wrote for their plugins.",
        )?;
        let transactions = register.int_counter(
            "ovnkube_node_port_transactions_total",
            "Transactions in which the server wrote ports of new pods, several in one.",
        )?;
        Ok(Self { written, transactions, put_back, removed })
    }

    pub(super) fn written(&self, ports: usize) {
        self.transactions.inc();
        self.written.inc_by(u64::try_from(ports).unwrap_or(u64::MAX));
    }

    pub(super) fn put_back(&self, ports: usize) {
        self.put_back.inc_by(u64::try_from(ports).unwrap_or(u64::MAX));
    }

    pub(super) fn removed(&self, reason: Reason) {
        self.removed.with_label_values(&[reason.name()]).inc();
    }
}
