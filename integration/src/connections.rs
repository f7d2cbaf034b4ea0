//! Short TCP connections, many a second: which server answered each of them or whether it was
//! refused, and when.
//!
//! For what happens to new connections while a Service changes. The client and the servers run as
//! `integration peer …` in pods; [`Connections`] and [`Server`] start them.

use std::{
    net::SocketAddr,
    process::Command,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use crate::{
    Lab, Pod, command,
    peer::{Connection, Held, Moment, Pace, PeerProcess, Poured, Report},
    traffic::End,
    world::Machine,
};

/// A server in a pod, which ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    _peer: PeerProcess,
}

/// A client in a pod, which ends when this is dropped.
#[derive(Debug)]
pub struct Connections {
    client: Held,
    shared: Arc<Shared>,
}

/// A client in a pod that connects where and when it is told to; ends when this is dropped.
#[derive(Debug)]
pub struct Reaching {
    /// What it has reached.
    pub connections: Connections,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Vec<Connection>>,
    unanswered: Mutex<Vec<Moment>>,
    more: Condvar,
}

impl Lab {
    /// Starts a server in the pod, on these of its addresses and ports, and waits until it listens.
    pub fn answering(&self, pod: &Pod, addresses: &[SocketAddr]) -> Result<Server> {
        self.answering_at(&End::Pod(pod), addresses)
    }

    /// The same at any end.
    pub fn answering_at(&self, at: &End<'_>, addresses: &[SocketAddr]) -> Result<Server> {
        let mut command = self.at(at)?;
        command.arg("answer").args(addresses.iter().map(ToString::to_string));
        Server::start(&mut command)
    }

    /// Starts a server at that end, on these of its addresses and ports, which answers with the
    /// address of its client as it sees it; waits until it listens.
    pub fn mirroring(&self, at: &End<'_>, addresses: &[SocketAddr]) -> Result<Server> {
        let mut command = self.at(at)?;
        command.args(["answer", "--client"]).args(addresses.iter().map(ToString::to_string));
        Server::start(&mut command)
    }

    /// Starts a server of SCTP in the pod, on these of its addresses and ports, and waits until it
    /// receives.
    pub fn answering_sctp(&self, pod: &Pod, addresses: &[SocketAddr]) -> Result<Server> {
        let mut command = self.at(&End::Pod(pod))?;
        command.arg("sctp-answer").args(addresses.iter().map(ToString::to_string));
        Server::start(&mut command)
    }

    /// The same outside of the cluster, at this port of all addresses of a machine. Returns them,
    /// too.
    pub fn mirroring_outside(
        &self,
        machine: Machine,
        port: u16,
    ) -> Result<(Server, Vec<SocketAddr>)> {
        let addresses = self.world().addresses(machine);
        let addresses: Vec<_> = addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        Ok((self.mirroring(&End::World(machine), &addresses)?, addresses))
    }

    /// Keeps so many connections from that end, each of which says this and then hardly anything,
    /// until they are dropped.
    pub fn keeping(
        &self,
        from: &End<'_>,
        to: SocketAddr,
        count: usize,
        says: &str,
    ) -> Result<Server> {
        let mut command = self.at(from)?;
        command.args(["keep", &to.to_string(), "--count", &count.to_string(), "--says", says]);
        Server::start(&mut command)
    }

    /// Starts a client in the pod, and waits until it connects.
    pub fn connections(&self, from: &Pod, to: SocketAddr, pace: Pace) -> Result<Connections> {
        self.connections_from(&End::Pod(from), to, pace)
    }

    /// The same from any end.
    pub fn connections_from(
        &self,
        from: &End<'_>,
        to: SocketAddr,
        pace: Pace,
    ) -> Result<Connections> {
        let mut command = self.at(from)?;
        command.args(["connect", &to.to_string()]);
        Connections::start(&mut command, pace)
    }

    /// Starts a client in the pod, whose namespace needs no interface yet, and waits until it can
    /// be told to connect.
    pub fn reaching(&self, from: &Pod, pace: Pace) -> Result<Reaching> {
        let mut command = self.at(&End::Pod(from))?;
        Ok(Reaching { connections: Connections::start(command.arg("reach"), pace)? })
    }
}

