//! One question to each of many addresses, over TCP or UDP, and which server answers it.

use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tokio::{net::UdpSocket, task::JoinSet, time::timeout};

use super::connections::{ask, runtime};

/// Long enough on a busy machine, short enough to ask again: flows may still be on their way.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// What becomes of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The server with this address and port answers.
    By(SocketAddr),
    /// It is refused.
    Refused,
    /// A connection is accepted, and nothing comes over it in time.
    Silence,
    /// Nothing comes in time.
    Nothing,
}

impl Reply {
    /// The address that the server names: its own, or its client's where it answers with that.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::By(named) => Some(named.ip()),
            Self::Refused | Self::Silence | Self::Nothing => None,
        }
    }
}

/// Asks all of them at once.
pub(super) fn ask_all(tcp: &[SocketAddr], udp: &[SocketAddr]) -> Result<[Vec<Reply>; 2]> {
    runtime()?.block_on(async {
        let mut asking = JoinSet::new();
        for (number, to) in tcp.iter().copied().enumerate() {
            asking.spawn(
                async move { ((0, number), ask_by_tcp(to).await.unwrap_or(Reply::Nothing)) },
            );
        }
        for (number, to) in udp.iter().copied().enumerate() {
            asking.spawn(async move { ((1, number), within(ask_by_udp(to)).await) });
        }
        let mut replies = [tcp, udp].map(|asked| vec![Reply::Nothing; asked.len()]);
        for ((protocol, number), reply) in asking.join_all().await {
            replies[protocol][number] = reply;
        }
        Ok(replies)
    })
}

async fn within(asked: impl Future<Output = Result<Reply>>) -> Reply {
    timeout(PATIENCE, asked).await.ok().and_then(Result::ok).unwrap_or(Reply::Nothing)
}

async fn ask_by_tcp(to: SocketAddr) -> Result<Reply> {
    let accepted = AtomicBool::new(false);
    match timeout(PATIENCE, ask(to, || accepted.store(true, Ordering::Relaxed))).await {
        Ok(Ok(connection)) => Ok(connection.by.map_or(Reply::Refused, Reply::By)),
        Ok(Err(_)) | Err(_) if accepted.load(Ordering::Relaxed) => Ok(Reply::Silence),
        Ok(Err(error)) => Err(error),
        Err(_) => Ok(Reply::Nothing),
    }
}

async fn ask_by_udp(to: SocketAddr) -> Result<Reply> {
    let any: IpAddr = if to.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(to).await?;
    socket.send(b"?").await?;
    let mut answer = [0; 64];
    match socket.recv(&mut answer).await {
        Ok(length) => Ok(Reply::By(std::str::from_utf8(&answer[..length])?.parse()?)),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(Reply::Refused),
        Err(error) => Err(error.into()),
    }
}
