//! Byte streams to endpoints. The one place that knows how each kind of endpoint is reached.

use std::io;

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

use crate::{closed::ConnectFault, endpoint::Endpoint};

/// The two directions of a connection, whatever it is made of.
pub(crate) struct Stream {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
}

impl Stream {
    /// Has no deadline of its own: the kernel's for TCP is minutes.
    pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Self, ConnectFault> {
        match endpoint {
            Endpoint::Unix(path) => {
                let (reader, writer) = UnixStream::connect(path).await?.into_split();
                Ok(Self { reader: Box::new(reader), writer: Box::new(writer) })
            }
            Endpoint::Tcp { host, port } => Ok(Self::tcp(host, *port).await?),
            // To be added here: tokio-rustls over the stream of `tcp`, and its certificates in `Options`.
            Endpoint::Ssl { .. } => Err(ConnectFault::Ssl),
        }
    }

    async fn tcp(host: &str, port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((host, port)).await?;
        // Requests are written whole; waiting for more to send only delays them.
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        Ok(Self { reader: Box::new(reader), writer: Box::new(writer) })
    }
}
