//! The control socket: commands of ovs-appctl(8), as JSON-RPC 1.0 (ovs-appctl(8), RFC 7047 4.1).

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use ovslog::{background::Reopen, vlog::Levels};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    signal::unix::{SignalKind, signal},
    time::timeout,
};

use super::DaemonError;

/// Bytes of the longest request. Real ones have some hundred.
const LONGEST: usize = 1 << 16;
/// How long a client may take for a request, and for its answer. ovs-appctl sends at once; while
/// one client is served, others wait.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

const COMMANDS: &str = "The available commands are:
  exit
  list-commands
  version
  vlog/list
  vlog/reopen
  vlog/set                [spec]...
";

/// The socket, and what its commands change.
#[derive(Debug)]
pub(super) struct Control {
    path: PathBuf,
    listener: UnixListener,
    name: String,
    levels: Levels,
    reopen: Option<Reopen>,
}

#[derive(Debug, Deserialize)]
struct Request {
    id: Value,
    method: String,
    #[serde(default)]
    params: Vec<String>,
}

/// The answer to a command.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Text(String),
    Refused(String),
    /// The process ends.
    Exit,
}

impl Control {
    /// Listens at `NAME.PID.ctl`, where ovs-appctl looks for the process of a pidfile. Needs a
    /// tokio runtime.
    pub(super) fn bind(
        run_dir: &Path,
        name: &str,
        levels: Levels,
        reopen: Option<Reopen>,
    ) -> Result<Self, DaemonError> {
        let path = run_dir.join(format!("{name}.{}.ctl", std::process::id()));
        let failed = |source| DaemonError::File { path: path.clone(), source };
        fs::create_dir_all(run_dir).map_err(failed)?;
        // Of a process that had this number before.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self { listener, name: name.to_owned(), levels, reopen, path: path.clone() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Answers commands and signals, until one of them ends the process. Returns which.
    pub(super) async fn serve(&self) -> &'static str {
        let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let [Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)] = signals.map(signal) else {
            return "signals cannot be caught";
        };
        loop {
            tokio::select! {
                _ = terminate.recv() => return "SIGTERM",
                _ = interrupt.recv() => return "SIGINT",
                _ = hangup.recv() => drop(self.reopened()),
                client = self.listener.accept() => {
                    if let Ok((client, _)) = client
                        && let Ok(Ok(true)) = timeout(PATIENCE, self.talk(client)).await
                    {
                        return "exit";
                    }
                }
            }
        }
    }

    /// Answers a client's requests, until it closes the connection. Returns whether the process
    /// ends.
    async fn talk(&self, mut client: UnixStream) -> io::Result<bool> {
        let mut text = Vec::new();
        loop {
            if client.read_buf(&mut text).await? == 0 {
                return Ok(false);
            }
            // Nothing marks the end of a request but its JSON.
            let mut requests = serde_json::Deserializer::from_slice(&text).into_iter::<Request>();
            let mut whole = 0;
            let mut all = Vec::new();
            loop {
                match requests.next() {
                    Some(Ok(request)) => all.push(request),
                    Some(Err(error)) if !error.is_eof() => return Err(error.into()),
                    Some(Err(_)) | None => break,
                }
                whole = requests.byte_offset();
            }
            for Request { id, method, params } in all {
                let answer = self.answer(&method, &params);
                let (result, error) = match &answer {
                    Answer::Text(text) => (json!(text), Value::Null),
                    Answer::Exit => (json!(""), Value::Null),
                    Answer::Refused(why) => (Value::Null, json!(why)),
                };
                let said = json!({"id": id, "result": result, "error": error}).to_string();
                client.write_all(said.as_bytes()).await?;
                if answer == Answer::Exit {
                    return Ok(true);
                }
            }
            text.drain(..whole);
            if text.len() > LONGEST {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    fn answer(&self, method: &str, params: &[String]) -> Answer {
        let takes = |most: usize| {
            (params.len() > most).then(|| {
                Answer::Refused(format!("\"{method}\" command takes at most {most} arguments"))
            })
        };
        match method {
            "exit" => takes(1).unwrap_or(Answer::Exit),
            "list-commands" => takes(0).unwrap_or_else(|| Answer::Text(COMMANDS.to_owned())),
            "version" => takes(0).unwrap_or_else(|| {
                let version = env!("CARGO_PKG_VERSION");
                Answer::Text(format!("{} (OVN-Kubernetes) {version}\n", self.name))
            }),
            "vlog/list" => takes(0).unwrap_or_else(|| Answer::Text(self.levels.list())),
            "vlog/reopen" => takes(0).unwrap_or_else(|| self.reopened()),
            "vlog/set" => match params.iter().try_for_each(|spec| self.levels.set(spec)) {
                Ok(()) => Answer::Text(String::new()),
                Err(why) => Answer::Refused(why.to_string()),
            },
            _ => Answer::Refused(format!(
                "\"{}\" is not a valid command (use \"list-commands\" to see a list of valid \
                 commands)",
                method.chars().take(64).collect::<String>()
            )),
        }
    }

    fn reopened(&self) -> Answer {
        match &self.reopen {
            Some(reopen) => {
                reopen.ask();
                tracing::info!("the log is opened anew");
                Answer::Text(String::new())
            }
            None => Answer::Refused("Logging to file not configured".to_owned()),
        }
    }
}
