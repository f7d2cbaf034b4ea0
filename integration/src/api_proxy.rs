//! A proxy in front of the API server that injects what a healthy API server never does: it delays,
//! stays silent, hangs up in the middle of a chunk, or answers in the API server's place. Every
//! other request goes to a real API server.
//!
//! It terminates TLS with the API server's own certificate, so a client cannot tell the two apart.
//! Every connection carries one request. Must not know: what the requests are for. A test says
//! which of them a [`Fault`] meets.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Runtime, sync::watch, task::JoinHandle};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::{
    cluster::{Api, Credentials},
    fabric,
};

mod exchange;
mod request;
mod tls;

pub use request::Asked;

/// Where the API server itself listens.
const API_SERVER: (&str, u16) = (fabric::LAB_ADDRESS, 6443);

/// What happens to a request that is not passed on at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The connection ends without an answer.
    HangUp,
    /// No answer comes for as long as the client waits.
    Silence,
    /// It is passed on after this time.
    Delay(Duration),
    /// The proxy answers this.
    Answer(Answer),
    /// The answer ends in the middle of the first chunk of its body.
    Truncate,
}

/// An answer in the API server's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code and reason: `429 Too Many Requests`.
    pub status: String,
    /// Whole lines, each with its CRLF; `Content-Length` is added.
    pub headers: String,
    /// The body.
    pub body: String,
}

/// Which requests a fault meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Of {
    /// All of them.
    All,
    /// Lists of the pods of a node.
    Lists,
    /// Watches of the pods of a node.
    Watches,
    /// Patches of pods.
    Patches,
    /// Requests with this bearer token.
    Token(String),
}

/// The proxy. It ends with the runtime of the [`Api`] that it was started with.
#[derive(Debug)]
pub struct ApiProxy {
    address: SocketAddr,
    runtime: Arc<Runtime>,
    shared: Arc<Shared>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

/// What all connections share.
struct Shared {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    plans: Mutex<Vec<Plan>>,
    asked: Mutex<Vec<Asked>>,
    /// Changes when every open connection has to end.
    cut: watch::Sender<u64>,
    /// How many events of watches are still to be cut in the middle.
    truncations: Mutex<usize>,
}

/// A fault for future requests.
struct Plan {
    of: Of,
    fault: Fault,
    /// How many more requests it meets; `None`: every one.
    times: Option<usize>,
}

impl Answer {
    /// A failure as the API server reports it (a `Status` object), with additional headers.
    pub fn failure(code: u16, reason: &str, message: &str, headers: &str) -> Self {
        let body = status(code, reason, message).to_string();
        Self {
            status: format!("{code} {reason}"),
            headers: format!("Content-Type: application/json\r\n{headers}"),
            body,
        }
    }

    /// A watch that starts with status 200 and whose first event is an error.
    pub fn failing_watch(code: u16, reason: &str, message: &str) -> Self {
        let event = json!({"type": "ERROR", "object": status(code, reason, message)});
        Self {
            status: "200 OK".to_owned(),
            headers: "Content-Type: application/json\r\n".to_owned(),
            body: format!("{event}\n"),
        }
    }
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code})
}

impl ApiProxy {
    /// Starts the proxy in front of the API server, which need not run yet.
    pub fn start(api: &Api, credentials: &Credentials) -> Result<Self> {
        let shared = Arc::new(Shared {
            acceptor: tls::acceptor(credentials)?,
            connector: tls::connector(credentials)?,
            plans: Mutex::default(),
            asked: Mutex::default(),
            cut: watch::Sender::new(0),
            truncations: Mutex::default(),
        });
        let runtime = Arc::clone(&api.runtime);
        let listener = runtime
            .block_on(TcpListener::bind((fabric::LAB_ADDRESS, 0)))
            .context("listen in front of the API server")?;
        let address = listener.local_addr()?;
        let listening = Mutex::new(Some(runtime.spawn(accept(listener, Arc::clone(&shared)))));
        Ok(Self { address, runtime, shared, listening })
    }

    /// URL of the proxy, for clients.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Every request of this kind meets this fault, until [`ApiProxy::heal`]. An earlier fault for
    /// the same request comes first.
    pub fn inject(&self, of: Of, fault: Fault) {
        lock(&self.shared.plans).push(Plan { of, fault, times: None });
    }

    /// The next `times` requests of this kind meet this fault.
    pub fn inject_times(&self, times: usize, of: Of, fault: Fault) {
        lock(&self.shared.plans).push(Plan { of, fault, times: Some(times) });
    }

    /// Cuts the next event of a watch of pods in the middle, and ends the connection.
    pub fn truncate_next_event(&self) {
        *lock(&self.shared.truncations) += 1;
    }

    /// Removes all faults: requests are passed on again.
    pub fn heal(&self) {
        lock(&self.shared.plans).clear();
        *lock(&self.shared.truncations) = 0;
    }

    /// Ends every open connection at once.
    pub fn cut(&self) {
        self.shared.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Stops listening and ends every open connection, as if the API server had been killed: its
    /// machine still refuses connections.
    pub fn go_away(&self) {
        if let Some(listening) = lock(&self.listening).take() {
            listening.abort();
            // The kernel refuses connections only once the listener is dropped, so wait for the end
            // of its task.
            let _ = self.runtime.block_on(listening);
        }
        self.cut();
    }

    /// Listens again on the same address.
    pub fn come_back(&self) -> Result<()> {
        let listener = self
            .runtime
            .block_on(TcpListener::bind(self.address))
            .context("listen in front of the API server again")?;
        *lock(&self.listening) =
            Some(self.runtime.spawn(accept(listener, Arc::clone(&self.shared))));
        Ok(())
    }

    /// Every request so far, oldest first.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.asked).clone()
    }

    /// How many requests of this kind came since `since`.
    pub fn count(&self, of: &Of, since: Instant) -> usize {
        lock(&self.shared.asked).iter().filter(|asked| asked.at >= since && asked.is(of)).count()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// Records a request and returns the fault that it meets.
    fn meet(&self, asked: Asked) -> Option<Fault> {
        let mut plans = lock(&self.plans);
        let position = plans.iter().position(|plan| asked.is(&plan.of));
        lock(&self.asked).push(asked);
        let plan = &mut plans[position?];
        let fault = plan.fault.clone();
        if let Some(times) = &mut plan.times {
            *times -= 1;
        }
        plans.retain(|plan| plan.times != Some(0));
        Some(fault)
    }

    /// Whether the event that a watch is about to pass on is to be cut.
    fn truncates(&self) -> bool {
        let mut truncations = lock(&self.truncations);
        let yes = *truncations > 0;
        *truncations = truncations.saturating_sub(1);
        yes
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // Subscribe before the exchange, so that every later cut ends it.
            let mut cut = shared.cut.subscribe();
            // The error is ignored: the client under test reports how its connection ended.
            tokio::select! {
                _ = exchange::exchange(stream, &shared) => {}
                _ = cut.changed() => {}
            }
        });
    }
}

/// Ignores poisoning: a panic in one thread must not hide what the others find.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
