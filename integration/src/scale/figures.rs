//! The measured figures of one size. Goals are in `gates`.

use serde::{Deserialize, Serialize};

use super::process::Usage;
use crate::report::percentiles::Percentiles;

/// Times are in seconds unless the field says otherwise.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    /// Rate at which the API server created pods, without the control plane.
    pub(crate) created_per_second: f64,
    pub(crate) floor: Floor,
    pub(crate) converged: Converged,
    pub(crate) restart: Restart,
    pub(crate) replaced: Replaced,
    pub(crate) latencies: Vec<Latency>,
    /// Of the control plane at the end, since its last start.
    pub(crate) steady: Usage,
    pub(crate) rows: Rows,
    /// With Services beside all that; none if there were none.
    pub(crate) services: Option<Services>,
    /// With policies from the start; none if there were none.
    pub(crate) policies: Option<Policies>,
}

impl Figures {
    /// Processor time of the control plane for each pod, from nothing to converged, in
    /// milliseconds.
    pub(crate) fn cpu_per_pod(&self) -> f64 {
        self.converged.controller.cpu * 1e3 / self.pods as f64
    }
}

/// The phase with policies. Times are in milliseconds, from the API server's answer to the last
/// row.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Policies {
    pub(crate) policies: usize,
    /// Addresses that left sets when a namespace lost a label, and came back with it.
    pub(crate) addresses_moved: usize,
    pub(crate) left: f64,
    pub(crate) came: f64,
    /// Processor time of both, in seconds.
    pub(crate) relabel_cpu: f64,
    pub(crate) relabel_transactions: u64,
    /// Pods that one policy isolates; until all were isolated, and until none was any more.
    pub(crate) crowd: usize,
    pub(crate) isolated: f64,
    pub(crate) opened: f64,
    /// Processor time of both, in seconds.
    pub(crate) crowd_cpu: f64,
    pub(crate) rows: PolicyRows,
}

/// Rows for policies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PolicyRows {
    pub(crate) acls: usize,
    pub(crate) groups: usize,
    pub(crate) sets: usize,
    /// Addresses in all sets together.
    pub(crate) addresses: usize,
}

/// The phase with Services.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Services {
    pub(crate) services: usize,
    pub(crate) backends: usize,
    /// Rate at which the API server created them, each with its slice, with the control plane
    /// running.
    pub(crate) created_per_second: f64,
    /// From the API server's last answer until the last row was there.
    pub(crate) behind: f64,
    /// Resident memory that they added, in MB.
    pub(crate) memory: f64,
    /// From an empty northbound database to all rows, with the control plane running.
    pub(crate) filled: f64,
    /// From the start of a process until `/readyz` reported that it is ready; its transactions, the
    /// watch events of pods meanwhile, and its processor time.
    pub(crate) ready: f64,
    pub(crate) transactions: u64,
    pub(crate) pod_events: u64,
    pub(crate) cpu: f64,
    /// From the API server's answer to the change of a slice until its row was committed, in
    /// milliseconds.
    pub(crate) changes: usize,
    pub(crate) rate: usize,
    pub(crate) changed: Percentiles,
    /// Rows of the table, those of other Services included.
    pub(crate) rows: usize,
    /// Size of the northbound database's file, in MB.
    pub(crate) database: f64,
}

/// The speed of the API server: annotations written by a client that does nothing else.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Floor {
    pub(crate) patches: usize,
    pub(crate) seconds: f64,
}

impl Floor {
    pub(crate) fn per_second(&self) -> f64 {
        self.patches as f64 / self.seconds
    }

    /// Seconds for `patches` patches at this rate.
    pub(crate) fn seconds_of(&self, patches: usize) -> f64 {
        patches as f64 / self.per_second()
    }
}

/// From the start of the process, with an empty northbound database and no annotation.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Converged {
    /// Until the last pod's annotation was visible.
    pub(crate) annotated: f64,
    /// Until the last row for a pod was committed to the northbound database: its port and, with
    /// policies, its isolation and its place in sets.
    pub(crate) ports: f64,
    /// Transactions in the northbound database.
    pub(crate) transactions: u64,
    /// Processor time and memory of the control plane.
    pub(crate) controller: Usage,
    /// Processor time of the API server, of etcd and of the northbound database's server.
    pub(crate) api_server_cpu: f64,
    pub(crate) etcd_cpu: f64,
    pub(crate) northbound_cpu: f64,
}

impl Converged {
    pub(crate) fn seconds(&self) -> f64 {
        self.annotated.max(self.ports)
    }
}

/// From the start of a process that finds everything already in its desired state.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Restart {
    /// Until `/readyz` reported that it is ready.
    pub(crate) ready: f64,
    /// Until a pod that was created after that had its port and its annotation.
    pub(crate) served: f64,
    /// Transactions in the northbound database until it was ready.
    pub(crate) transactions: u64,
    /// Watch events of pods until it was ready.
    pub(crate) pod_events: u64,
    pub(crate) cpu: f64,
}

/// From the start of the server of an empty northbound database, with annotations present and the
/// control plane running.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Replaced {
    pub(crate) seconds: f64,
    pub(crate) transactions: u64,
    /// Watch events of pods during that time.
    pub(crate) pod_events: u64,
}

/// At one rate, from the API server's answer to the creation of a pod. Times are in milliseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Pods a second.
    pub(crate) rate: usize,
    pub(crate) pods: usize,
    pub(crate) port: Percentiles,
    /// The port, and its isolation if there are policies.
    pub(crate) isolated: Percentiles,
    pub(crate) annotation: Percentiles,
    /// Until all are there.
    pub(crate) served: Percentiles,
    /// Processor time of the control plane per pod.
    pub(crate) cpu: f64,
    pub(crate) transactions: u64,
}

/// Contents of the databases at the end.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Rows {
    pub(crate) pod_ports: usize,
    pub(crate) other_ports: usize,
    pub(crate) switches: usize,
    /// Nodes with a subnet annotation.
    pub(crate) nodes_with_subnets: usize,
}
