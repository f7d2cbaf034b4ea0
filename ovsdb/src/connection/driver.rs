//! The task that owns a stream: writes requests, reads answers and updates and hands them to their
//! receivers, answers echo requests, and probes the server.
//!
//! Knows the ids of requests, but not their meaning. It never waits for receivers, so a slow one
//! delays no other. Updates that wait for the reader of a monitor are counted in bytes, and too
//! many end the monitor or the connection ([`Overflow`]).

mod queue;

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use queue::Full;
pub(crate) use queue::{Overflow, UpdateReceiver};
pub(super) use queue::{UpdateSender, updates};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{
    Options,
    lock::{LockAnswer, LockState},
};
use crate::{
    error::{Closed, OvsdbError, SslError},
    frame::Framer,
    message::{self, Body, Message, PROBE},
    stream::Stream,
};

/// A result, or the error in its place.
pub(crate) type Reply = Result<Body, OvsdbError>;

/// A command from a handle to the driver.
#[derive(Debug)]
pub(super) enum Command {
    Request {
        id: u64,
        text: Vec<u8>,
        reply: oneshot::Sender<Result<Reply, Lost>>,
        /// For a monitor request: the sender of the monitor's updates. The monitor has the
        /// request's id.
        updates: Option<UpdateSender>,
    },
    /// A `lock` or `steal` request. The state of the lock goes to `state` from then on.
    Lock {
        id: u64,
        text: Vec<u8>,
        name: String,
        state: watch::Sender<LockState>,
    },
    Unlock {
        name: String,
    },
    Close(Closed),
}

/// A request whose answer will not come.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) reason: Closed,
    /// Whether the whole request was handed to the kernel, so that the server may have executed it.
    pub(crate) sent: bool,
}

/// The size of one read, 64 KiB. Ten times less would take more system calls for a message of many
/// megabytes; ten times more would be allocated for each connection, also an idle one.
const CHUNK: usize = 64 * 1024;

/// The time for the last bytes of either side when the connection ends, which a live server sends
/// or reads within milliseconds. Ten times less could lose a busy server's reason for closing; ten
/// times more would delay each reconnection to a dead server by that much.
const FAREWELL: Duration = Duration::from_secs(1);

/// The bytes of answers to echo requests, since all was sent last, at which a server that does not
/// read them is disconnected. 1 MiB is thousands of probes, which no correct server sends; without
/// a limit they would fill the memory.
const MAX_UNSENT_ECHOES: usize = 1 << 20;

/// The state of a connection, apart from its stream.
pub(super) struct Driver {
    options: Options,
    commands: mpsc::UnboundedReceiver<Command>,
    closed: Arc<watch::Sender<Option<Closed>>>,
    framer: Framer,
    pending: HashMap<u64, Pending>,
    monitors: HashMap<u64, UpdateSender>,
    /// Requested locks by name.
    locks: HashMap<String, watch::Sender<LockState>>,
    /// Unanswered lock requests by id. The driver handles their answers itself, because a `locked`
    /// or `stolen` notification after an answer must not be overtaken by it.
    locking: HashMap<u64, watch::Sender<LockState>>,
    /// Queued bytes. Those before `written` are written already.
    out: Vec<u8>,
    written: usize,
    /// The bytes in `out` that answer echo requests, or more.
    echoes: usize,
    /// The total number of bytes ever put into `out`.
    queued: u64,
    /// Whether written bytes may still be in a buffer of the stream (TLS has one).
    unflushed: bool,
    /// When bytes were last received.
    heard: Instant,
    /// Whether a probe was sent since then.
    probing: bool,
}

struct Pending {
    reply: oneshot::Sender<Result<Reply, Lost>>,
    /// Whether this is a monitor request, whose answer has all rows.
    loads: bool,
    /// The value of `queued` after the request: it is sent once that many bytes are written.
    end: u64,
}

impl Driver {
    pub(super) fn new(
        options: Options,
        commands: mpsc::UnboundedReceiver<Command>,
        closed: Arc<watch::Sender<Option<Closed>>>,
    ) -> Self {
        Self {
            commands,
            closed,
            framer: Framer::new(options.frame),
            options,
            pending: HashMap::new(),
            monitors: HashMap::new(),
            locks: HashMap::new(),
            locking: HashMap::new(),
            out: Vec::new(),
            written: 0,
            echoes: 0,
            queued: 0,
            unflushed: false,
            heard: Instant::now(),
            probing: false,
        }
    }

    /// Serves the connection until it ends, and reports the reason to all pending requests.
    pub(super) async fn run(mut self, mut stream: Stream) {
        let reason = match self.serve(&mut stream).await {
            Ok(never) => match never {},
            Err(reason) => reason,
        };
        tracing::debug!(%reason, "connection closed");
        // The reason is set before the replies are sent, so that a caller whose request fails can
        // read it.
        set_closed(&self.closed, &reason);
        let sent = self.queued - length(self.out.len() - self.written);
        for (_, Pending { reply, loads: _, end }) in self.pending.drain() {
            drop(reply.send(Err(Lost { reason: reason.clone(), sent: end <= sent })));
        }
        // With TLS this sends `close_notify`, which tells the server that the stream was not
        // truncated.
        drop(timeout(FAREWELL, stream.writer.shutdown()).await);
    }

