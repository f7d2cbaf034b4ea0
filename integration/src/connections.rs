//! Short TCP connections, many a second: which server answered each of them or whether it was refused, and when.
//!
//! For what happens to new connections while a Service changes. A connection is begun at fixed times, whatever
//! became of the earlier ones: a client that waits for a lost SYN measures its own patience. It is closed with
//! RST: thousands of ports in TIME_WAIT would make later connections fail.
//!
//! The client and the servers run as `integration peer …` in pods; [`Connections`] and [`Server`] start them.

use std::{
    io::{BufRead as _, BufReader, ErrorKind, Lines},
    net::SocketAddr,
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket},
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{Lab, Pod, command, executable, peer::Report};

/// The time between two connections: the precision of what is measured. A small machine can begin as many.
pub const EVERY: Duration = Duration::from_millis(2);
/// A connection that is not answered by then was never going to be: twenty times the longest time measured.
const PATIENCE: Duration = Duration::from_secs(1);

/// A moment: nanoseconds of the monotonic clock, which all processes of a machine share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(u64);

/// A connection that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// When its first packet was sent.
    pub begun: Moment,
    /// When it was established, or refused.
    pub answered: Moment,
    /// The server's own address and port; none if the connection was refused.
    pub by: Option<SocketAddr>,
}

impl Moment {
    /// The present.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        let part = |number: i64| u64::try_from(number).unwrap_or_default();
        Self(part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec))
    }

    /// Milliseconds since an earlier moment; negative if it is later.
    pub fn milliseconds_since(self, earlier: Self) -> f64 {
        (self.0 as f64 - earlier.0 as f64) / 1e6
    }
}

/// Answers each connection with the address at which it arrived, until the process is killed.
pub(crate) fn serve(addresses: &[SocketAddr], report: impl Fn(&Report)) -> Result<()> {
    runtime()?.block_on(async {
        let mut serving = JoinSet::new();
        for address in addresses {
            let listener =
                TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
            serving.spawn(answer_all(listener, address.to_string()));
        }
        report(&Report::Answering);
        serving.join_all().await;
        Ok(())
    })
}

async fn answer_all(listener: TcpListener, text: String) {
    loop {
        // A client that is gone already is no reason to end.
        let Ok((mut stream, _)) = listener.accept().await else { continue };
        let text = text.clone();
        tokio::spawn(async move {
            let _ = stream.write_all(text.as_bytes()).await;
            let _ = stream.shutdown().await;
            // Until the client resets the connection.
            let _ = stream.read(&mut [0; 1]).await;
        });
    }
}

/// Begins a connection to the address at fixed times. Reports the first beat, and each connection that is
/// answered.
pub(crate) fn connect(to: SocketAddr, report: impl Fn(&Report) + Send + Sync + 'static) -> Result<()> {
    let report = Arc::new(report);
    runtime()?.block_on(async {
        let mut beat = interval(EVERY);
        beat.set_missed_tick_behavior(MissedTickBehavior::Skip);
        beat.tick().await;
        report(&Report::Connecting);
        loop {
            beat.tick().await;
            let report = Arc::clone(&report);
            tokio::spawn(async move {
                if let Ok(Ok(connection)) = timeout(PATIENCE, ask(to)).await {
                    report(&Report::Connected(connection));
                }
            });
        }
    })
}

async fn ask(to: SocketAddr) -> Result<Connection> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_zero_linger()?;
    let begun = Moment::now();
    let connected = socket.connect(to).await;
    let answered = Moment::now();
    let mut stream = match connected {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            return Ok(Connection { begun, answered, by: None });
        }
        other => other?,
    };
    let mut by = String::new();
    stream.read_to_string(&mut by).await?;
    Ok(Connection { begun, answered, by: Some(by.parse()?) })
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// A server in a pod, which ends when this is dropped.
#[derive(Debug)]
pub struct Server(Child);

/// A client in a pod, which ends when this is dropped.
#[derive(Debug)]
pub struct Connections {
    child: Child,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Vec<Connection>>,
    more: Condvar,
}

impl Lab {
    /// Starts a server in the pod, on these of its addresses and ports, and waits until it listens.
    pub fn answering(&self, pod: &Pod, addresses: &[SocketAddr]) -> Result<Server> {
        let mut command = self.node_of(pod).pod_command(pod, executable::of_package("integration")?);
        command.args(["peer", "answer"]).args(addresses.iter().map(ToString::to_string));
        let (child, _) = start(&mut command, &Report::Answering)?;
        Ok(Server(child))
    }

    /// Starts a client in the pod, and waits until it connects.
    pub fn connections(&self, from: &Pod, to: SocketAddr) -> Result<Connections> {
        let mut command = self.node_of(from).pod_command(from, executable::of_package("integration")?);
        command.args(["peer", "connect", &to.to_string()]);
        let (child, lines) = start(&mut command, &Report::Connecting)?;
        let shared = Arc::new(Shared::default());
        let noting = Arc::clone(&shared);
        // It ends with the client.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Ok(Report::Connected(connection)) = serde_json::from_str(&line) {
                    noting.seen().push(connection);
                    noting.more.notify_all();
                }
            }
        });
        Ok(Connections { child, shared })
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    /// Waits until `probe` finds something in the connections that were answered so far, in the order in which
    /// their answers were read.
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
                bail!("not within {patience:?}: {what}; {} connections, the last: {last:?}", seen.len());
            }
            seen = self.shared.more.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner).0;
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

    /// All answered connections so far.
    pub fn all(&self) -> Vec<Connection> {
        self.shared.seen().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Starts a peer, whose first line is `ready`, and returns its further lines.
fn start(command: &mut Command, ready: &Report) -> Result<(Child, Lines<BufReader<ChildStdout>>)> {
    let line = command::line(command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("start `{line}`"))?;
    let mut lines = BufReader::new(child.stdout.take().context("standard output is a pipe")?).lines();
    let said = lines.next().with_context(|| format!("`{line}` ended (its error is above)"))??;
    ensure!(serde_json::from_str::<Report>(&said)? == *ready, "`{line}` says {said}");
    Ok((child, lines))
}

/// Ends a peer. Errors are ignored: the traffic is over, and the process may have ended by itself.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
