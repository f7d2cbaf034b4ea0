//! What is counted and timed for Prometheus. Knows nothing of how it is served.

/// All of the server's measurements.
#[derive(Debug, Default)]
pub struct Metrics {}

/// Whom the server talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    ApiServer,
    OpenVSwitch,
}

impl Metrics {
    /// A connection to `peer` was lost and is there again.
    pub fn reconnected(&self, _peer: Peer) {}
}