    async fn serve(
        &mut self,
        Stream { reader, writer }: &mut Stream,
    ) -> Result<std::convert::Infallible, Closed> {
        let mut chunk = vec![0; CHUNK];
        let timer = sleep_until(self.heard + self.options.probe_interval.unwrap_or_default());
        tokio::pin!(timer);
        let mut in_use = true;
        loop {
            // Each future that waits for an answer holds a handle. Without handles, only requests
            // whose futures were dropped are left; they are still sent.
            if !in_use && self.out.is_empty() && !self.unflushed {
                return Err(Closed::Unused);
            }
            // The timer comes last: after the whole process was suspended, bytes that arrived
            // meanwhile are read before the server counts as silent.
            tokio::select! {
                biased;
                done = async {
                    tokio::select! {
                        command = self.commands.recv(), if in_use => Done::Command(command),
                        count = reader.read(&mut chunk) => Done::Read(count),
                        done = send(writer, &self.out[self.written..]),
                            if self.unflushed || !self.out.is_empty() => done,
                    }
                } => match done {
                    Done::Command(Some(command)) => {
                        self.obey(command)?;
                        // Take all waiting commands, so that they are sent in one write.
                        while let Ok(command) = self.commands.try_recv() {
                            self.obey(command)?;
                        }
                    }
                    Done::Command(None) => in_use = false,
                    Done::Read(count) => self.hear(&chunk[..count.map_err(broken)?])?,
                    Done::Write(Ok(count)) => self.wrote(count)?,
                    Done::Flushed(Ok(())) => self.unflushed = false,
                    Done::Write(Err(error)) | Done::Flushed(Err(error)) => {
                        // The server may have sent the reason before it stopped reading, such as a
                        // TLS alert.
                        let reason = timeout(FAREWELL, self.hear_out(reader)).await;
                        return Err(reason.unwrap_or_else(|_| broken(error)));
                    }
                },
                () = &mut timer, if self.options.probe_interval.is_some() => {
                    timer.as_mut().reset(self.probe(self.options.probe_interval.unwrap_or_default())?);
                }
            }
        }
    }

    /// Reads what a server sent before it closed the connection, and returns why it ended.
    async fn hear_out(&mut self, reader: &mut (dyn AsyncRead + Send + Unpin)) -> Closed {
        let mut chunk = vec![0; CHUNK];
        loop {
            match reader
                .read(&mut chunk)
                .await
                .map_err(broken)
                .and_then(|count| self.hear(&chunk[..count]))
            {
                Ok(()) => {}
                Err(reason) => return reason,
            }
        }
    }

    fn obey(&mut self, command: Command) -> Result<(), Closed> {
        match command {
            Command::Request { id, text, reply, updates } => {
                // First: `end` is the length of the queue with this request.
                self.queue(&text);
                self.pending
                    .insert(id, Pending { reply, loads: updates.is_some(), end: self.queued });
                if let Some(updates) = updates {
                    self.monitors.insert(id, updates);
                }
                Ok(())
            }
            Command::Lock { id, text, name, state } => {
                self.queue(&text);
                // By its own state: the lock may be released and requested again before the answer.
                self.locking.insert(id, state.clone());
                self.locks.insert(name, state);
                Ok(())
            }
            Command::Unlock { name } => {
                self.queue(message::unlock(&name).as_bytes());
                self.locks.remove(&name);
                Ok(())
            }
            Command::Close(reason) => Err(reason),
        }
    }

    fn queue(&mut self, text: &[u8]) {
        // Under steady load `out` is never empty. Drop the written part once it is the larger one,
        // so that `out` does not grow without end and each byte is moved at most once on average.
        if self.written > self.out.len() / 2 {
            self.out.drain(..self.written);
            self.written = 0;
        }
        self.out.extend_from_slice(text);
        self.queued += length(text.len());
    }

    fn wrote(&mut self, count: usize) -> Result<(), Closed> {
        // `send` never writes an empty buffer, so 0 means that the stream takes no more bytes.
        if count == 0 {
            return Err(broken(io::ErrorKind::WriteZero.into()));
        }
        self.written += count;
        self.unflushed = true;
        if self.written == self.out.len() {
            self.written = 0;
            self.echoes = 0;
            self.out.clear();
            // A single large transaction does not keep its memory for the life of the connection.
            self.out.shrink_to(CHUNK);
        }
        Ok(())
    }

    fn hear(&mut self, bytes: &[u8]) -> Result<(), Closed> {
        if bytes.is_empty() {
            return Err(Closed::ByServer);
        }
        // Any byte counts as a sign of life, also in the middle of a large message.
        self.heard = Instant::now();
        self.probing = false;
        self.framer.push(bytes);
        while let Some(message) = self.framer.next_message()? {
            self.dispatch(message::parse(message).map_err(Closed::Protocol)?)?;
        }
        Ok(())
    }

