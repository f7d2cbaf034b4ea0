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
        BridgeFacts, METRICS_PATH, Metrics, PORT_PATH, PodChange, PodInterface, PortNews, PortRequest, REQUEST_PATH, Refused, Request,
        Response, Retry, StatusAnswer, WATCH_PATH, WatchAnswer, WatchRequest,
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

/// How long a server that is not there may take to come (back): an upgrade replaces it in less.
const RESTART_GRACE: Duration = Duration::from_secs(1);
/// How long one may take to come that was announced by the server before it: a DaemonSet starts the next container in less where the image is
/// there. An ADD of 55 s that is sent away at once, by a server that then needs all of its 20 s to end, has some left.
const NEXT_SERVER_GRACE: Duration = Duration::from_secs(30);
/// How many restarts one request outlives; a server that breaks off more often does so because of the request.
const MOST_RESTARTS: usize = 3;
/// Between two tries to reach it: a socket that does not exist cannot be waited on. It is the most that an ADD loses once the server is back, and 40
/// tries a second cost next to nothing.
const RETRY_AFTER: Duration = Duration::from_millis(25);
/// What it may cost to get back the connection of a request that is answered: nothing, unless the server is still writing. The runtime waits for the
/// end of this process, and a lost report is a figure less.
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
    /// A request has been made and not been answered.
    is_owing: Cell<bool>,
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
    #[error("the node-local server is busy or hangs: {socket} takes no more connections")]
    Full { socket: PathBuf },
    #[error("the node-local server is busy or hangs: no answer for {} s", .0.as_secs_f32())]
    Silent(Duration),
    #[error("the node-local server broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Its own words, with its own code.
    #[error("{}", .0.msg)]
    Refused(CniError),
    /// The same, of a server that ends and whose place another one takes.
    #[error("{}", .0.msg)]
    Leaving(CniError),
    #[error("the node-local server answers {status}: {body}")]
    Unexpected { status: StatusCode, body: String },
    /// An older server of ours, or upstream's, has no objection.
    #[error("the pod's primary network is a user-defined one, which is not supported")]
    PrimaryNetwork,
    #[error("an answer that cannot be understood")]
    Answer(#[from] serde_json::Error),
}

