//! The two ends of a stream of bytes: how many arrive in a time. Nothing is computed of the bytes,
//! so that the network is what takes the time.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::{PATIENCE, Report};

const BLOCK: usize = 1 << 18;

/// A stream that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poured {
    pub bytes: u64,
    /// Until the other end had read all of it.
    pub microseconds: u64,
}

impl Poured {
    /// Megabits a second.
    pub fn megabits(self) -> f64 {
        self.bytes as f64 * 8.0 / (self.microseconds as f64).max(1.0)
    }
}

/// Reads what each connection sends to its end, until the process is killed.
pub(super) fn drain(address: SocketAddr, report: impl Fn(&Report)) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("listen on {address}"))?;
    report(&Report::Answering);
    loop {
        let (mut stream, _) = listener.accept()?;
        thread::spawn(move || {
            let mut block = vec![0; BLOCK];
            // A client that is gone is no reason to end.
            while stream.read(&mut block).is_ok_and(|length| length > 0) {}
        });
    }
}

/// Sends for this time, and waits until the other end has read all of it and closes.
pub(super) fn pour(to: SocketAddr, time: Duration) -> Result<Poured> {
    let mut stream =
        TcpStream::connect_timeout(&to, PATIENCE).with_context(|| format!("connect to {to}"))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (block, begun, mut bytes) = (vec![0; BLOCK], Instant::now(), 0);
    while begun.elapsed() < time {
        stream.write_all(&block).with_context(|| format!("write to {to} after {bytes} bytes"))?;
        bytes += block.len() as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    stream.read_to_end(&mut Vec::new()).context("wait for the other end")?;
    Ok(Poured { bytes, microseconds: u64::try_from(begun.elapsed().as_micros())? })
}
