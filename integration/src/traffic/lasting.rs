//! Long TCP connections with a byte now and then, as of idle ssh sessions: they must survive what a
//! node goes through. Where a byte does not come back, the error shows the path.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, bail, ensure};

use super::{Echo, End};
use crate::{
    Lab, command, eventually,
    peer::{Kept, PeerProcess, Report},
};

/// Often enough that each gap of the path is noticed.
const OFTEN: Duration = Duration::from_millis(100);
/// How long a byte of connections that last may take, whatever happens to the node's programs.
const LONGEST: Duration = Duration::from_secs(10);
/// Limit for the path of a new connection to work, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// What an end knows of its connections.
const END: &str = "ss -tnoie; ip neigh; ip addr; ip route; ip -6 route";
/// What a node's Open vSwitch and its kernel do with packets. The flows of br-int are too many to
/// be read; the datapath has those that are used.
const NODE: &str =
    "ovs-appctl dpctl/dump-flows -m; ovs-appctl dpctl/dump-conntrack; nft list ruleset
    for bridge in $(ovs-vsctl list-br | grep -vx br-int); do
        ovs-ofctl -O OpenFlow14 dump-flows $bridge; ovs-appctl fdb/show $bridge
    done";

/// A long TCP connection.
#[derive(Debug)]
pub struct Drip {
    client: PeerProcess,
}

/// Long TCP connections from one end to another, and the servers at their other end.
#[derive(Debug)]
pub struct Lasting<'l> {
    lab: &'l Lab,
    client: End<'l>,
    server: End<'l>,
    servers: Vec<Echo>,
    connections: Vec<Drip>,
}

impl Lab {
    /// One connection to [such a server](Lab::tcp_echo), with a byte each `every`. Waits until the
    /// first one is back.
    pub fn drip(&self, from: &End<'_>, to: SocketAddr, every: Duration) -> Result<Drip> {
        let every = every.as_millis().to_string();
        let mut command = self.at(from)?;
        command.args(["tcp-drip", &to.to_string(), "--every", &every]);
        Ok(Drip { client: PeerProcess::start_ready(&mut command, &Report::Connecting)? })
    }

    /// Begins a connection from `client` to each of these addresses of `server`.
    pub fn lasting<'l>(
        &'l self,
        client: End<'l>,
        server: End<'l>,
        to: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Lasting<'l>> {
        self.lasting_by(client, server, to.into_iter().map(|to| (to, to)))
    }

    /// The same, with the address where the server listens and the one that leads there: of a
    /// Service.
    pub fn lasting_by<'l>(
        &'l self,
        client: End<'l>,
        server: End<'l>,
        to: impl IntoIterator<Item = (SocketAddr, SocketAddr)>,
    ) -> Result<Lasting<'l>> {
        let mut lasting =
            Lasting { lab: self, client, server, servers: Vec::new(), connections: Vec::new() };
        for (at, by) in to {
            lasting.servers.push(self.tcp_echo(&server, at)?);
            let begin = || self.drip(&client, by, OFTEN);
            lasting.connections.push(eventually(&format!("a connection to {by}"), SOON, begin)?);
        }
        Ok(lasting)
    }
}

impl Drip {
    /// Ends the connection; how it went.
    ///
    /// # Errors
    /// If it has broken, or a byte did not come back.
    pub fn stop(self) -> Result<Kept> {
        self.stop_or(Duration::MAX, String::new)
    }

    /// The same. Where the last byte is not back within `limit`, the error has what `look` sees
    /// then.
    fn stop_or(mut self, limit: Duration, look: impl FnOnce() -> String) -> Result<Kept> {
        self.client.end_input();
        let seen = if self.client.reports_within(limit)? { None } else { Some(look()) };
        let kept = self.client.report().and_then(|report| match report {
            Report::Kept(kept) => Ok(kept),
            other => bail!("the client reports {other:?}"),
        });
        match seen {
            None => kept,
            Some(seen) => bail!("{kept:?}, silent for more than {limit:?}:\n{seen}"),
        }
    }
}

impl Lasting<'_> {
    /// Ends the connections, all of which have lived until now.
    ///
    /// # Errors
    /// If one has broken, or a byte took more than ten seconds. If it has not come back by then,
    /// the error says what both ends and the switches have of the connection.
    pub fn end(self) -> Result<()> {
        let Self { lab, client, server, servers, connections } = self;
        for connection in connections {
            let kept = connection.stop_or(LONGEST, || path(lab, &[client, server]))?;
            ensure!(Duration::from_millis(kept.slowest) < LONGEST, "{kept:?}");
        }
        drop(servers);
        Ok(())
    }
}

/// Both ends, and each node.
fn path(lab: &Lab, ends: &[End<'_>]) -> String {
    let ends = ends.iter().map(|end| (*end, END));
    let nodes = lab.nodes.iter().map(|node| (End::Node(node), NODE));
    let places = ends.chain(nodes).map(|(place, script)| {
        // Without `-e`: what one command cannot say, the next may.
        let mut shell = lab.command_at(&place, "sh");
        let seen = command::output(shell.args(["-c", &format!("({script}) 2>&1; true")]))
            .unwrap_or_else(|error| format!("{error:#}"));
        format!("{place}:\n{seen}")
    });
    places.collect::<Vec<_>>().join("\n")
}
