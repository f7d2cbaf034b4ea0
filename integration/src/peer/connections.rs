//! The two ends of short TCP connections: a server that names the address at which a connection
//! arrived, and a client that begins connections at fixed times, whatever became of the earlier
//! ones. A client that waits for a lost SYN measures its own patience. A connection is closed with
//! RST: thousands of ports in TIME_WAIT would make later ones fail.

use std::{
    io::{ErrorKind, stdin},
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, UdpSocket},
    sync::mpsc::unbounded_channel,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use super::{PATIENCE, Report};

/// How often connections are begun, and how long each may take.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The time between two connections: the precision of what is measured.
    pub every: Duration,
    /// A connection that is not answered by then was never going to be.
    pub patience: Duration,
}

impl Pace {
    /// For latencies: as many as a small machine can begin, and twenty times the longest time
    /// measured.
    pub const FAST: Self =
        Self { every: Duration::from_millis(2), patience: Duration::from_secs(1) };
    /// For errors: TCP repeats a lost SYN each second, which a client does not notice as an error.
    pub const PATIENT: Self =
        Self { every: Duration::from_millis(10), patience: Duration::from_secs(6) };
}

/// The part of the time so far after which [`reach`] begins the next connection, if that is longer
/// than its pace: the precision of what is measured. Hundreds of clients that wait for the same
/// thing must not be what it waits for.
const PRECISION: u32 = 20;

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

/// What a server answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// The address at which a connection or datagram arrived.
    Server,
    /// The address from which it came, as the server sees it.
    Client,
}

impl Says {
    fn of(self, server: SocketAddr, client: SocketAddr) -> String {
        match self {
            Self::Server => server.to_string(),
            Self::Client => client.to_string(),
        }
    }
}

/// Answers each connection and each datagram, until the process is killed.
pub(super) fn serve(addresses: &[SocketAddr], says: Says, report: impl Fn(&Report)) -> Result<()> {
    runtime()?.block_on(async {
        let mut serving = JoinSet::new();
        for address in addresses {
            let listener =
                TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
            serving.spawn(answer_all(listener, *address, says));
            let socket =
                UdpSocket::bind(address).await.with_context(|| format!("receive on {address}"))?;
            serving.spawn(answer_datagrams(socket, *address, says));
        }
        report(&Report::Answering);
        serving.join_all().await;
        Ok(())
    })
}

async fn answer_all(listener: TcpListener, server: SocketAddr, says: Says) {
    loop {
        // A client that is gone already is no reason to end.
        let Ok((mut stream, client)) = listener.accept().await else { continue };
        let text = says.of(server, client);
        tokio::spawn(async move {
            let _ = stream.write_all(text.as_bytes()).await;
            let _ = stream.shutdown().await;
            // Until the client resets the connection.
            let _ = stream.read(&mut [0; 1]).await;
        });
    }
}

async fn answer_datagrams(socket: UdpSocket, server: SocketAddr, says: Says) {
    loop {
        // Errors are of earlier answers, whose receivers are gone.
        let Ok((_, from)) = socket.recv_from(&mut [0; 64]).await else { continue };
        let _ = socket.send_to(says.of(server, from).as_bytes(), from).await;
    }
}

/// Begins a connection to the address at fixed times. Reports the first beat, and what becomes of
/// each connection.
pub(super) fn connect(
    to: SocketAddr,
    Pace { every, patience }: Pace,
    report: impl Fn(&Report) + Send + Sync + 'static,
) -> Result<()> {
    let report = Arc::new(report);
    runtime()?.block_on(async {
        let mut beat = interval(every);
        beat.set_missed_tick_behavior(MissedTickBehavior::Skip);
        beat.tick().await;
        report(&Report::Connecting);
        loop {
            beat.tick().await;
            let report = Arc::clone(&report);
            tokio::spawn(async move {
                let begun = Moment::now();
                match timeout(patience, ask(to, || {})).await {
                    Ok(Ok(connection)) => report(&Report::Connected(connection)),
                    Ok(Err(_)) | Err(_) => report(&Report::Unanswered(begun)),
                }
            });
        }
    })
}

/// Begins connections to each address that a line on standard input names, until one of them is
/// answered, which it reports. Ends with standard input.
pub(super) fn reach(
    Pace { every, patience }: Pace,
    report: impl Fn(&Report) + Send + Sync + 'static,
) -> Result<()> {
    let report = Arc::new(report);
    let (told, mut lines) = unbounded_channel();
    thread::spawn(move || {
        stdin().lines().map_while(Result::ok).try_for_each(|line| told.send(line))
    });
    runtime()?.block_on(async {
        report(&Report::Connecting);
        while let Some(line) = lines.recv().await {
            let to = line.parse().with_context(|| format!("{line} is no address"))?;
            tokio::spawn(first_answer(to, Pace { every, patience }, Arc::clone(&report)));
        }
        Ok(())
    })
}

async fn first_answer(
    to: SocketAddr,
    Pace { every, patience }: Pace,
    report: Arc<impl Fn(&Report)>,
) {
    let (begun, mut asking) = (Instant::now(), JoinSet::new());
    loop {
        asking.spawn(timeout(patience, ask(to, || {})));
        let pause = sleep(every.max(begun.elapsed() / PRECISION));
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => break,
                Some(asked) = asking.join_next() => if let Ok(Ok(Ok(connection))) = asked {
                    report(&Report::Connected(connection));
                    return;
                },
            }
        }
    }
}

/// Connects again and again for this time, each time when the one before was answered. Returns
/// microseconds of each.
pub(super) fn repeat(to: SocketAddr, time: Duration) -> Result<Vec<u32>> {
    runtime()?.block_on(async {
        let (end, mut taken) = (Instant::now() + time, Vec::new());
        while Instant::now() < end {
            let begun = Instant::now();
            let connection = timeout(PATIENCE, ask(to, || {}))
                .await
                .with_context(|| format!("{to} is silent"))??;
            ensure!(connection.by.is_some(), "{to} refused a connection, after {}", taken.len());
            taken.push(u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
        Ok(taken)
    })
}

/// Connects and reads what the server says; `accepted` is called between both.
pub(super) async fn ask(to: SocketAddr, accepted: impl Fn() + Send) -> Result<Connection> {
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
    accepted();
    let mut by = String::new();
    stream.read_to_string(&mut by).await?;
    Ok(Connection { begun, answered, by: Some(by.parse()?) })
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
