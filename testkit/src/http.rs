//! HTTP/1.1 on a unix socket, one request per connection: well-formed requests by hyper's client,
//! and others byte by byte. Knows nothing of the requests' meaning.

use std::{
    fmt,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Bytes, header::CONTENT_TYPE};
use hyper_util::client::legacy::Client;
use hyperlocal::{UnixClientExt as _, UnixConnector, Uri};
use serde_json::Value;
use tokio::{runtime, time::timeout};

/// Limit for one read: longer than any deadline of the programs under test.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request or a response, as it was read.
#[derive(Clone)]
pub struct Message {
    /// Such as `POST / HTTP/1.1` or `HTTP/1.1 200 OK`.
    pub first_line: String,
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl fmt::Debug for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.first_line, self.text())
    }
}

impl Message {
    /// Reads one message, exactly to its last byte.
    ///
    /// # Errors
    /// The stream ends or fails before that, or the head is not that of a message.
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
        let headers = headers
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut message = Self { first_line, headers, body: Vec::new() };
        let length =
            message.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
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

    /// The status of a response, and number and message of the CNI error in it.
    #[track_caller]
    pub fn error(&self) -> (u16, u64, String) {
        let error = self.json();
        let (Some(code), Some(message)) = (error["code"].as_u64(), error["msg"].as_str()) else {
            panic!("no CNI error: {error}")
        };
        (self.status(), code, message.to_owned())
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
    let started = Instant::now();
    let answer = try_post(socket, path, body).unwrap_or_else(|error| panic!("{error:#}"));
    (answer, started.elapsed())
}

/// The same for tests that return their failure.
///
/// # Errors
/// If no server listens, if it is silent for 20 s, or if its response is not HTTP.
pub fn try_post(socket: &Path, path: &str, body: &[u8]) -> Result<Message> {
    let request = Request::post(hyper::Uri::from(Uri::new(socket, path)))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::<Bytes>::from(body.to_vec()))?;
    // Of its own for each request: the connection ends with it.
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let exchange = async {
        let response = Client::<UnixConnector, Full<Bytes>>::unix().request(request).await?;
        let (head, body) = response.into_parts();
        let headers = head.headers.iter().map(|(name, value)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        let first_line = format!("{:?} {}", head.version, head.status);
        let (headers, body) = (headers.collect(), body.collect().await?.to_bytes().to_vec());
        Ok::<_, anyhow::Error>(Message { first_line, headers, body })
    };
    runtime
        .block_on(async { timeout(PATIENCE, exchange).await })
        .with_context(|| format!("{}: no response within {PATIENCE:?}", socket.display()))?
        .with_context(|| format!("{}: {path}", socket.display()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Scratch,
        scripted_server::{Answer, serve},
    };

    #[test]
    fn what_is_posted_arrives_and_the_response_is_read_to_its_end() {
        let dir = Scratch::new();
        let socket = dir.join("s");
        let echo = |request: &Message| {
            let said = format!("{}: {}", request.first_line, request.text());
            Answer::Bytes(answer("201 Created", "text/plain", &said))
        };
        serve(socket.clone(), echo).unwrap();
        for (response, _) in
            [post(&socket, "/a?b=c", b"{}"), exchange(&socket, &request("/a?b=c", b"{}"))]
        {
            assert_eq!(response.first_line, "HTTP/1.1 201 Created");
            assert_eq!(
                (response.status(), response.header("content-type")),
                (201, Some("text/plain"))
            );
            assert_eq!(response.text(), "POST /a?b=c HTTP/1.1: {}");
        }
    }

    #[test]
    fn a_socket_without_a_server_is_named() {
        let dir = Scratch::new();
        let error = try_post(&dir.join("none"), "/", b"{}").unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("/none: /: ") && text.contains("No such file"), "{text}");
    }
}
