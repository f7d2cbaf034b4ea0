//! HTTP/1.1 on a unix socket, one request per connection, with access to every byte. Knows nothing of the
//! requests' meaning.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Limit for one read: longer than any deadline of the programs under test.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request or a response, as it was read.
#[derive(Debug, Clone)]
pub struct Message {
    /// Such as `POST / HTTP/1.1` or `HTTP/1.1 200 OK`.
    pub first_line: String,
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Message {
    /// Reads one message, exactly to its last byte.
    pub fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.lines();
        let first_line = lines.next().unwrap_or_default().to_owned();
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers =
            headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
        let mut message = Self { first_line, headers, body: Vec::new() };
        let length = message.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        message.body = vec![0; length];
        stream.read_exact(&mut message.body)?;
        Ok(message)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The path of a request.
    pub fn path(&self) -> &str {
        self.first_line.split(' ').nth(1).unwrap_or_default()
    }

    /// The status of a response.
    #[track_caller]
    pub fn status(&self) -> u16 {
        let status = self.first_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no status: {}", self.first_line))
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The bytes of a response with a body.
pub fn answer(status: &str, content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Posts a body. Returns the response and the time it took.
#[track_caller]
pub fn post(socket: &Path, path: &str, body: &[u8]) -> (Message, Duration) {
    exchange(socket, &request(path, body))
}

/// The bytes of a request.
pub fn request(path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: dummy\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Sends `bytes` and reads the response.
#[track_caller]
pub fn exchange(socket: &Path, bytes: &[u8]) -> (Message, Duration) {
    let started = Instant::now();
    let talk = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // A server may respond and close the connection before it has read everything.
        let _ = stream.write_all(bytes);
        Message::read(&mut stream)
    };
    let answer = talk().unwrap_or_else(|error: io::Error| panic!("{}: {error}", socket.display()));
    (answer, started.elapsed())
}
