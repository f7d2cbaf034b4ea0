//! A server on the plugin's socket that answers as a test says: with upstream's words, or with nonsense.

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

/// Limit for a request to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// The response to a request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// These bytes; then the connection is closed.
    Bytes(Vec<u8>),
    /// These bytes; then silence on an open connection.
    BytesThenSilence(Vec<u8>),
}

/// A server that listens until the test's process ends.
#[derive(Debug)]
pub struct ScriptedServer {
    requests: Receiver<Message>,
}

impl Answer {
    /// Success with a JSON body.
    pub fn json(value: &Value) -> Self {
        Self::Bytes(http::answer("200 OK", "application/json", &value.to_string()))
    }

    /// The response of Go's `http.Error`, which upstream's server sends for every failure.
    pub fn upstream_error(text: &str) -> Self {
        Self::Bytes(http::answer("400 Bad Request", "text/plain; charset=utf-8", &format!("{text}\n")))
    }

    /// No response at all.
    pub fn silence() -> Self {
        Self::BytesThenSilence(Vec::new())
    }
}

impl ScriptedServer {
    /// Answers requests of the plugin with `answer`, reports with success, and all other paths with 404.
    #[track_caller]
    pub fn start(socket: &Path, answer: Answer) -> Self {
        fs::create_dir_all(socket.parent().expect("a socket is in a directory"))
            .expect("a directory inside of ours can be made");
        let listener =
            UnixListener::bind(socket).unwrap_or_else(|error| panic!("{}: {error}", socket.display()));
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

    /// The next request that was not read yet.
    #[track_caller]
    pub fn request(&self) -> Message {
        self.requests.recv_timeout(PATIENCE).expect("a request arrives")
    }

    /// All requests so far that were not read yet.
    pub fn requests(&self) -> Vec<Message> {
        self.requests.try_iter().collect()
    }
}

fn talk(mut stream: UnixStream, sender: &Sender<Message>, answer: &Answer) {
    while let Ok(request) = Message::read(&mut stream) {
        let path = request.path().to_owned();
        // The receiver is gone if the test has dropped the server.
        let _ = sender.send(request);
        let bytes = match (path.as_str(), answer) {
            (REQUEST_PATH, Answer::Bytes(bytes) | Answer::BytesThenSilence(bytes)) => bytes.clone(),
            (contract::wire::METRICS_PATH, _) => http::answer("200 OK", "application/json", ""),
            _ => http::answer("404 Not Found", "text/plain; charset=utf-8", "404 page not found\n"),
        };
        // The plugin may have closed the connection, which it is free to do.
        let _ = stream.write_all(&bytes);
        if path == REQUEST_PATH && matches!(answer, Answer::BytesThenSilence(_)) {
            // Until the plugin hangs up.
            let _ = Message::read(&mut stream);
        }
        let said = Message::read(&mut bytes.as_slice());
        if !said.is_ok_and(|said| said.header("content-length").is_some()) {
            // Without a length the client cannot find the start of a next response: close the connection.
            return;
        }
    }
}
