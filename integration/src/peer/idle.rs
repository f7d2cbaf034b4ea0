//! Connections that are kept and hardly used, as a slow or hostile client has them.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::Result;

use super::Report;

/// Between two looks at the connections, and two bytes of each.
const TURN: Duration = Duration::from_millis(500);
/// How long one connection may take to be made.
const PATIENCE: Duration = Duration::from_millis(200);

/// Keeps so many connections until the process is killed: each says this first, and a byte each
/// turn if that was anything. One that ends is made anew.
pub(super) fn keep(
    to: SocketAddr,
    count: usize,
    says: &str,
    report: impl Fn(&Report),
) -> Result<()> {
    let mut connections: Vec<Option<TcpStream>> = (0..count).map(|_| connect(to, says)).collect();
    report(&Report::Answering);
    loop {
        testkit::let_pass(TURN);
        for connection in &mut connections {
            let lives = connection.as_mut().is_some_and(|connection| goes_on(connection, says));
            if !lives {
                *connection = connect(to, says);
            }
        }
    }
}

/// None if the server takes no more.
fn connect(to: SocketAddr, says: &str) -> Option<TcpStream> {
    let mut connection = TcpStream::connect_timeout(&to, PATIENCE).ok()?;
    connection.set_nonblocking(true).ok()?;
    connection.write_all(says.as_bytes()).ok()?;
    Some(connection)
}

fn goes_on(connection: &mut TcpStream, says: &str) -> bool {
    let is_open = match connection.read(&mut [0; 1024]) {
        Ok(length) => length > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    };
    is_open && (says.is_empty() || connection.write_all(b"x").is_ok())
}
