//! A proxy in front of a server (the database, the node's server), which injects faults into the
//! conversation as a test orders: it delays, loses, cuts, corrupts, replaces or refuses what the
//! server sends. An observer sees what passes.
//!
//! Runs as threads of the test's process, and ends with it. It passes bytes on, over unix sockets
//! or TCP, and knows nothing of the content, except that OVSDB's protocol (RFC 7047, JSON-RPC)
//! consists of JSON messages, and that a request carries an `id` that its reply repeats.

mod observer;

use std::{
    fs, io,
    io::{Read as _, Write as _},
    net::Shutdown,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use socket2::Socket;

use crate::{let_pass, socket::Address};

use observer::Direction;
pub use observer::{Observer, Sender};

/// What happens to connections. `Say`, `SayForEver`, `Silence` and `HangUp` count for a connection
/// from its start; everything else also applies to connections that are open already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Everything is passed on unchanged.
    None,
    /// What the server sends arrives that much later.
    Delay(Duration),
    /// The first request that contains this text is passed on. When its reply comes, the reply is
    /// lost and the connection ends.
    LoseReplyTo(String),
    /// The same for every request that contains this text.
    LoseEveryReplyTo(String),
    /// The connection ends after that many bytes from the server.
    CutAfter(usize),
    /// In each block from the server, one byte is replaced by 0xff, which no JSON contains.
    Corrupt,
    /// The client gets this text instead of the server's answer to its first request; then the
    /// connection ends.
    Say(String),
    /// The same, but the answer continues with this byte without end.
    SayForEver(String, u8),
    /// The client never gets an answer.
    Silence,
    /// The connection ends as soon as it is accepted.
    HangUp,
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    address: Address,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    behind: Address,
    fault: Mutex<Fault>,
    observer: Mutex<Option<Arc<Mutex<dyn Observer>>>>,
    connections: AtomicUsize,
    /// Connections whose client has received something.
    answered: AtomicUsize,
    /// Bytes that clients have sent.
    requested: AtomicUsize,
    struck: AtomicUsize,
    /// The connections that were accepted since the last [`Proxy::hang_up`].
    open: Mutex<Vec<Socket>>,
}

