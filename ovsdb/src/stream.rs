//! Byte streams to endpoints. The one place that knows how each kind of endpoint is reached.

use std::io;

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

use crate::{
    closed::ConnectFault,
    endpoint::Endpoint,
    ssl::{Ssl, SslError},
};

/// The two directions of a connection, whatever it is made of.
pub(crate) struct Stream {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What was written is on its way once it is flushed.
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
}

impl Stream {
    /// Has no deadline of its own: the kernel's for TCP is minutes.
    pub(crate) async fn connect(endpoint: &Endpoint, ssl: Option<&Ssl>) -> Result<Self, ConnectFault> {
        match endpoint {
            Endpoint::Unix(path) => {
                let (reader, writer) = UnixStream::connect(path).await?.into_split();
                Ok(Self { reader: Box::new(reader), writer: Box::new(writer) })
            }
            Endpoint::Tcp { host, port } => {
                let (reader, writer) = tcp(host, *port).await?.into_split();
                Ok(Self { reader: Box::new(reader), writer: Box::new(writer) })
            }
            Endpoint::Ssl { host, port } => Self::secured(host, *port, ssl.ok_or(SslError::NotConfigured)?).await,
        }
    }

    #[cfg(feature = "ssl")]
    async fn secured(host: &str, port: u16, ssl: &Ssl) -> Result<Self, ConnectFault> {
        let (reader, writer) = tokio::io::split(crate::ssl::connect(host, port, ssl).await?);
        Ok(Self { reader: Box::new(reader), writer: Box::new(writer) })
    }

    #[cfg(not(feature = "ssl"))]
    #[expect(clippy::unused_async, reason = "the same signature as with the feature")]
    async fn secured(_host: &str, _port: u16, _ssl: &Ssl) -> Result<Self, ConnectFault> {
        Err(SslError::NotBuiltIn.into())
    }
}

pub(crate) async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    // Requests are written whole; waiting for more to send only delays them.
    stream.set_nodelay(true)?;
    Ok(stream)
}
