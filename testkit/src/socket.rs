//! A unix socket or one of TCP, whichever the peer uses.

use std::{
    fmt, io,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
};

use anyhow::{Context as _, Result};

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    /// Port 0: one that the kernel chooses.
    Tcp(SocketAddr),
}

#[derive(Debug)]
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl From<PathBuf> for Address {
    fn from(path: PathBuf) -> Self {
        Self::Unix(path)
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(formatter, "{}", path.display()),
            Self::Tcp(address) => write!(formatter, "{address}"),
        }
    }
}

impl Address {
    /// Listens here. Returns the address, too, with the port that the kernel has chosen.
    pub(crate) fn listen(&self) -> Result<(Listener, Self)> {
        let bound = match self {
            Self::Unix(path) => {
                UnixListener::bind(path).map(|listener| (Listener::Unix(listener), self.clone()))
            }
            Self::Tcp(address) => TcpListener::bind(address).and_then(|listener| {
                let address = Self::Tcp(listener.local_addr()?);
                Ok((Listener::Tcp(listener), address))
            }),
        };
        bound.with_context(|| format!("listen on {self}"))
    }

    pub(crate) fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                // A byte passes as soon as it is written, as on a unix socket.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }
}

impl Listener {
    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }
}

impl Stream {
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
        }
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.shutdown(how),
            Self::Tcp(stream) => stream.shutdown(how),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => Read::read(&mut { stream }, buffer),
            Stream::Tcp(stream) => Read::read(&mut { stream }, buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => Write::write(&mut { stream }, bytes),
            Stream::Tcp(stream) => Write::write(&mut { stream }, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
