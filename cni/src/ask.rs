//! The node-local server, as the plugin sees it: HTTP over a unix socket.

use std::{
    cell::RefCell,
    io::{self, Write},
    os::unix::net::UnixStream as StdStream,
    path::{Path, PathBuf},
    time::Duration,
};

use contract::{
    error::CniError,
    wire::{
        BridgeFacts, METRICS_PATH, Metrics, PORT_PATH, PodChange, PodInterface, PortNews, PortRequest, REQUEST_PATH, Request, Response,
        StatusAnswer, WATCH_PATH, WatchAnswer, WatchRequest,
    },
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1::{self, Parts, SendRequest},
    header::{CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::{
    net::UnixStream,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

/// How long a server that is not there may take to come (back): an upgrade replaces it in less.
const RESTART_GRACE: Duration = Duration::from_secs(1);
/// How many restarts one request outlives; a server that breaks off more often does so because of the request.
const MOST_RESTARTS: usize = 3;
/// Between two tries to reach it: a socket that does not exist cannot be waited on.
const RETRY_AFTER: Duration = Duration::from_millis(25);
/// What the report on a request that is already answered may cost.
const REPORT_PATIENCE: Duration = Duration::from_millis(20);
/// An answer is smaller by far.
const MAX_ANSWER: usize = 1024 * 1024;

/// So is a line of news.
const MAX_LINE: usize = 1024;

/// The server behind a socket.
#[derive(Debug)]
pub struct Server {
    socket: PathBuf,
    /// The connection of the last request, for the next one.
    line: RefCell<Option<Line>>,
}

/// A connection to it.
#[derive(Debug)]
struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// Ends when the sender is dropped, with what it was made from.
    connection: JoinHandle<hyper::Result<Parts<TokioIo<UnixStream>>>>,
}

/// What the server says to a request.
#[derive(Debug)]
pub enum Answer {
    /// Upstream's server in privileged mode has done the work itself; this is the result, to be printed.
    Finished(serde_json::Value),
    /// What to configure; and, if the server can write the port, where it will be.
    Interface(Box<PodInterface>, Option<BridgeFacts>),
    /// Nothing: it has no objection.
    Nothing,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("the node-local server is not running: nobody listens on {socket}")]
    Absent { socket: PathBuf, source: io::Error },
    #[error("the node-local server broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Its own words, with its own code.
    #[error("{}", .0.msg)]
    Refused(CniError),
    #[error("the node-local server answers {status}: {body}")]
    Unexpected { status: StatusCode, body: String },
    #[error("an answer that cannot be understood")]
    Answer(#[from] serde_json::Error),
}

impl Server {
    /// The server behind this socket; nothing is connected yet.
    pub fn at(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), line: RefCell::default() }
    }

    /// Passes the runtime's request on. The server answers an ADD once the pod's annotation is there.
    pub async fn ask(&self, request: &Request) -> Result<Answer, AskError> {
        let mut patience = Instant::now() + RESTART_GRACE;
        let mut broken_off = 0;
        let body = loop {
            match self.post(REQUEST_PATH, request).await {
                Err(AskError::Absent { .. }) if Instant::now() < patience => sleep(RETRY_AFTER).await,
                // It was replaced while it waited for the annotation. Asking changes nothing, so it may be asked again.
                Err(AskError::Broken(_)) if broken_off < MOST_RESTARTS => {
                    broken_off += 1;
                    patience = Instant::now() + RESTART_GRACE;
                }
                other => break other?,
            }
        };
        if body.is_empty() {
            return Ok(Answer::Nothing);
        }
        let Response { result, pod_if_info, kube_auth: _, bridge } = serde_json::from_slice(&body)?;
        Ok(match (result, pod_if_info) {
            (Some(result), _) if result.is_object() => Answer::Finished(result),
            (Some(_), _) => return Err(AskError::Answer(serde::de::Error::custom("the CNI result in it is no object"))),
            (None, Some(pod)) => Answer::Interface(Box::new(pod), bridge),
            (None, None) => Answer::Nothing,
        })
    }

    /// Whether an ADD could succeed, as far as the server knows. Does not wait for one that restarts. A server that says no more than yes
    /// knows nothing of others.
    pub async fn status(&self, request: &Request) -> Result<StatusAnswer, AskError> {
        let body = self.post(REQUEST_PATH, request).await?;
        Ok(if body.is_empty() { StatusAnswer::default() } else { serde_json::from_slice(&body)? })
    }

    /// Returns once the pod is no longer what the request says; never, if the server cannot tell (upstream's cannot).
    pub async fn watch(&self, request: &WatchRequest) -> PodChange {
        // The other connection may be busy with a port.
        let body = Self::at(&self.socket).post(WATCH_PATH, request).await.ok();
        match body.and_then(|body| serde_json::from_slice::<WatchAnswer>(&body).ok()) {
            Some(WatchAnswer { change }) => change,
            None => std::future::pending().await,
        }
    }

    /// Asks for a port; none if the server cannot write any (upstream's cannot), or not now.
    pub async fn write_port(&self, request: &PortRequest) -> Option<News> {
        let response = self.send(PORT_PATH, request).await.ok()?;
        (response.status() == StatusCode::OK).then(|| News { lines: response.into_body(), rest: Vec::new(), last: None })
    }

    async fn post(&self, path: &str, message: &impl Serialize) -> Result<Bytes, AskError> {
        let response = self.send(path, message).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(AskError::Broken)?.to_bytes();
        if status == StatusCode::OK {
            return Ok(body);
        }
        Err(match serde_json::from_slice::<CniError>(&body) {
            Ok(error) if error.code != 0 => AskError::Refused(error),
            _ => AskError::Unexpected { status, body: String::from_utf8_lossy(&body).trim().chars().take(1024).collect() },
        })
    }

    async fn send(&self, path: &str, message: &impl Serialize) -> Result<hyper::Response<Incoming>, AskError> {
        let body = Full::new(Bytes::from(serde_json::to_vec(message)?));
        let request = hyper::Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, "ovnkube")
            .header(CONTENT_TYPE, "application/json")
            .body(body)
            .expect("a path and constant headers make a request");
        let mut line = match self.line_left().await {
            Some(line) => line,
            None => self.connect().await?,
        };
        let response = line.sender.send_request(request).await.map_err(broken)?;
        self.line.replace(Some(line));
        Ok(response)
    }

    /// The connection of the request before; none if there was none, or if the server has closed it.
    async fn line_left(&self) -> Option<Line> {
        let mut line = self.line.take()?;
        line.sender.ready().await.ok()?;
        Some(line)
    }

    async fn connect(&self) -> Result<Line, AskError> {
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|source| AskError::Absent { socket: self.socket.clone(), source })?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        Ok(Line { sender, connection: tokio::spawn(connection.without_shutdown()) })
    }

    /// The connection, if one is left that nothing is under way on.
    pub async fn into_stream(self) -> Option<StdStream> {
        let Line { mut sender, connection } = self.line.into_inner()?;
        let parts = async {
            sender.ready().await.ok()?;
            drop(sender);
            connection.await.ok()?.ok()
        };
        let stream = timeout(REPORT_PATIENCE, parts).await.ok()??.io.into_inner().into_std().ok()?;
        stream.set_nonblocking(false).ok()?;
        Some(stream)
    }
}