impl Lab {
    /// Connects from the pod one time after the other. Returns microseconds of each connection,
    /// from its first packet to its answer.
    ///
    /// # Errors
    /// If a connection is refused, or not answered.
    pub fn repeated(&self, from: &Pod, to: SocketAddr, time: Duration) -> Result<Vec<u32>> {
        self.repeated_from(&End::Pod(from), to, time)
    }

    /// The same from any end.
    pub fn repeated_from(
        &self,
        from: &End<'_>,
        to: SocketAddr,
        time: Duration,
    ) -> Result<Vec<u32>> {
        let mut command = self.at(from)?;
        command.args(["repeat", &to.to_string(), "--time", &time.as_millis().to_string()]);
        match serde_json::from_str(&command::output(&mut command)?)? {
            Report::Repeated(taken) => Ok(taken),
            other => bail!("the client reports {other:?}"),
        }
    }

    /// Starts a server at that end, on this of its addresses, which reads what [`Lab::poured`]
    /// sends; waits until it listens.
    pub fn draining(&self, at: &End<'_>, address: SocketAddr) -> Result<Server> {
        let mut command = self.at(at)?;
        command.args(["tcp-drain", &address.to_string()]);
        Server::start(&mut command)
    }

    /// Sends to such a server over one connection, for this time.
    pub fn poured(&self, from: &End<'_>, to: SocketAddr, time: Duration) -> Result<Poured> {
        let mut command = self.at(from)?;
        command.args(["tcp-pour", &to.to_string(), "--time", &time.as_millis().to_string()]);
        match serde_json::from_str(&command::output(&mut command)?)? {
            Report::Poured(poured) => Ok(poured),
            other => bail!("the client reports {other:?}"),
        }
    }
}

impl Server {
    fn start(command: &mut Command) -> Result<Self> {
        Ok(Self { _peer: PeerProcess::start_ready(command, &Report::Answering)? })
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unanswered(&self) -> MutexGuard<'_, Vec<Moment>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    fn start(command: &mut Command, pace: Pace) -> Result<Self> {
        for (option, time) in [("--every", pace.every), ("--patience", pace.patience)] {
            command.args([option, &time.as_millis().to_string()]);
        }
        let client = PeerProcess::start_ready(command, &Report::Connecting)?;
        let shared = Arc::new(Shared::default());
        let noting = Arc::clone(&shared);
        let client = client.follow(move |report| {
            match report {
                Report::Connected(connection) => noting.seen().push(connection),
                Report::Unanswered(begun) => noting.unanswered().push(begun),
                _ => {}
            }
            noting.more.notify_all();
        });
        Ok(Self { client, shared })
    }

    /// Waits until `probe` finds something in the connections that were answered so far, in the
    /// order in which their answers were read.
    ///
    /// # Errors
    /// It finds nothing within `patience`.
    pub fn wait<R>(
        &self,
        what: &str,
        patience: Duration,
        mut probe: impl FnMut(&[Connection]) -> Option<R>,
    ) -> Result<R> {
        let end = Instant::now() + patience;
        let mut seen = self.shared.seen();
        loop {
            if let Some(found) = probe(&seen) {
                return Ok(found);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let last = seen.last();
                bail!(
                    "not within {patience:?}: {what}; {} connections, the last: {last:?}",
                    seen.len()
                );
            }
            seen =
                self.shared.more.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the first connection that this server answers.
    ///
    /// # Errors
    /// It answers none within `patience`.
    pub fn first_by(&self, server: SocketAddr, patience: Duration) -> Result<Connection> {
        let what = format!("a connection is answered by {server}");
        self.wait(&what, patience, |seen| {
            seen.iter().find(|connection| connection.by == Some(server)).copied()
        })
    }

    /// When connections so far were begun that were neither answered nor refused in time.
    pub fn unanswered(&self) -> Vec<Moment> {
        self.shared.unanswered().clone()
    }

    /// All answered connections so far.
    pub fn all(&self) -> Vec<Connection> {
        self.shared.seen().clone()
    }
}

impl Reaching {
    /// Lets it connect there from now on, until one connection is answered or refused.
    pub fn reach(&mut self, to: SocketAddr) -> Result<()> {
        self.connections.client.tell(&to.to_string())
    }
}