    fn dispatch(&mut self, message: Message) -> Result<(), Closed> {
        match message {
            Message::Answer { id, answer } if self.locking.contains_key(&id) => {
                self.answered_lock(id, answer)?
            }
            Message::Answer { id, answer } => {
                if answer.is_err() {
                    self.monitors.remove(&id);
                }
                let Some(pending) = self.pending.remove(&id) else {
                    return Err(Closed::Protocol(format!(
                        "an answer to request {id}, which was not made"
                    )));
                };
                // Fails if the future was dropped.
                drop(pending.reply.send(Ok(answer)));
            }
            Message::Update { monitor, params } => {
                match self.monitors.get(&monitor).map(|updates| updates.send(params)) {
                    Some(Ok(())) => {}
                    Some(Err(Full::Backlog(bytes))) => return Err(Closed::Backlog(bytes)),
                    Some(Err(Full::NoReader | Full::Overflown)) => {
                        self.monitors.remove(&monitor);
                        self.queue(message::monitor_cancel(monitor).as_bytes());
                    }
                    // The monitor was cancelled; the server sent this before it read the
                    // cancellation.
                    None => {}
                }
            }
            Message::Echo { reply } => {
                self.echoes += reply.len();
                if self.echoes > MAX_UNSENT_ECHOES {
                    return Err(Closed::Protocol("echo requests without end".to_owned()));
                }
                self.queue(&reply);
            }
            Message::Lock { name, held } => {
                // Without an entry the lock was released; the server sent this before it read the
                // release.
                if let Some(state) = self.locks.get(&name) {
                    state.send_replace(if held { LockState::Held } else { LockState::Stolen });
                }
            }
            Message::MonitorCanceled => return Err(Closed::MonitorCanceled),
            Message::Unnumbered => {}
            Message::Other { method } => tracing::debug!(method, "message ignored"),
        }
        Ok(())
    }

    fn answered_lock(&mut self, id: u64, answer: Reply) -> Result<(), Closed> {
        let state = self.locking.remove(&id);
        let now = match answer {
            Ok(answer) => match serde_json::from_str(answer.as_str()) {
                Ok(LockAnswer { locked: true }) => LockState::Held,
                Ok(LockAnswer { locked: false }) => LockState::Waits,
                Err(error) => {
                    return Err(Closed::Protocol(format!("an answer about a lock: {error}")));
                }
            },
            Err(error) => LockState::Refused(Arc::new(error)),
        };
        if let Some(state) = state {
            state.send_replace(now);
        }
        Ok(())
    }

    /// Called when the timer expires: probes the server, or closes the connection. Returns the time
    /// of the next check.
    fn probe(&mut self, interval: Duration) -> Result<Instant, Closed> {
        let silent = self.heard.elapsed();
        if silent < interval {
            // The timer is not reset with each byte, which would cost more than this check now and
            // then.
            Ok(self.heard + interval)
        } else if self.probing
            && silent < self.options.load_timeout
            && self.pending.values().any(|pending| pending.loads)
        {
            // A server does not answer probes while it prepares the rows of a monitor.
            Ok(Instant::now() + interval)
        } else if self.probing {
            Err(Closed::Silent(silent))
        } else {
            self.probing = true;
            self.queue(PROBE);
            Ok(Instant::now() + interval)
        }
    }
}

/// Sets the reason why the connection is closed, unless one is set already.
pub(super) fn set_closed(closed: &watch::Sender<Option<Closed>>, reason: &Closed) {
    closed.send_if_modified(|known| {
        let first = known.is_none();
        known.get_or_insert_with(|| reason.clone());
        first
    });
}

/// The event that ended one wait of the loop.
enum Done {
    Command(Option<Command>),
    Read(io::Result<usize>),
    Write(io::Result<usize>),
    Flushed(io::Result<()>),
}

/// Writes some of the bytes or, if there are none, flushes those written before.
async fn send(writer: &mut (dyn AsyncWrite + Send + Unpin), bytes: &[u8]) -> Done {
    if bytes.is_empty() {
        Done::Flushed(writer.flush().await)
    } else {
        Done::Write(writer.write(bytes).await)
    }
}

fn broken(error: io::Error) -> Closed {
    match error.kind() {
        // rustls reports `UnexpectedEof` for an end without close_notify.
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Closed::ByServer,
        _ if error.get_ref().is_some_and(|inner| inner.is::<SslError>()) => {
            match error.downcast::<SslError>() {
                Ok(fault) => Closed::Ssl(Arc::new(fault)),
                Err(error) => Closed::Io(Arc::new(error)),
            }
        }
        _ => Closed::Io(Arc::new(error)),
    }
}

/// A length in memory as a number of bytes on the wire.
fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("memory is smaller than 2^64 bytes")
}