impl Server {
    /// The server behind this socket; nothing is connected yet.
    pub fn at(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), line: RefCell::default(), is_owing: Cell::new(false) }
    }

    /// Passes the runtime's request on. The server answers an ADD once the pod's annotation is there.
    pub async fn ask(&self, request: &Request) -> Result<Answer, AskError> {
        let started = Instant::now();
        let mut patience = started + RESTART_GRACE;
        let end = request.timeout_ms.and_then(|ms| started.checked_add(Duration::from_millis(ms)));
        // Whoever is waited for until the very end has its words lost.
        let for_the_next = || end.map_or_else(|| Instant::now() + NEXT_SERVER_GRACE, |end| end.min(Instant::now() + NEXT_SERVER_GRACE));
        let mut leaves = None;
        let mut broken_off = 0;
        let body = loop {
            match self.post(REQUEST_PATH, &left(request, started)).await {
                Err(AskError::Absent { .. }) if Instant::now() < patience => sleep(RETRY_AFTER).await,
                // It finishes what it has begun, and is gone when it hangs up. From then on it is one that is not there.
                Err(AskError::Leaving(_)) if Instant::now() < *leaves.get_or_insert_with(for_the_next) => {
                    let _ = timeout_at(for_the_next(), self.hangs_up()).await;
                    patience = for_the_next();
                    sleep(RETRY_AFTER).await;
                }
                // It is there, and the caller knows how long it may take.
                Err(AskError::Full { .. }) => sleep(RETRY_AFTER).await,
                // It was replaced while it waited for the annotation. Asking changes nothing, so it may be asked again.
                Err(AskError::Broken(_)) if broken_off < MOST_RESTARTS => {
                    broken_off += 1;
                    patience = patience.max(Instant::now() + RESTART_GRACE);
                }
                other => break other?,
            }
        };
        if body.is_empty() {
            return Ok(Answer::Nothing);
        }
        let Response { result, pod_if_info, kube_auth: _, primary_network, bridge } = serde_json::from_slice(&body)?;
        let is_locked = |pod: &PodInterface| pod.addressing.role == Role::InfrastructureLocked;
        if primary_network.is_some() || pod_if_info.as_ref().is_some_and(is_locked) {
            return Err(AskError::PrimaryNetwork);
        }
        Ok(match (result, pod_if_info) {
            (Some(result), _) if result.is_object() => Answer::Finished(result),
            (Some(_), _) => return Err(AskError::Answer(serde::de::Error::custom("the CNI result in it is no object"))),
            (None, Some(pod)) => Answer::Interface(Box::new(pod), bridge),
            (None, None) => Answer::Nothing,
        })
    }

    /// The same, of a server that has this long.
    pub async fn ask_within(&self, patience: Duration, request: &Request) -> Result<Answer, AskError> {
        timeout(patience, self.ask(request)).await.unwrap_or(Err(AskError::Silent(patience)))
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
        self.is_owing.set(true);
        let response = self.send(PORT_PATH, request).await;
        self.is_owing.set(false);
        let response = response.ok()?;
        (response.status() == StatusCode::OK).then(|| News { lines: response.into_body(), rest: Vec::new(), last: None })
    }

    async fn post(&self, path: &str, message: &impl Serialize) -> Result<Bytes, AskError> {
        self.is_owing.set(true);
        let answer = self.exchange(path, message).await;
        // Not where the caller has given up meanwhile: then the server still owes its answer.
        self.is_owing.set(matches!(answer, Err(AskError::Full { .. })));
        answer
    }

    async fn exchange(&self, path: &str, message: &impl Serialize) -> Result<Bytes, AskError> {
        let response = self.send(path, message).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(AskError::Broken)?.to_bytes();
        if status == StatusCode::OK {
            return Ok(body);
        }
        Err(match serde_json::from_slice::<Refused>(&body) {
            Ok(Refused { error, retry: Some(Retry::NextServer) }) if error.code != 0 => AskError::Leaving(error),
            Ok(Refused { error, retry: None }) if error.code != 0 => AskError::Refused(error),
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

    /// Waits for the server to close the connection of the last request, if there is one: a server that ends does, and one that has heard nothing
    /// on it for a while.
    async fn hangs_up(&self) {
        if let Some(Line { sender, connection }) = self.line.take() {
            // How it ended does not matter. The sender stays: without one, this side would hang up.
            let _ = connection.await;
            drop(sender);
        }
    }

    async fn connect(&self) -> Result<Line, AskError> {
        let socket = || self.socket.clone();
        let stream = UnixStream::connect(&self.socket).await.map_err(|source| match source.kind() {
            // The kernel has no room for more connections that wait to be accepted (connect(2), EAGAIN).
            io::ErrorKind::WouldBlock => AskError::Full { socket: socket() },
            _ => AskError::Absent { socket: socket(), source },
        })?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        Ok(Line { sender, connection: tokio::spawn(connection.without_shutdown()) })
    }

    /// The way to report on what was asked: the connection, if one is left that nothing is under way on.
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

/// How the server hears a report.
#[derive(Debug)]
pub enum Way {
    /// A connection that is left of the call.
    Left(StdStream),
    New,
    /// Not at all: it was asked something and has not answered.
    None,
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

/// The request with what is left of its time since it was `started`: a server answers in its own words before the caller gives up.
fn left(request: &Request, started: Instant) -> Request {
    let elapsed = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Request { timeout_ms: request.timeout_ms.map(|all| all.saturating_sub(elapsed)), ..request.clone() }
}

fn broken(error: hyper::Error) -> AskError {
    AskError::Broken(error.into())
}

/// Tells the server how a request went. Nobody minds if nobody listens, and nothing is waited for: neither for the answer nor for a server
/// that is behind with accepting or reading.
pub fn report(way: Way, socket: &Path, metrics: &Metrics) -> io::Result<()> {
    let body = serde_json::to_vec(metrics)?;
    let length = body.len();
    let mut message = format!(
        "POST {METRICS_PATH} HTTP/1.1\r\nHost: ovnkube\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )
    .into_bytes();
    message.extend(body);
    match way {
        Way::Left(mut stream) => match stream.write_all(&message) {
            // The server has closed it meanwhile.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => connect_at_once(socket)?.write_all(&message),
            written => written,
        },
        Way::New => connect_at_once(socket)?.write_all(&message),
        Way::None => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// A connection that is there at once or not at all, and does not block: an ordinary one waits without limit for a server to accept.
fn connect_at_once(path: &Path) -> io::Result<StdStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(StdStream::from(socket))
}

#[cfg(test)]
mod tests;
