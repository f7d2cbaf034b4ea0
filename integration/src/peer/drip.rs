//! One long TCP connection with a byte now and then, as of an idle ssh session: it must survive
//! what a node goes through.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::{PATIENCE, Report, end_of_input};

/// How long an answer to a byte may take. Without [`REPEAT`], TCP repeats a lost segment after 0.2,
/// 0.6, 1.4, 3, 6.2, 12.6 and 25.4 s, or later.
const SILENCE: Duration = Duration::from_secs(30);

/// The longest that TCP waits before it repeats a segment of a connection begun later in the
/// network namespace, in milliseconds (since Linux 6.15). Its timer doubles with each loss, and
/// begins with some seconds after a gap of one: a byte would wait for the timer, long after the
/// path is back. And how often it repeats one: 15 times, as without this, are 15 s then, and a
/// connection that has ended shows nothing of its path.
const REPEAT: [(&str, &str); 2] =
    [("/proc/sys/net/ipv4/tcp_rto_max_ms", "1000"), ("/proc/sys/net/ipv4/tcp_retries2", "60")];

/// How the connection went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Bytes that were sent and came back.
    pub bytes: u64,
    /// The longest time that a byte took to come back, in milliseconds.
    pub slowest: u64,
}

/// Sends back what each connection sends, until standard input closes.
pub(super) fn echo(address: IpAddr, port: u16, report: impl Fn(&Report)) -> Result<()> {
    repeat_often()?;
    let listener =
        TcpListener::bind((address, port)).with_context(|| format!("listen on {address}"))?;
    report(&Report::Listening(listener.local_addr()?));
    // It ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || send_back(stream));
        }
    });
    end_of_input().join().ok().context("wait for the end of the input")
}

/// Has the namespace's connections follow [`REPEAT`], where the kernel can.
fn repeat_often() -> Result<()> {
    REPEAT.into_iter().try_for_each(|(path, value)| match fs::write(path, value) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        written => written.with_context(|| format!("write {path}")),
    })
}

fn send_back(mut stream: TcpStream) {
    let mut block = [0; 512];
    // Errors end the connection, which its client reports.
    while let Ok(length) = stream.read(&mut block) {
        if length == 0 || stream.write_all(&block[..length]).is_err() {
            return;
        }
    }
}

/// Sends a byte at fixed times, and waits for each to come back. The first one is reported; the
/// rest after one more byte when standard input closes: a connection that lasted still works then.
pub(super) fn drip(to: SocketAddr, every: Duration, report: impl Fn(&Report)) -> Result<()> {
    repeat_often()?;
    let mut stream =
        TcpStream::connect_timeout(&to, PATIENCE).with_context(|| format!("connect to {to}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    let until = end_of_input();
    let mut kept = Kept { bytes: 0, slowest: 0 };
    loop {
        let is_last = until.is_finished() && kept.bytes > 0;
        let began = Instant::now();
        let byte = kept.bytes.to_le_bytes()[0];
        let mut answer = [0];
        let context = || format!("after {} bytes and {:?}", kept.bytes, began.elapsed());
        stream.write_all(&[byte]).with_context(context)?;
        stream.read_exact(&mut answer).with_context(context)?;
        ensure!(answer == [byte], "{answer:?} came back, not {byte}");
        let took = began.elapsed();
        kept.bytes += 1;
        kept.slowest = kept.slowest.max(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        if kept.bytes == 1 {
            report(&Report::Connecting);
        }
        if is_last {
            break;
        }
        thread::park_timeout(every.saturating_sub(took));
    }
    report(&Report::Kept(kept));
    Ok(())
}
