//! A server that echoes, over TCP and UDP.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

/// Connections at once. Those of all clients of a test are fewer; a stranger must not take the
/// memory of the node.
const MOST: usize = 512;
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(600);
/// The largest datagram.
const DATAGRAM: usize = 65_535;

/// Listens on the port of every address. It serves until it is dropped.
pub(super) async fn start(port: u16) -> io::Result<JoinSet<()>> {
    let (listener, socket) = match bind(Ipv6Addr::UNSPECIFIED.into(), port).await {
        Ok(bound) => bound,
        // Without IPv6 in the kernel.
        Err(_) => bind(Ipv4Addr::UNSPECIFIED.into(), port).await?,
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(serve(listener));
    tasks.spawn(echo(socket));
    Ok(tasks)
}

async fn bind(address: IpAddr, port: u16) -> io::Result<(TcpListener, UdpSocket)> {
    let address = SocketAddr::new(address, port);
    Ok((TcpListener::bind(address).await?, UdpSocket::bind(address).await?))
}

async fn serve(listener: TcpListener) {
    let room = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(async move {
                    let _ = answer(stream).await;
                    drop(permit);
                });
            }
            // Out of descriptors, or the peer was faster: the next one may be better.
            Err(_) => tokio::time::sleep(super::PAUSE).await,
        }
    }
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match timeout(IDLE, stream.read(&mut buffer)).await {
            Ok(Ok(count)) if count > 0 => stream.write_all(&buffer[..count]).await?,
            _ => return Ok(()),
        }
    }
}

async fn echo(socket: UdpSocket) {
    let mut buffer = vec![0; DATAGRAM];
    loop {
        if let Ok((count, from)) = socket.recv_from(&mut buffer).await {
            let _ = socket.send_to(&buffer[..count], from).await;
        }
    }
}
