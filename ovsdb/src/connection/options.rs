//! Timeouts and limits of a connection.

use std::time::Duration;

use crate::{frame::FrameLimits, ssl::Ssl};

/// Timeouts, limits and TLS. The default suits a server on the same host or in the same network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The time to connect to one endpoint and read the schema. Default: 5 s, as long as a
    /// connected server may be silent before it is probed. Much less fails at a busy server; much
    /// more delays the next endpoint.
    pub connect_timeout: Duration,
    /// The server is probed when it was silent this long, and disconnected when it stays silent as
    /// long again; `None` disables probes. Default: 5 s, as in Open vSwitch
    /// (ovs-vswitchd.conf.db(5), `inactivity_probe`).
    pub probe_interval: Option<Duration>,
    /// How long a server may be silent while it prepares the rows of a monitor, whatever
    /// `probe_interval` is. It does nothing else meanwhile, which takes seconds for a large
    /// database, and a reconnection would make it start again. Default: 100 s. Much less could
    /// retry for ever; much more is noticed late if the server is dead.
    pub load_timeout: Duration,
    /// The limits on one message. Default: 64 MiB, nested 32 deep. The contents of a monitored
    /// database arrive as one message: 50,000 logical switch ports with addresses of both families
    /// and the usual ids are 25 MB.
    pub frame: FrameLimits,
    /// Bytes of updates that may wait for the reader of a monitor. Beyond them, the monitor of
    /// [`Updates`](crate::Updates) begins anew, and that of a [`Monitored`](crate::Monitored),
    /// which has no other way to report it, closes the connection. Default: 64 MiB, as for one
    /// message.
    pub backlog: usize,
    /// The first pause between attempts to connect; each further pause doubles. Each is cut at
    /// random by up to half. Default: 50 ms: the usual cause is a restart of the server, and every
    /// request fails until the connection is back.
    pub backoff_min: Duration,
    /// The longest pause between attempts to connect. Default: 8 s, as in Open vSwitch's own client
    /// (`lib/reconnect.h`).
    pub backoff_max: Duration,
    /// Whether a [`Client`](crate::Client) of a clustered database connects to the leader only,
    /// which writes without forwarding and has the newest contents. It leaves a follower, a member
    /// without a majority, a relay without its source, and a member behind what it has seen before,
    /// for the next endpoint. No effect on standalone servers. Default: false.
    pub leader_only: bool,
    /// Keys and certificates for `ssl:` endpoints, which need them. Default: `None`.
    pub ssl: Option<Ssl>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            probe_interval: Some(Duration::from_secs(5)),
            load_timeout: Duration::from_secs(100),
            frame: FrameLimits { size: 64 << 20, depth: 32 },
            backlog: 64 << 20,
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(8),
            leader_only: false,
            ssl: None,
        }
    }
}

impl Options {
    /// For the database of a whole cluster, whose contents arrive as one message: 500,000 logical
    /// switch ports are 250 MB, 100,000 ACLs of a kilobyte 100 MB. The limits on a message and on
    /// the backlog are 1 GiB.
    pub fn large() -> Self {
        let limits = Self::default().frame;
        Self { frame: FrameLimits { size: 1 << 30, ..limits }, backlog: 1 << 30, ..Self::default() }
    }

    /// For the database of one host's Open vSwitch, which is small: 4,000 ports with their ids are
    /// 3 MB. The limits on a message and on the backlog are 8 MiB, so that a process with several
    /// connections survives a server that misbehaves.
    pub fn small() -> Self {
        let limits = Self::default().frame;
        Self { frame: FrameLimits { size: 8 << 20, ..limits }, backlog: 8 << 20, ..Self::default() }
    }
}
