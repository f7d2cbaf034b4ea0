//! Byte streams to endpoints. Only this file knows how to connect to each kind of endpoint.

use std::{io, path::Path, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
    time::sleep,
};

use crate::{
    endpoint::Endpoint,
    error::{ConnectFault, SslError},
    ssl::Ssl,
    tcp,
};

/// The first pause between attempts to connect to a server whose queue of connections is full. A
/// server that is not busy accepts a connection in much less time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The longest such pause, and so the time that a caller may lose once there is room in the queue.
/// 60 attempts a second cost the server nothing, because the kernel refuses them.
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// The two directions of a connection, of any transport.
pub(crate) struct Stream {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    /// Written bytes may stay in a buffer until they are flushed (TLS).
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
}

impl Stream {
    /// Connects. The caller sets a deadline: the kernel's own for TCP is minutes.
    pub(crate) async fn connect(
        endpoint: &Endpoint,
        ssl: Option<&Ssl>,
    ) -> Result<Self, ConnectFault> {
        match endpoint {
            Endpoint::Unix(path) => {
                let (reader, writer) = unix(path).await?.into_split();
                Ok(Self { reader: Box::new(reader), writer: Box::new(writer) })
            }
            Endpoint::Tcp { host, port } => {
                let (reader, writer) = tcp::connect(host, *port).await?.into_split();
                Ok(Self { reader: Box::new(reader), writer: Box::new(writer) })
            }
            Endpoint::Ssl { host, port } => {
                let (reader, writer) =
                    ssl.ok_or(SslError::NotConfigured)?.connect(host, *port).await?;
                Ok(Self { reader, writer })
            }
        }
    }
}

/// Connects to a unix socket, and retries while the server's queue is full. ovsdb-server listens
/// with a backlog of 64. Beyond it the kernel returns `EAGAIN` to a non-blocking connect, and only
/// a connect that blocks its thread waits for room.
async fn unix(path: &Path) -> io::Result<UnixStream> {
    let mut pause = SHORTEST_PAUSE;
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(pause).await,
            connected => return connected,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixSocket;

    use super::*;

    #[tokio::test]
    async fn a_server_that_is_behind_with_accepting_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db.sock");
        let socket = UnixSocket::new_stream().unwrap();
        socket.bind(&path).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            match UnixStream::connect(&path).await {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(full, io::ErrorKind::WouldBlock);
        let connect = tokio::spawn(async move { unix(&path).await.map(drop) });
        for _ in 0..=waiting.len() {
            listener.accept().await.unwrap();
        }
        connect.await.unwrap().unwrap();
    }
}
