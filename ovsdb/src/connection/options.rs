//! How patient and how generous a client is.

use std::time::Duration;

use crate::{frame::FrameLimits, ssl::Ssl};

/// Times and limits; the default suits a server on the same host or near it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// For connecting and reading the schema, at one endpoint. 5 s, as long as a connected server may be silent.
    pub connect_timeout: Duration,
    /// After this long without a word the server is probed, and dropped if it stays silent as long again; `None` never does.
    /// 5 s, the default of Open vSwitch (ovs-vswitchd.conf.db(5), `inactivity_probe`).
    pub probe_interval: Option<Duration>,
    /// How long a server that was asked for the rows of a monitor may be silent, whatever the probes: it does nothing else until it has put
    /// them together, which takes seconds for the database of a large cluster, and asking again would only make it begin again. 100 s, upstream's
    /// probe interval.
    pub load_timeout: Duration,
    /// What one message may be. 64 MiB, nested 32 deep; the contents of a monitored database come as one message: 50,000 logical switch
    /// ports with addresses of both families and the usual ids are 25 MB.
    pub frame: FrameLimits,
    /// Bytes of updates that may wait for the reader of a monitor before the connection is given up. 64 MiB.
    pub backlog: usize,
    /// The first pause between attempts to reconnect, which then doubles. 50 ms: the usual cause is a restart of the server, and every request fails
    /// until the connection is back. Each pause is cut by up to half, at random.
    pub backoff_min: Duration,
    /// The longest pause between attempts to reconnect. 8 s, as in Open vSwitch's own client (`lib/reconnect.h`).
    pub backoff_max: Duration,
    /// Of a [`Client`](crate::Client) of a clustered database: whether it wants the leader, who alone writes without detours and knows what is
    /// written. A follower, a member that lost the others, and one that is behind what was seen before are left for the next
    /// endpoint. Servers without a cluster are all the same to it. Not the default.
    pub leader_only: bool,
    /// For endpoints of the kind `ssl:`, which cannot be reached without. None.
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
    /// For the database of a whole cluster, whose contents come as one message: 500,000 logical switch ports are 250 MB, 100,000 ACLs of a kilobyte
    /// 100 MB. A message may have 1 GiB, and so much may wait.
    pub fn large() -> Self {
        let limits = Self::default().frame;
        Self { frame: FrameLimits { size: 1 << 30, ..limits }, backlog: 1 << 30, ..Self::default() }
    }

    /// For the database of one host's Open vSwitch, which is small: 4,000 ports with their ids are 3 MB. A message may have 8 MiB, and so much
    /// may wait, so that a process with several connections to a server that has lost its mind keeps its own.
    pub fn small() -> Self {
        let limits = Self::default().frame;
        Self { frame: FrameLimits { size: 8 << 20, ..limits }, backlog: 8 << 20, ..Self::default() }
    }
}
