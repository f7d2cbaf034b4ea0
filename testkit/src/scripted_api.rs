//! An API server that a test plays request by request, for behaviour that a real one cannot be made
//! to show. One request per connection: a proxy in front of a real one reads and answers with the
//! same [`Asked`].
//!
//! With tokio's paused clock no wait takes real time: the clock advances when all tasks wait.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, rustls};

/// Limit for a wait, longer than any wait of the code under test. It costs no real time with a
/// paused clock.
const PATIENCE: Duration = Duration::from_secs(600);

/// The client stays connected as long as the test plays the watch.
const ASKER: &str = "the watch is still wanted";
const HTTP: &str = "what was sent is HTTP/1.1";

/// The server.
#[derive(Debug)]
pub struct ScriptedApi {
    pub url: String,
    asked: mpsc::UnboundedReceiver<Asked>,
    listening: tokio::task::JoinHandle<()>,
}

/// A request without a response yet.
#[derive(Debug)]
pub struct Asked {
    /// Such as `GET`.
    pub method: String,
    pub path: String,
    /// Headers, one per line, with names in lower case.
    pub head: String,
    pub body: Vec<u8>,
    stream: Box<dyn Stream>,
}

/// A watch whose response has begun.
#[derive(Debug)]
pub struct WatchStream {
    stream: Box<dyn Stream>,
}

/// A connection, with TLS or without.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug> Stream for T {}

impl ScriptedApi {
    /// Starts a server without TLS.
    ///
    /// # Panics
    /// Like all functions here, if a test cannot go on.
    pub async fn start() -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST.into()).await
    }

    /// The same on an address that other namespaces reach.
    pub async fn start_on(address: IpAddr) -> Self {
        Self::listen("http", address, |stream| async { Some(Box::new(stream) as Box<dyn Stream>) })
            .await
    }

    pub async fn start_tls(settings: Arc<rustls::ServerConfig>) -> Self {
        Self::start_tls_on(Ipv4Addr::LOCALHOST.into(), settings).await
    }

    /// The same on an address that other namespaces reach.
    pub async fn start_tls_on(address: IpAddr, settings: Arc<rustls::ServerConfig>) -> Self {
        let acceptor = TlsAcceptor::from(settings);
        Self::listen("https", address, move |stream| {
            let acceptor = acceptor.clone();
            async move {
                acceptor.accept(stream).await.ok().map(|stream| Box::new(stream) as Box<dyn Stream>)
            }
        })
        .await
    }

    async fn listen<F: Future<Output = Option<Box<dyn Stream>>> + Send>(
        scheme: &str,
        address: IpAddr,
        greet: impl Fn(tokio::net::TcpStream) -> F + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((address, 0)).await.expect("a free port");
        let url = format!("{scheme}://{}", listener.local_addr().expect("it is bound"));
        let (sender, asked) = mpsc::unbounded_channel();
        let listening = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("it listens");
                let Some(stream) = greet(stream).await else { continue };
                let sender = sender.clone();
                // A client may open a connection that it then has no use for: others do not wait
                // for it.
                tokio::spawn(async move {
                    if let Some(request) = Asked::read(stream).await {
                        let _ = sender.send(request);
                    }
                });
            }
        });
        Self { url, asked, listening }
    }

    /// The next request.
    pub async fn asked(&mut self) -> Asked {
        timeout(PATIENCE, self.asked.recv()).await.expect("a request arrives").expect("it listens")
    }

    /// Panics if another request arrives within this time.
    pub async fn nothing_within(&mut self, time: Duration) {
        if let Ok(Some(asked)) = timeout(time, self.asked.recv()).await {
            panic!("{} {}", asked.method, asked.path);
        }
    }

    /// Stops listening. Returns the URL.
    pub async fn go_away(self) -> String {
        self.listening.abort();
        let _ = self.listening.await;
        self.url
    }
}

