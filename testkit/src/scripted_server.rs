//! A server that answers as a test says: on the plugin's socket with upstream's words or with
//! nonsense, or anywhere with what a closure makes of each request.

use std::{
    fs,
    io::Write,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use anyhow::Result;
use contract::wire::{METRICS_PATH, REQUEST_PATH};
use serde_json::{Value, json};
use socket2::Socket;

use crate::{
    http::{self, Message},
    socket::Address,
};

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

    /// The API server's refusal of a request; it closes the connection.
    pub fn forbidden(message: &str) -> Self {
        let body = json!({"kind": "Status", "status": "Failure", "code": 403, "message": message})
            .to_string();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        Self::Bytes((head + &body).into_bytes())
    }

    /// The response of Go's `http.Error`, which upstream's server sends for every failure.
    pub fn upstream_error(text: &str) -> Self {
        Self::Bytes(http::answer(
            "400 Bad Request",
            "text/plain; charset=utf-8",
            &format!("{text}\n"),
        ))
    }

    /// No response at all.
    pub fn silence() -> Self {
        Self::BytesThenSilence(Vec::new())
    }
}

impl ScriptedServer {
    /// Answers requests of the plugin with `answer`, reports with success, and all other paths with
    /// 404.
    #[track_caller]
    pub fn start(socket: &Path, answer: Answer) -> Self {
        fs::create_dir_all(socket.parent().expect("a socket is in a directory"))
            .expect("a directory inside of ours can be made");
        let (sender, requests) = mpsc::channel();
        let answering = serve(socket.to_path_buf(), move |request| {
            // The receiver is gone if the test has dropped the server.
            let _ = sender.send(request.clone());
            match request.path() {
                REQUEST_PATH => answer.clone(),
                METRICS_PATH => Answer::Bytes(http::answer("200 OK", "application/json", "")),
                _ => {
                    let said = "404 page not found\n";
                    Answer::Bytes(http::answer("404 Not Found", "text/plain; charset=utf-8", said))
                }
            }
        });
        answering.unwrap_or_else(|error| panic!("{error:#}"));
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

/// Answers every request as `answer` says, until the test's process ends. Returns where it listens.
///
/// # Errors
/// If it cannot listen there.
pub fn serve(
    listen: impl Into<Address>,
    answer: impl Fn(&Message) -> Answer + Send + Sync + 'static,
) -> Result<Address> {
    let (listener, address) = listen.into().listen()?;
    let answer = Arc::new(answer);
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || talk(&stream, &*answer));
        }
    });
    Ok(address)
}

fn talk(mut stream: &Socket, answer: impl Fn(&Message) -> Answer) {
    while let Ok(request) = Message::read(&mut stream) {
        let answer = answer(&request);
        let (Answer::Bytes(bytes) | Answer::BytesThenSilence(bytes)) = &answer;
        // The client may have closed the connection, which it is free to do.
        let _ = stream.write_all(bytes);
        if matches!(answer, Answer::BytesThenSilence(_)) {
            // Until the client hangs up.
            let _ = Message::read(&mut stream);
        }
        // Without a length the client cannot find the start of a next response: close the
        // connection.
        let goes_on = Message::read(&mut bytes.as_slice()).is_ok_and(|said| {
            said.header("content-length").is_some() && said.header("connection") != Some("close")
        });
        if !goes_on {
            return;
        }
    }
}
