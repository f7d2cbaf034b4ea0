//! A server on the plugin's socket that says what a test tells it to: upstream's words, or nonsense.

use std::{
    fs,
    io::Write,
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

use contract::wire::REQUEST_PATH;
use serde_json::Value;

use crate::http::{self, Message};

const PATIENCE: Duration = Duration::from_secs(10);

/// What a request is answered with.
#[derive(Debug, Clone)]
pub enum Answer {
    /// These bytes; then the connection ends.
    Bytes(Vec<u8>),
    /// These bytes, and then nothing, for ever.
    BytesThenSilence(Vec<u8>),
}

/// Listens until the test's process ends.
#[derive(Debug)]
pub struct ScriptedServer {
    requests: Receiver<Message>,
}

impl Answer {
    /// Success, with JSON.
    pub fn json(value: &Value) -> Self {
        Self::Bytes(http::answer("200 OK", "application/json", &value.to_string()))
    }

    /// What Go's `http.Error` says, as upstream's server does for whatever goes wrong.
    pub fn upstream_error(text: &str) -> Self {
        Self::Bytes(http::answer("400 Bad Request", "text/plain; charset=utf-8", &format!("{text}\n")))
    }

    /// No answer at all.
    pub fn silence() -> Self {
        Self::BytesThenSilence(Vec::new())
    }
}

impl ScriptedServer {
    /// Answers what the plugin asks with `answer`, reports with success, and other paths as a server that does not know them.
    #[track_caller]
    pub fn start(socket: &Path, answer: Answer) -> Self {
        fs::create_dir_all(socket.parent().expect("a socket is in a directory")).expect("a directory inside of ours can be made");
        let listener = UnixListener::bind(socket).unwrap_or_else(|error| panic!("{}: {error}", socket.display()));
        let (sender, requests) = mpsc::channel();
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (sender, answer) = (sender.clone(), Arc::clone(&answer));
                thread::spawn(move || talk(stream, &sender, &answer));
            }
        });
        Self { requests }
    }

    /// The next request that was not looked at yet.
    #[track_caller]
    pub fn request(&self) -> Message {
        self.requests.recv_timeout(PATIENCE).expect("a request arrives")
    }

    /// All requests until now that were not looked at.
    pub fn requests(&self) -> Vec<Message> {
        self.requests.try_iter().collect()
    }
}

fn talk(mut stream: UnixStream, sender: &Sender<Message>, answer: &Answer) {
    while let Ok(request) = Message::read(&mut stream) {
        let path = request.path().to_owned();
        // Nobody may be left to look at it.
        let _ = sender.send(request);
        let bytes = match (path.as_str(), answer) {
            (REQUEST_PATH, Answer::Bytes(bytes) | Answer::BytesThenSilence(bytes)) => bytes.clone(),
            (contract::wire::METRICS_PATH, _) => http::answer("200 OK", "application/json", ""),
            _ => http::answer("404 Not Found", "text/plain; charset=utf-8", "404 page not found\n"),
        };
        // The plugin may have hung up: that is its right.
        let _ = stream.write_all(&bytes);
        if path == REQUEST_PATH && matches!(answer, Answer::BytesThenSilence(_)) {
            // Until the plugin hangs up.
            let _ = Message::read(&mut stream);
        }
        let said = Message::read(&mut bytes.as_slice());
        if !said.is_ok_and(|said| said.header("content-length").is_some()) {
            // Nobody could tell where the next answer begins.
            return;
        }
    }
}
