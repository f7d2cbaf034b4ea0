//! An API server that a test plays, request by request: for what a real one cannot be made to do. One request a connection.
//!
//! Clock: with tokio's paused time nothing here waits in earnest; time passes when everybody waits.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, rustls};

/// Longer than anything waits here.
const PATIENCE: Duration = Duration::from_secs(600);

/// Whoever asked is there as long as the watch is played.
const ASKER: &str = "the watch is still wanted";
const HTTP: &str = "what was sent is HTTP/1.1";

/// The server.
#[derive(Debug)]
pub struct ScriptedApi {
    pub url: String,
    asked: mpsc::UnboundedReceiver<Asked>,
    listening: tokio::task::JoinHandle<()>,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub struct Asked {
    /// `GET`
    pub method: String,
    pub path: String,
    /// Names in lower case, one a line.
    pub head: String,
    pub body: Vec<u8>,
    stream: Box<dyn Stream>,
}

/// A watch that was begun.
#[derive(Debug)]
pub struct WatchStream {
    stream: Box<dyn Stream>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug> Stream for T {}

impl ScriptedApi {
    /// Without TLS.
    ///
    /// # Panics
    /// As everything here, where a test cannot go on.
    pub async fn start() -> Self {
        Self::listen("http", |stream| async { Some(Box::new(stream) as Box<dyn Stream>) }).await
    }

    pub async fn start_tls(settings: Arc<rustls::ServerConfig>) -> Self {
        let acceptor = TlsAcceptor::from(settings);
        Self::listen("https", move |stream| {
            let acceptor = acceptor.clone();
            async move { acceptor.accept(stream).await.ok().map(|stream| Box::new(stream) as Box<dyn Stream>) }
        })
        .await
    }

    async fn listen<F: Future<Output = Option<Box<dyn Stream>>> + Send>(
        scheme: &str,
        greet: impl Fn(tokio::net::TcpStream) -> F + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("{scheme}://{}", listener.local_addr().expect("it is bound"));
        let (sender, asked) = mpsc::unbounded_channel();
        let listening = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("it listens");
                let Some(stream) = greet(stream).await else { continue };
                if let Some(request) = read(stream).await {
                    let _ = sender.send(request);
                }
            }
        });
        Self { url, asked, listening }
    }

    /// The next request.
    pub async fn asked(&mut self) -> Asked {
        timeout(PATIENCE, self.asked.recv()).await.expect("a request arrives").expect("it listens")
    }

    /// Fails if there is another request within this time.
    pub async fn nothing_within(&mut self, time: Duration) {
        if let Ok(Some(asked)) = timeout(time, self.asked.recv()).await {
            panic!("{} {}", asked.method, asked.path);
        }
    }

    /// From now on nobody listens.
    pub async fn go_away(self) -> String {
        self.listening.abort();
        let _ = self.listening.await;
        self.url
    }
}

impl Asked {
    /// Value of a parameter as it was sent.
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
        let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        // Whoever asked may be gone.
        let _ = stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await;
        let _ = stream.shutdown().await;
    }

    pub async fn json(self, value: &Value) {
        self.answer("200 OK", "Content-Type: application/json\r\n", &value.to_string()).await;
    }

    /// A refusal as the API server words it.
    pub async fn status(self, code: u16, message: &str) {
        let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "R"});
        self.answer(&format!("{code} R"), "Content-Type: application/json\r\n", &status.to_string()).await;
    }

    /// Answers a list.
    pub async fn list(self, version: &str, pods: &[Value]) {
        self.json(&json!({"kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": version}, "items": pods})).await;
    }

    /// Begins an answer to a watch.
    pub async fn begin(self) -> WatchStream {
        let mut stream = self.stream;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n").await.expect(ASKER);
        WatchStream { stream }
    }
}

impl WatchStream {
    pub async fn send(&mut self, kind: &str, object: &Value) {
        self.raw(&format!("{}\n", json!({"type": kind, "object": object}))).await;
    }

    /// One chunk of bytes.
    pub async fn raw(&mut self, text: &str) {
        self.stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await.expect(ASKER);
    }

    pub async fn bookmark(&mut self, version: &str) {
        self.send("BOOKMARK", &json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version}})).await;
    }

    /// As the API server ends a watch.
    pub async fn end(mut self) {
        self.stream.write_all(b"0\r\n\r\n").await.expect(ASKER);
        let _ = self.stream.shutdown().await;
    }
}

async fn read(mut stream: Box<dyn Stream>) -> Option<Asked> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let text = String::from_utf8(head).expect(HTTP);
    let (first, rest) = text.split_once("\r\n").expect(HTTP);
    let lines =
        rest.lines().filter_map(|line| line.split_once(": ")).map(|(name, value)| format!("{}: {value}\n", name.to_ascii_lowercase()));
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next().expect(HTTP), words.next().expect(HTTP));
    let mut asked = Asked { method, path, head: lines.collect(), body: Vec::new(), stream };
    let length = asked.header("content-length").map_or(0, |length| length.parse().expect(HTTP));
    asked.body = vec![0; length];
    asked.stream.read_exact(&mut asked.body).await.ok()?;
    Some(asked)
}
