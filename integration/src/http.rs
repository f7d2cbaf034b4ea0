//! HTTP/1.1 on a unix socket, one request per connection. Must not know what the requests are for.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result};

/// How long the server may be silent. A server that hangs fails the test before the runner ends it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connects to the server that listens on `socket`.
pub fn connect(socket: &Path) -> Result<UnixStream> {
    UnixStream::connect(socket).with_context(|| format!("connect to {}", socket.display()))
}

/// Sends a request without reading the answer.
pub fn send(stream: &mut UnixStream, path: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: dummy\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: {length}\r\n\
         Content-Type: application/json\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Sends a request and reads the answer: status and body.
///
/// # Errors
/// If the connection fails, the server is silent for 20 s, or the answer is not HTTP.
pub fn post(mut stream: UnixStream, path: &str, body: &str) -> Result<(u16, String)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    send(&mut stream, path, body)?;
    // `Connection: close`: the answer ends with the connection.
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("the answer")?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("not HTTP: {answer:?}"))?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .with_context(|| format!("no status in {head:?}"))?;
    Ok((status, body.to_owned()))
}