impl Proxy {
    /// Listens there and passes everything on to `behind`.
    ///
    /// # Errors
    /// If it cannot listen there.
    pub fn start(listen: impl Into<Address>, behind: impl Into<Address>) -> Result<Self> {
        let (listener, address) = listen.into().listen()?;
        let shared = Arc::new(Shared {
            behind: behind.into(),
            fault: Mutex::new(Fault::None),
            observer: Mutex::default(),
            connections: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            requested: AtomicUsize::new(0),
            struck: AtomicUsize::new(0),
            open: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let connection = accepting.connections.fetch_add(1, Ordering::Relaxed);
                let shared = Arc::clone(&accepting);
                lock(&shared.open).extend(client.try_clone());
                thread::spawn(move || shared.serve(connection, &client));
            }
        });
        Ok(Self { address, shared })
    }

    /// Takes the place of a unix socket: new connections reach the proxy, existing ones are not
    /// touched. [`Proxy::give_back`] undoes it, and so does the server when it listens again.
    ///
    /// # Errors
    /// If the socket cannot be moved, or the proxy cannot listen in its place.
    pub fn in_place_of(socket: PathBuf) -> Result<Self> {
        let behind = behind(&socket);
        fs::rename(&socket, &behind).with_context(|| format!("move {} aside", socket.display()))?;
        Self::start(socket, behind)
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Puts the server's own socket back.
    ///
    /// # Errors
    /// If the proxy is not [in the place](Proxy::in_place_of) of a socket.
    pub fn give_back(&self) -> Result<()> {
        let Address::Unix(socket) = &self.address else {
            bail!("{} is no unix socket", self.address)
        };
        fs::rename(behind(socket), socket)
            .with_context(|| format!("give {} back", socket.display()))
    }

    /// Sets what happens from now on.
    pub fn set(&self, fault: Fault) {
        *lock(&self.shared.fault) = fault;
    }

    /// Shows the messages of connections that begin from now on to this observer.
    pub fn observe(&self, observer: Arc<Mutex<dyn Observer>>) {
        *lock(&self.shared.observer) = Some(observer);
    }

    /// Ends every connection.
    pub fn hang_up(&self) {
        for client in lock(&self.shared.open).drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Number of clients that have received an answer, or the first part of one.
    pub fn answered(&self) -> usize {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Number of bytes that clients have sent.
    pub fn requested(&self) -> usize {
        self.shared.requested.load(Ordering::Relaxed)
    }

    /// How often a fault has happened to a conversation. A test that injects nothing proves
    /// nothing.
    pub fn struck(&self) -> usize {
        self.shared.struck.load(Ordering::Relaxed)
    }
}

fn behind(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".behind");
    name.into()
}

/// The reply that a connection loses.
#[derive(Debug, Clone, Default)]
struct Lost(Arc<Mutex<Option<Reply>>>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Reply {
    /// Whatever the server sends next.
    Any,
    /// The reply that contains this text.
    With(String),
}

impl Shared {
    fn fault(&self) -> Fault {
        lock(&self.fault).clone()
    }

    fn strike(&self) {
        self.struck.fetch_add(1, Ordering::Relaxed);
    }

    fn serve(self: Arc<Self>, connection: usize, client: &Socket) {
        // Errors are ignored: whatever happened, the conversation is over.
        let _ = match self.fault() {
            Fault::HangUp => {
                self.strike();
                client.shutdown(Shutdown::Both)
            }
            Fault::Say(text) => self.say(client, &text, None),
            Fault::SayForEver(text, byte) => self.say(client, &text, Some(byte)),
            Fault::Silence => {
                self.strike();
                io::copy(&mut &*client, &mut io::sink()).map(drop)
            }
            Fault::None
            | Fault::Delay(_)
            | Fault::LoseReplyTo(_)
            | Fault::LoseEveryReplyTo(_)
            | Fault::CutAfter(_)
            | Fault::Corrupt => Arc::clone(&self).pass_on(connection, client),
        };
        // Where the server was away, nothing else ends the connection: `open` holds it, too.
        let _ = client.shutdown(Shutdown::Both);
    }

    fn say(&self, mut client: &Socket, text: &str, without_end: Option<u8>) -> io::Result<()> {
        if client.read(&mut [0; 4096])? == 0 {
            return Ok(());
        }
        self.strike();
        client.write_all(text.as_bytes())?;
        if let Some(byte) = without_end {
            let block = [byte; 1 << 16];
            loop {
                client.write_all(&block)?;
            }
        }
        client.shutdown(Shutdown::Both)
    }

    fn pass_on(self: Arc<Self>, connection: usize, client: &Socket) -> io::Result<()> {
        let server = self.behind.connect()?;
        let lost = Lost::default();
        let observer = lock(&self.observer).clone();
        let [mut asked, mut answered] = [Sender::Client, Sender::Server]
            .map(|sender| Direction::new(observer.clone(), connection, sender));
        let (shared, requests, replies) = (
            Arc::clone(&self),
            (client.try_clone()?, server.try_clone()?),
            (server, client.try_clone()?),
        );
        let expected = lost.clone();
        let upward = thread::spawn(move || {
            let (from, to) = requests;
            let _ = shared.pass_requests(&from, &to, &expected, &mut asked);
            let _ = to.shutdown(Shutdown::Write);
        });
        let (from, to) = replies;
        let _ = self.pass_replies(&from, &to, &lost, &mut answered);
        // Both sides: the thread that passes requests on may still read from the client.
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        let _ = upward.join();
        Ok(())
    }

    fn pass_requests(
        &self,
        mut from: &Socket,
        mut to: &Socket,
        lost: &Lost,
        asked: &mut Direction,
    ) -> io::Result<()> {
        let mut block = vec![0; 1 << 16];
        loop {
            let length = from.read(&mut block)?;
            if length == 0 {
                return Ok(());
            }
            self.requested.fetch_add(length, Ordering::Relaxed);
            asked.pass(&block[..length]);
            let text = String::from_utf8_lossy(&block[..length]);
            if let Fault::LoseReplyTo(wanted) | Fault::LoseEveryReplyTo(wanted) = self.fault()
                && text.contains(&wanted)
            {
                if matches!(self.fault(), Fault::LoseReplyTo(_)) {
                    *lock(&self.fault) = Fault::None;
                }
                // Before the request goes on: its reply may come at once.
                *lock(&lost.0) = Some(reply_to(&text, &wanted));
            }
            to.write_all(&block[..length])?;
        }
    }

    /// Reads and passes on in two threads, so that a delay adds latency and does not limit the
    /// rate.
    fn pass_replies(
        self: &Arc<Self>,
        mut from: &Socket,
        to: &Socket,
        lost: &Lost,
        answered: &mut Direction,
    ) -> io::Result<()> {
        let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
        let (to_client, shared) = (to.try_clone()?, Arc::clone(self));
        let writer = thread::spawn(move || {
            for (index, (due, bytes)) in receiver.into_iter().enumerate() {
                let_pass(due.saturating_duration_since(Instant::now()));
                if (&to_client).write_all(&bytes).is_err() {
                    break;
                }
                if index == 0 {
                    shared.answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut block = vec![0; 1 << 16];
        let mut passed = 0;
        loop {
            let length = from.read(&mut block)?;
            if length == 0 {
                break;
            }
            let bytes = &mut block[..length];
            answered.pass(bytes);
            if lost.is_among(bytes) {
                self.strike();
                break;
            }
            let mut due = Instant::now();
            match self.fault() {
                Fault::Delay(delay) => {
                    self.strike();
                    due += delay;
                }
                Fault::CutAfter(limit) if passed + length >= limit => {
                    self.strike();
                    let _ = sender.send((due, bytes[..limit.saturating_sub(passed)].to_vec()));
                    break;
                }
                Fault::Corrupt => {
                    self.strike();
                    bytes[length / 2] = 0xff;
                }
                _ => {}
            }
            passed += length;
            if sender.send((due, bytes.to_vec())).is_err() {
                break;
            }
        }
        // The writer still sends what came before the cut, and then ends.
        drop(sender);
        let _ = writer.join();
        Ok(())
    }
}

impl Lost {
    fn is_among(&self, bytes: &[u8]) -> bool {
        match &*lock(&self.0) {
            None => false,
            Some(Reply::Any) => true,
            Some(Reply::With(text)) => String::from_utf8_lossy(bytes).contains(text),
        }
    }
}

/// How to recognise the reply to the request with this text: by the `id` of the request, or,
/// outside of JSON-RPC, as the next one.
fn reply_to(text: &str, wanted: &str) -> Reply {
    // A block may contain several requests; the text is in one of them.
    let of_request = serde_json::Deserializer::from_str(text)
        .into_iter::<serde_json::Value>()
        .map_while(Result::ok)
        .find(|request| request.to_string().contains(wanted));
    match of_request.map(|request| request["id"].clone()) {
        Some(id) if !id.is_null() => Reply::With(format!("\"id\":{id}")),
        _ => Reply::Any,
    }
}

/// Ignores poisoning: a panic in one thread must not hide what the others find.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
