//! Connects over TCP, with or without TLS on top.

use std::io;

use tokio::net::TcpStream;

pub(crate) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    // Requests are written in one piece. Nagle's algorithm would only delay them.
    stream.set_nodelay(true)?;
    Ok(stream)
}
