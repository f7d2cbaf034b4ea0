//! Of the node's own client certificate. Knows nothing of requests for one.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::Gauge;

use super::register::Register;

/// Moments as seconds since 1970, as Prometheus' own function `time()` counts.
#[derive(Debug)]
pub(super) struct Certificate {
    expiry: Gauge,
    renewal: Gauge,
}

impl Certificate {
    pub(super) fn register(register: &Register<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            expiry: register.gauge(
                "ovnkube_node_certificate_expiry_seconds",
                "When the client certificate of this node's server expires (--bootstrap-kubeconfig), in seconds \
                 since 1970; 0 without one.",
            )?,
            renewal: register.gauge(
                "ovnkube_node_certificate_renewal_seconds",
                "When the client certificate of this node's server is renewed, in seconds since 1970; in the \
                 past, attempts fail; 0 without one.",
            )?,
        })
    }

    pub(super) fn valid(&self, until: SystemTime, renewal: SystemTime) {
        let seconds = |moment: SystemTime| {
            moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
        };
        self.expiry.set(seconds(until));
        self.renewal.set(seconds(renewal));
    }
}
