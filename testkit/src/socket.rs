//! A stream socket, unix or TCP, whichever the peer uses.

use std::{fmt, io, net::SocketAddr, path::PathBuf};

use anyhow::{Context as _, Result};
use socket2::{Domain, SockAddr, Socket, Type};

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    /// Port 0: one that the kernel chooses.
    Tcp(SocketAddr),
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
    pub(crate) fn listen(&self) -> Result<(Socket, Self)> {
        let bound = || {
            let (socket, name) = self.socket()?;
            socket.bind(&name)?;
            // As the standard library does.
            socket.listen(128)?;
            let address = socket.local_addr()?.as_socket().map_or_else(|| self.clone(), Self::Tcp);
            io::Result::Ok((socket, address))
        };
        bound().with_context(|| format!("listen on {self}"))
    }

    pub(crate) fn connect(&self) -> io::Result<Socket> {
        let (socket, name) = self.socket()?;
        socket.connect(&name)?;
        Ok(socket)
    }

    fn socket(&self) -> io::Result<(Socket, SockAddr)> {
        let (domain, name) = match self {
            Self::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
            Self::Tcp(address) => (Domain::for_address(*address), SockAddr::from(*address)),
        };
        Ok((Socket::new(domain, Type::STREAM, None)?, name))
    }
}
