//! The control socket of a daemon of Open vSwitch or OVN: commands of ovs-appctl(8), as JSON-RPC.
//!
//! Must not know what a command means.

use std::{
    io::{self, ErrorKind},
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

/// Bytes of the longest answer, if the caller says nothing else. Far above any real one: a daemon
/// that goes mad must not fill the memory.
const LONGEST: usize = 1 << 18;

/// A daemon.
#[derive(Debug, Clone)]
pub struct ControlSocket(Place);

#[derive(Debug, Clone)]
enum Place {
    /// Found by its pid file.
    Named { run_dir: PathBuf, daemon: &'static str },
    /// A server of a database, whose socket has a name of its own.
    At(PathBuf),
}

/// A connection to a daemon that stays open between questions: for programs that ask again and
/// again. A daemon that was started again is found again.
#[derive(Debug)]
pub struct KeptSocket {
    socket: ControlSocket,
    /// The socket that it leads to, and the connection.
    open: Option<(PathBuf, UnixStream)>,
}

/// A command and its arguments.
pub type ControlCommand<'a> = (&'a str, &'a [&'a str]);

/// The pid file of a daemon.
pub(crate) fn pid_file(run_dir: &Path, daemon: &str) -> PathBuf {
    run_dir.join(format!("{daemon}.pid"))
}

impl ControlSocket {
    /// The socket of `daemon`, whose pid file is in `run_dir`.
    pub fn of(run_dir: &Path, daemon: &'static str) -> Self {
        Self(Place::Named { run_dir: run_dir.to_owned(), daemon })
    }

    /// The socket at this path.
    pub fn at(path: PathBuf) -> Self {
        Self(Place::At(path))
    }

    /// The daemon's process, if a pid file names it.
    pub fn pid(&self) -> Option<i32> {
        let Place::Named { run_dir, daemon } = &self.0 else { return None };
        std::fs::read_to_string(pid_file(run_dir, daemon)).ok()?.trim().parse().ok()
    }

    fn path(&self) -> io::Result<PathBuf> {
        match &self.0 {
            Place::At(path) => Ok(path.clone()),
            Place::Named { run_dir, daemon } => {
                let pid_file = pid_file(run_dir, daemon);
                let at = |error: io::Error| {
                    io::Error::new(error.kind(), format!("{}: {error}", pid_file.display()))
                };
                let pid = std::fs::read_to_string(&pid_file).map_err(at)?;
                // The name contains the process id (ovs-appctl(8)).
                Ok(run_dir.join(format!("{daemon}.{}.ctl", pid.trim())))
            }
        }
    }

    /// Asks what `ovs-appctl -t DAEMON COMMAND ARGUMENTS` asks.
    ///
    /// # Errors
    /// The daemon refuses the command, does not run, or does not answer within `patience`.
    pub async fn ask(
        &self,
        command: &str,
        arguments: &[&str],
        patience: Duration,
    ) -> io::Result<String> {
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
        let socket = self.path()?;
        let talk = async {
            let mut stream = UnixStream::connect(&socket).await?;
            let [answer] = exchange(&mut stream, [(command, arguments)], longest).await?;
            answer
        };
        answered(&socket, timeout(patience, talk).await)
    }
}

impl KeptSocket {
    /// No connection is made before the first question.
    pub fn new(socket: ControlSocket) -> Self {
        Self { socket, open: None }
    }

    /// The daemon's process, if a pid file names it.
    pub fn pid(&self) -> Option<i32> {
        self.socket.pid()
    }

    /// As [`ControlSocket::ask`] for several questions, over the connection that is there. A daemon
    /// answers up to ten in one turn of its loop.
    ///
    /// # Errors
    /// As [`ControlSocket::ask`]; what the daemon refuses is the error of that question alone.
    /// After any other error, the next question makes a new connection.
    pub async fn ask<const N: usize>(
        &mut self,
        questions: [ControlCommand<'_>; N],
        patience: Duration,
    ) -> io::Result<[io::Result<String>; N]> {
        let socket = self.socket.path()?;
        // Not put back unless the answers were read to their end: the next one would get the rest.
        let kept = self.open.take().filter(|(path, _)| *path == socket);
        let talk = async {
            let mut stream = match kept {
                Some((_, stream)) => stream,
                None => UnixStream::connect(&socket).await?,
            };
            let answers = exchange(&mut stream, questions, LONGEST).await?;
            self.open = Some((socket.clone(), stream));
            Ok(answers)
        };
        answered(&socket, timeout(patience, talk).await)
    }
}

/// The answer, or an error that names the socket.
fn answered<T>(
    socket: &Path,
    answer: Result<io::Result<T>, tokio::time::error::Elapsed>,
) -> io::Result<T> {
    answer
        .unwrap_or(Err(ErrorKind::TimedOut.into()))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", socket.display())))
}

/// Asks over the stream. A refusal of the daemon is [`ErrorKind::Other`]. All answers together have
/// at most `longest` bytes.
async fn exchange<const N: usize>(
    stream: &mut UnixStream,
    questions: [ControlCommand<'_>; N],
    longest: usize,
) -> io::Result<[io::Result<String>; N]> {
    #[derive(Deserialize)]
    struct Answer {
        result: Option<String>,
        error: Option<Value>,
    }

    let requests = questions.map(|(command, arguments)| {
        json!({"id": 0, "method": command, "params": arguments}).to_string()
    });
    stream.write_all(requests.concat().as_bytes()).await?;
    let mut text = Vec::new();
    loop {
        // Nothing marks the end of an answer but its JSON.
        if stream.read_buf(&mut text).await? == 0 || text.len() > longest {
            return Err(io::Error::from(ErrorKind::UnexpectedEof));
        }
        // Cheap for a part of a long answer, which does not end like a whole one.
        if !text.trim_ascii_end().ends_with(b"}") {
            continue;
        }
        // In the order of the questions.
        let answers = serde_json::Deserializer::from_slice(&text).into_iter();
        let Ok(answers) = answers.collect::<serde_json::Result<Vec<Answer>>>() else { continue };
        if let Ok(answers) = <[Answer; N]>::try_from(answers) {
            return Ok(answers.map(|Answer { result, error }| {
                result.ok_or_else(|| io::Error::other(error.unwrap_or_default().to_string()))
            }));
        }
    }
}
