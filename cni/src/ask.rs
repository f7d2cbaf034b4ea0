//! The node-local server, as the plugin sees it: HTTP over a unix socket.

use std::{
    cell::{Cell, RefCell},
    io::{self, Write},
    os::{fd::AsRawFd, unix::net::UnixStream as StdStream},
    path::{Path, PathBuf},
    time::Duration,
};

use contract::{
    annotation::Role,
    error::CniError,
    wire::{
        BridgeFacts, METRICS_PATH, Metrics, PORT_PATH, PodChange, PodInterface, PortRequest,
        PortStatus, REQUEST_PATH, Refused, Request, Response, Retry, StatusAnswer, WATCH_PATH,
        WatchAnswer, WatchRequest,
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
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use serde::Serialize;
use tokio::{
    net::UnixStream,
    task::JoinHandle,
    time::{Instant, sleep, timeout, timeout_at},
};

/// How long a server may be away. An upgrade replaces it in less. Much shorter, and ADDs fail
/// during each upgrade; longer, and an ADD on a node without a server takes more than the second
/// that row 1 of the fault matrix allows for the whole call.
const RESTART_GRACE: Duration = Duration::from_millis(900);
/// How long the successor of a server that announced its end may take to start. A DaemonSet starts
/// the next container in less if the image is on the node. An ADD of 55 s that is refused at once,
/// by a server that then needs its full 20 s to end, still has some time left afterwards.
const NEXT_SERVER_GRACE: Duration = Duration::from_secs(30);
/// How many broken connections one request survives. A server that breaks more often does so
/// because of the request.
const MOST_RESTARTS: usize = 3;
/// The interval between two attempts to connect: a socket that does not exist cannot be waited for.
/// An ADD loses at most this much once the server is back, and 40 attempts a second cost next to
/// nothing.
const RETRY_AFTER: Duration = Duration::from_millis(25);
const _: () = assert!(
    RESTART_GRACE.as_millis() + RETRY_AFTER.as_millis() < 1000,
    "the last attempt has to be early enough for row 1 of the fault matrix"
);
/// How long the plugin waits for the connection of an answered request, to send the report on it.
/// It is free at once, unless the server is still writing. The runtime waits for the end of this
/// process, so a longer wait would cost each pod more than the report is worth.
const REPORT_PATIENCE: Duration = Duration::from_millis(20);
/// Limit of an answer in bytes. Real ones are far smaller; the limit bounds the memory of the
/// plugin.
const MAX_ANSWER: usize = 1024 * 1024;

/// Limit of a line of progress in bytes. Real ones are far shorter.
const MAX_LINE: usize = 1024;

/// The node-local server behind a socket.
#[derive(Debug)]
pub struct Server {
    socket: PathBuf,
    /// The connection of the last request, kept for the next one.
    line: RefCell<Option<Line>>,
    /// A request was made and has no answer yet.
    is_owing: Cell<bool>,
}

/// A connection to the server.
#[derive(Debug)]
struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// Ends when the sender is dropped, and returns the stream that the connection was made from.
    connection: JoinHandle<hyper::Result<Parts<TokioIo<UnixStream>>>>,
}

/// The server's answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// The result, to be printed: upstream's server in privileged mode has done the whole work
    /// itself.
    Finished(serde_json::Value),
    /// The interface to configure and, if the server can write the port, the facts of its bridge.
    Interface(Box<PodInterface>, Option<BridgeFacts>),
    /// An empty answer: no objection.
    Nothing,
    /// JSON with none of these. No server answers a CHECK like that.
    Unknown,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("the node-local server is not running: nothing listens on {socket}")]
    Absent { socket: PathBuf, source: io::Error },
    #[error("the node-local server is busy or hangs: {socket} takes no more connections")]
    Full { socket: PathBuf },
    #[error("the node-local server is busy or hangs: no answer for {} s", .0.as_secs_f32())]
    Silent(Duration),
    #[error("the connection to the node-local server broke")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server's own error, with its message and code.
    #[error("{}", .0.msg)]
    Refused(CniError),
    /// The same from a server that is shutting down and has a successor.
    #[error("{}", .0.msg)]
    Leaving(CniError),
    #[error("the node-local server answers {status}: {body}")]
    Unexpected { status: StatusCode, body: String },
    /// Older servers of this project, and upstream's, do not refuse it themselves.
    #[error("the pod's primary network is a user-defined one, which is not supported")]
    PrimaryNetwork,
    #[error("the node-local server's answer cannot be parsed")]
    Answer(#[from] serde_json::Error),
}