/// What the server says of a port that it was asked for.
#[derive(Debug)]
pub struct News {
    lines: Incoming,
    /// The beginning of a line.
    rest: Vec<u8>,
    /// What it said last.
    pub last: Option<PortNews>,
}

impl News {
    /// The next line; none at the end, or if it cannot be understood. Cancellation-safe.
    pub async fn next(&mut self) -> Option<PortNews> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                self.last = Some(serde_json::from_slice(&line).ok()?);
                return self.last;
            }
            if self.rest.len() > MAX_LINE {
                return None;
            }
            let frame = self.lines.frame().await?.ok()?;
            self.rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
    }
}

fn broken(error: hyper::Error) -> AskError {
    AskError::Broken(error.into())
}

/// Tells the server how a request went, on a connection that is left of it or on a new one. Nobody minds if nobody listens, and nobody waits
/// for the answer.
pub fn report(left: Option<StdStream>, socket: &Path, metrics: &Metrics) -> io::Result<()> {
    let body = serde_json::to_vec(metrics)?;
    let length = body.len();
    let mut message = format!(
        "POST {METRICS_PATH} HTTP/1.1\r\nHost: ovnkube\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )
    .into_bytes();
    message.extend(body);
    let say = |mut stream: StdStream| {
        stream.set_write_timeout(Some(REPORT_PATIENCE))?;
        stream.write_all(&message)
    };
    match left.map(say) {
        Some(Ok(())) => Ok(()),
        // The server has closed it meanwhile.
        Some(Err(_)) | None => say(StdStream::connect(socket)?),
    }
}