impl Asked {
    /// Reads one request to its end; `None` if the client hangs up before.
    pub async fn read(mut stream: Box<dyn Stream>) -> Option<Self> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let text = String::from_utf8(head).expect(HTTP);
        let (first, rest) = text.split_once("\r\n").expect(HTTP);
        let lines = rest
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| format!("{}: {}\n", name.to_ascii_lowercase(), value.trim()));
        let mut words = first.split(' ').map(str::to_owned);
        let (method, path) = (words.next().expect(HTTP), words.next().expect(HTTP));
        let mut asked = Self { method, path, head: lines.collect(), body: Vec::new(), stream };
        let length = asked.header("content-length").map_or(0, |length| length.parse().expect(HTTP));
        asked.body = vec![0; length];
        asked.stream.read_exact(&mut asked.body).await.ok()?;
        Some(asked)
    }

    /// The bytes with which another server gets the same request, alone on its connection.
    pub fn onward(&self) -> Vec<u8> {
        let Self { method, path, head, body, .. } = self;
        let others = head.lines().filter(|line| !line.starts_with("connection: "));
        let lines: String = others.map(|line| format!("{line}\r\n")).collect();
        let head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n{lines}\r\n");
        [head.as_bytes(), body].concat()
    }

    /// The connection, for a response that the caller writes.
    pub fn into_stream(self) -> Box<dyn Stream> {
        self.stream
    }

    /// The value of a query parameter, as it was sent.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let (_, parameters) = self.path.split_once('?')?;
        parameters.split('&').find_map(|parameter| parameter.strip_prefix(name)?.strip_prefix('='))
    }

    pub fn is_watch(&self) -> bool {
        self.parameter("watch").is_some()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub async fn answer(self, status: &str, headers: &str, body: &str) {
        let mut stream = self.stream;
        let head = format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        // The client may have disconnected.
        let _ = stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await;
        let _ = stream.shutdown().await;
    }

    pub async fn json(self, value: &Value) {
        self.answer("200 OK", "Content-Type: application/json\r\n", &value.to_string()).await;
    }

    /// Responds with an error in the form of a `Status`, as the API server does.
    pub async fn status(self, code: u16, message: &str) {
        let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "R"});
        self.answer(
            &format!("{code} R"),
            "Content-Type: application/json\r\n",
            &status.to_string(),
        )
        .await;
    }

    /// Responds with a list.
    pub async fn list(self, version: &str, pods: &[Value]) {
        self.json(&json!({"kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": version}, "items": pods})).await;
    }

    /// Begins the response to a watch.
    pub async fn begin(self) -> WatchStream {
        let mut stream = self.stream;
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
            )
            .await
            .expect(ASKER);
        WatchStream { stream }
    }
}

impl WatchStream {
    pub async fn send(&mut self, kind: &str, object: &Value) {
        self.raw(&format!("{}\n", json!({"type": kind, "object": object}))).await;
    }

    /// Sends one chunk of bytes.
    pub async fn raw(&mut self, text: &str) {
        self.stream
            .write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
            .await
            .expect(ASKER);
    }

    pub async fn bookmark(&mut self, version: &str) {
        self.send(
            "BOOKMARK",
            &json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version}}),
        )
        .await;
    }

    /// Ends the watch as the API server does.
    pub async fn end(mut self) {
        self.stream.write_all(b"0\r\n\r\n").await.expect(ASKER);
        let _ = self.stream.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &[u8]) -> Option<Asked> {
        let (mut client, server) = tokio::io::duplex(1024);
        client.write_all(text).await.unwrap();
        client.shutdown().await.unwrap();
        Asked::read(Box::new(server)).await
    }

    #[tokio::test]
    async fn a_request_is_read_to_its_end_and_passed_on_alone_on_its_connection() {
        let text = b"PATCH /api/v1/pods/x?a=b HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nContent-Length:2\r\n\r\n{}";
        let asked = read(text).await.unwrap();
        assert_eq!((asked.method.as_str(), asked.path.as_str()), ("PATCH", "/api/v1/pods/x?a=b"));
        assert_eq!((asked.header("host"), asked.body.as_slice()), (Some("h"), &b"{}"[..]));
        let onward = String::from_utf8(asked.onward()).unwrap();
        assert_eq!(
            onward,
            "PATCH /api/v1/pods/x?a=b HTTP/1.1\r\nconnection: close\r\nhost: h\r\ncontent-length: 2\r\n\r\n{}"
        );
        assert!(read(&text[..text.len() - 1]).await.is_none(), "its body is not complete");
    }
}
