//! The control socket of a daemon of Open vSwitch or OVN: commands of ovs-appctl(8), as JSON-RPC.
//!
//! Must not know what a command means.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::timeout,
};

/// The daemon of the switch.
pub const VSWITCHD: &str = "ovs-vswitchd";

/// Bytes of the longest answer, if the caller says nothing else. Far above any real one: a daemon that goes
/// mad must not fill the memory.
const LONGEST: usize = 1 << 18;

/// A daemon, found by its pid file.
#[derive(Debug, Clone)]
pub struct ControlSocket {
    run_dir: PathBuf,
    daemon: &'static str,
}

/// The pid file of a daemon.
pub(crate) fn pid_file(run_dir: &Path, daemon: &str) -> PathBuf {
    run_dir.join(format!("{daemon}.pid"))
}

impl ControlSocket {
    /// The socket of `daemon`, whose pid file is in `run_dir`.
    pub fn of(run_dir: &Path, daemon: &'static str) -> Self {
        Self { run_dir: run_dir.to_owned(), daemon }
    }

    /// Asks what `ovs-appctl -t DAEMON COMMAND ARGUMENTS` asks.
    ///
    /// # Errors
    /// The daemon refuses the command, does not run, or does not answer within `patience`.
    pub async fn ask(&self, command: &str, arguments: &[&str], patience: Duration) -> io::Result<String> {
        self.ask_at_length(command, arguments, patience, LONGEST).await
    }

    /// The same where an answer may have `longest` bytes.
    ///
    /// # Errors
    /// As for [`ask`](Self::ask), or the answer is longer.
    pub async fn ask_at_length(
        &self,
        command: &str,
        arguments: &[&str],
        patience: Duration,
        longest: usize,
    ) -> io::Result<String> {
        let Self { run_dir, daemon } = self;
        let pid_file = pid_file(run_dir, daemon);
        let at = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", pid_file.display()));
        let pid = std::fs::read_to_string(&pid_file).map_err(at)?;
        // The name contains the process id (ovs-appctl(8)).
        let socket = run_dir.join(format!("{daemon}.{}.ctl", pid.trim()));
        let answered = timeout(patience, talk(&socket, command, arguments, longest)).await;
        answered
            .unwrap_or(Err(io::ErrorKind::TimedOut.into()))
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", socket.display())))
    }
}

async fn talk(socket: &Path, command: &str, arguments: &[&str], longest: usize) -> io::Result<String> {
    #[derive(Deserialize)]
    struct Answer {
        result: Option<String>,
        error: Option<Value>,
    }

    let mut stream = UnixStream::connect(socket).await?;
    let request = json!({"id": 0, "method": command, "params": arguments});
    stream.write_all(request.to_string().as_bytes()).await?;
    let mut text = Vec::new();
    loop {
        // Nothing marks the end of an answer but its JSON.
        if stream.read_buf(&mut text).await? == 0 || text.len() > longest {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        // Cheap for a part of a long answer, which does not end like a whole one.
        if !text.trim_ascii_end().ends_with(b"}") {
            continue;
        }
        if let Ok(Answer { result, error }) = serde_json::from_slice(&text) {
            return result.ok_or_else(|| io::Error::other(error.unwrap_or_default().to_string()));
        }
    }
}