impl Server {
    /// The server behind this socket. Does not connect yet.
    pub fn at(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), line: RefCell::default(), is_owing: Cell::new(false) }
    }

    /// Passes the runtime's request on. The server answers an ADD once the pod has its annotation.
    /// Repeats the request if the server is replaced meanwhile.
    ///
    /// # Errors
    /// The server is not running, and none starts in time; it refuses the request, breaks the
    /// connection again and again, or sends an answer that cannot be parsed; or the pod's primary
    /// network is a user-defined one.
    pub async fn ask(&self, request: &Request) -> Result<Answer, AskError> {
        let started = Instant::now();
        let mut patience = started + RESTART_GRACE;
        let end = request.timeout_ms.and_then(|ms| started.checked_add(Duration::from_millis(ms)));
        // Not later than the end of the request's time: the server's refusal would be lost to the
        // plugin's deadline.
        let for_the_next = || {
            end.map_or_else(
                || Instant::now() + NEXT_SERVER_GRACE,
                |end| end.min(Instant::now() + NEXT_SERVER_GRACE),
            )
        };
        let mut leaves = None;
        let mut broken_off = 0;
        let mut again = None;
        let body = loop {
            match self.post(REQUEST_PATH, again.as_ref().unwrap_or(request)).await {
                // While a server is replaced there is no socket, or one that nothing listens on.
                Err(AskError::Absent { .. }) if Instant::now() < patience => {
                    sleep(RETRY_AFTER).await
                }
                // The server finishes its requests, and is gone when it closes the connection. From
                // then on it counts as absent, and its successor has the longer grace.
                Err(AskError::Leaving(_))
                    if Instant::now() < *leaves.get_or_insert_with(for_the_next) =>
                {
                    let _ = timeout_at(for_the_next(), self.hangs_up()).await;
                    patience = for_the_next();
                    sleep(RETRY_AFTER).await;
                }
                // The server is running; the caller limits the wait.
                Err(AskError::Full { .. }) => sleep(RETRY_AFTER).await,
                // The server was replaced while the request waited for the annotation. The request
                // changes nothing, so it can be repeated.
                Err(AskError::Broken(_)) if broken_off < MOST_RESTARTS => {
                    broken_off += 1;
                    patience = patience.max(Instant::now() + RESTART_GRACE);
                }
                other => break other?,
            }
            again = Some(left(request, started));
        };
        if body.is_empty() {
            return Ok(Answer::Nothing);
        }
        let Response { result, pod_if_info, kube_auth: _, primary_network, bridge } =
            serde_json::from_slice(&body)?;
        let is_locked = |pod: &PodInterface| pod.addressing.role == Role::InfrastructureLocked;
        if primary_network.is_some() || pod_if_info.as_ref().is_some_and(is_locked) {
            return Err(AskError::PrimaryNetwork);
        }
        Ok(match (result, pod_if_info) {
            (Some(result), _) if result.is_object() => Answer::Finished(result),
            (Some(_), _) => {
                return Err(AskError::Answer(serde::de::Error::custom(
                    "its CNI result is not an object",
                )));
            }
            (None, Some(pod)) => Answer::Interface(Box::new(pod), bridge),
            (None, None) => Answer::Unknown,
        })
    }

    /// [`Self::ask`] with a limit for everything together.
    ///
    /// # Errors
    /// As [`Self::ask`]; [`AskError::Silent`] if there is no answer within `patience`.
    pub async fn ask_within(
        &self,
        patience: Duration,
        request: &Request,
    ) -> Result<Answer, AskError> {
        timeout(patience, self.ask(request)).await.unwrap_or(Err(AskError::Silent(patience)))
    }

    /// Whether an ADD could succeed, as far as the server knows. Does not wait for a server that
    /// restarts. The answer is empty if the server knows nothing of the other daemons, as
    /// upstream's.
    ///
    /// # Errors
    /// The server is not running, is too busy to accept, refuses, breaks the connection, or sends
    /// an answer that cannot be parsed.
    pub async fn status(&self, request: &Request) -> Result<StatusAnswer, AskError> {
        let body = self.post(REQUEST_PATH, request).await?;
        Ok(if body.is_empty() { StatusAnswer::default() } else { serde_json::from_slice(&body)? })
    }

    /// Returns once the pod differs from the request. Never returns if the server cannot tell;
    /// upstream's cannot.
    pub async fn watch(&self, request: &WatchRequest) -> PodChange {
        // A connection of its own: the other one may carry the progress of a port.
        let body = Self::at(&self.socket).post(WATCH_PATH, request).await.ok();
        match body.and_then(|body| serde_json::from_slice::<WatchAnswer>(&body).ok()) {
            Some(WatchAnswer { change }) => change,
            None => std::future::pending().await,
        }
    }

    /// Asks the server to write a port. `None` if it cannot write any (upstream's cannot, and one
    /// of another version cannot read the request), or not now.
    ///
    /// # Errors
    /// [`AskError::Refused`] if the pod is no longer what the server has answered: it has another
    /// UID, other addresses, or annotations that cannot be used.
    pub async fn write_port(&self, request: &PortRequest) -> Result<Option<News>, AskError> {
        self.is_owing.set(true);
        let answer = self.ask_for_port(request).await;
        self.is_owing.set(false);
        answer
    }

    async fn ask_for_port(&self, request: &PortRequest) -> Result<Option<News>, AskError> {
        let Ok(response) = self.send(PORT_PATH, request).await else { return Ok(None) };
        match response.status() {
            StatusCode::OK => {
                Ok(Some(News { lines: response.into_body(), rest: Vec::new(), last: None }))
            }
            // What this plugin has planned is out of date: it must not write it either.
            status @ (StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY) => {
                match read(response.into_body()).await.map(|body| refusal(status, &body)) {
                    Ok(refused @ AskError::Refused(_)) => Err(refused),
                    // Not an answer of this project's server.
                    Ok(_) | Err(_) => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    async fn post(&self, path: &str, message: &impl Serialize) -> Result<Bytes, AskError> {
        self.is_owing.set(true);
        let answer = self.exchange(path, message).await;
        // Not reached if the caller drops this future: then the server still owes an answer. A
        // server with a full backlog counts as owing one, because it would not receive a report
        // either.
        self.is_owing.set(matches!(answer, Err(AskError::Full { .. })));
        answer
    }

    async fn exchange(&self, path: &str, message: &impl Serialize) -> Result<Bytes, AskError> {
        let response = self.send(path, message).await?;
        let status = response.status();
        let body = read(response.into_body()).await?;
        if status == StatusCode::OK { Ok(body) } else { Err(refusal(status, &body)) }
    }

    async fn send(
        &self,
        path: &str,
        message: &impl Serialize,
    ) -> Result<hyper::Response<Incoming>, AskError> {
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
        // Only now: a request that fails, or is dropped before its answer begins, takes its
        // connection along.
        self.line.replace(Some(line));
        Ok(response)
    }

    /// The connection of the last request; `None` if there was none, or if the server has closed
    /// it.
    async fn line_left(&self) -> Option<Line> {
        let mut line = self.line.take()?;
        line.sender.ready().await.ok()?;
        Some(line)
    }

    /// Waits until the server closes the connection of the last request, if there is one. A server
    /// closes it when it ends, or after a while without a request.
    async fn hangs_up(&self) {
        if let Some(Line { sender, connection }) = self.line.take() {
            // How the connection ended does not matter. The sender has to live until then: dropping
            // it closes this side of the connection.
            let _ = connection.await;
            drop(sender);
        }
    }

    async fn connect(&self) -> Result<Line, AskError> {
        let socket = || self.socket.clone();
        let stream =
            UnixStream::connect(&self.socket).await.map_err(|source| match source.kind() {
                // The backlog of the socket is full (connect(2), EAGAIN).
                io::ErrorKind::WouldBlock => AskError::Full { socket: socket() },
                _ => AskError::Absent { socket: socket(), source },
            })?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // `without_shutdown` hands the stream back when the sender is dropped: the report goes out
        // on it.
        Ok(Line { sender, connection: tokio::spawn(connection.without_shutdown()) })
    }

    /// The transport for the report: the open connection, if no request is outstanding on it.
    pub async fn into_way(self) -> Way {
        if self.is_owing.get() {
            return Way::None;
        }
        let Some(Line { mut sender, connection }) = self.line.into_inner() else { return Way::New };
        let parts = async {
            sender.ready().await.ok()?;
            drop(sender);
            connection.await.ok()?.ok()
        };
        let stream = timeout(REPORT_PATIENCE, parts).await.ok().flatten();
        stream.and_then(|parts| parts.io.into_inner().into_std().ok()).map_or(Way::New, Way::Left)
    }
}

/// The transport of a report.
#[derive(Debug)]
pub enum Way {
    /// The connection of the call.
    Left(StdStream),
    /// A new connection.
    New,
    /// No report: the server owes an answer.
    None,
}

/// The server's status messages on a port that it was asked to write.
#[derive(Debug)]
pub struct News {
    lines: Incoming,
    /// The beginning of the next line.
    rest: Vec<u8>,
    /// The last message.
    pub last: Option<PortStatus>,
}

impl News {
    /// The next message; `None` at the end, or after one that cannot be parsed. Cancellation-safe.
    pub async fn next(&mut self) -> Option<PortStatus> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                self.last = Some(serde_json::from_slice(&line).ok()?);
                return self.last;
            }
            if self.rest.len() > MAX_LINE {
                return None;
            }
            // `rest` has all earlier bytes: dropping this future at the `await` loses nothing.
            let frame = self.lines.frame().await?.ok()?;
            self.rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
    }
}

/// The request with the time that is left since it was `started`, so that a server can still answer
/// in its own words before the caller gives up.
fn left(request: &Request, started: Instant) -> Request {
    let elapsed = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Request {
        timeout_ms: request.timeout_ms.map(|all| all.saturating_sub(elapsed)),
        ..request.clone()
    }
}

/// The body of an answer.
async fn read(body: Incoming) -> Result<Bytes, AskError> {
    Ok(Limited::new(body, MAX_ANSWER).collect().await.map_err(AskError::Broken)?.to_bytes())
}

/// The error in an answer other than success.
fn refusal(status: StatusCode, body: &[u8]) -> AskError {
    match serde_json::from_slice::<Refused>(body) {
        Ok(Refused { error, retry: Some(Retry::NextServer) }) if error.code != 0 => {
            AskError::Leaving(error)
        }
        Ok(Refused { error, retry: None }) if error.code != 0 => AskError::Refused(error),
        // Not a server of this project, or not its answer: the start of the body helps to tell.
        _ => AskError::Unexpected {
            status,
            body: String::from_utf8_lossy(body).trim().chars().take(1024).collect(),
        },
    }
}

fn broken(error: hyper::Error) -> AskError {
    AskError::Broken(error.into())
}

/// Tells the server how a call went. Best effort: does not wait for the answer, nor for a server
/// that is slow to accept or to read.
///
/// # Errors
/// The server is not running, does not accept at once or owes an answer, or the socket's buffer is
/// full.
pub fn report(way: Way, socket: &Path, metrics: &Metrics) -> io::Result<()> {
    let body = serde_json::to_vec(metrics)?;
    let length = body.len();
    let mut message = format!(
        "POST {METRICS_PATH} HTTP/1.1\r\nHost: ovnkube\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    )
    .into_bytes();
    message.extend(body);
    match way {
        Way::Left(mut stream) => match stream.write_all(&message) {
            // The server has closed the connection meanwhile. A full buffer (`WouldBlock`) is no
            // reason to try again: the server does not read.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                connect_at_once(socket)?.write_all(&message)
            }
            written => written,
        },
        Way::New => connect_at_once(socket)?.write_all(&message),
        Way::None => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Connects without blocking, or fails. A blocking connect(2) waits without limit for a server to
/// accept.
fn connect_at_once(path: &Path) -> io::Result<StdStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(StdStream::from(socket))
}

#[cfg(test)]
mod tests;
