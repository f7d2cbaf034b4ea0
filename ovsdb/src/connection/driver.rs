//! The task that owns a stream: writes requests, reads answers and updates and hands them out, answers echoes, and probes.
//!
//! Knows ids and not what requests are about. It never waits for those who read, so one slow reader delays nobody: what waits
//! for the reader of a monitor is counted, and too much of it ends the connection.

mod queue;

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use queue::Full;
pub(crate) use queue::UpdateReceiver;
pub(super) use queue::{UpdateSender, updates};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{
    Options,
    lock::{Answer, LockState},
};
use crate::{
    closed::Closed,
    error::OvsdbError,
    frame::Framer,
    message::{self, Body, Message, PROBE},
    ssl::SslError,
    stream::Stream,
};

/// A result, or the error in its place.
pub(crate) type Reply = Result<Body, OvsdbError>;

/// What a handle wants of the driver.
#[derive(Debug)]
pub(super) enum Command {
    Request {
        id: u64,
        text: Vec<u8>,
        reply: oneshot::Sender<Result<Reply, Lost>>,
        /// For a monitor, which is known by the id of its request: where its updates go.
        updates: Option<UpdateSender>,
    },
    /// `lock` or `steal`; what is said of the lock from then on goes to `state`.
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
    /// Whether all of the request was handed to the kernel, so that the server may have acted on it.
    pub(crate) sent: bool,
}

/// How many bytes are read at once.
const CHUNK: usize = 64 * 1024;

/// For the last words of either side, which a server that is alive says or reads within milliseconds. One that is not costs this much, once.
const FAREWELL: Duration = Duration::from_secs(1);

/// A server that sends echo requests and does not read the answers is cut off at this many bytes of them.
const MAX_UNSENT_ECHOES: usize = 1 << 20;

/// The state of a connection, apart from its stream.
pub(super) struct Driver {
    options: Options,
    commands: mpsc::UnboundedReceiver<Command>,
    closed: Arc<watch::Sender<Option<Closed>>>,
    framer: Framer,
    pending: HashMap<u64, Pending>,
    monitors: HashMap<u64, UpdateSender>,
    /// Locks that were asked for, by name, and the requests that are not answered yet: what follows an answer must not be overtaken by it.
    locks: HashMap<String, watch::Sender<LockState>>,
    locking: HashMap<u64, String>,
    /// Bytes to be written, from `written` on.
    out: Vec<u8>,
    written: usize,
    /// Bytes ever put into `out`.
    queued: u64,
    /// Whether bytes that were written may still be on this side.
    unflushed: bool,
    heard: Instant,
    probing: bool,
}

struct Pending {
    reply: oneshot::Sender<Result<Reply, Lost>>,
    /// Whether the answer has all rows of a monitor.
    loads: bool,
    /// Where the request ends among all bytes ever queued.
    end: u64,
}

impl Driver {
    pub(super) fn new(options: Options, commands: mpsc::UnboundedReceiver<Command>, closed: Arc<watch::Sender<Option<Closed>>>) -> Self {
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
            queued: 0,
            unflushed: false,
            heard: Instant::now(),
            probing: false,
        }
    }

    /// Serves the connection to its end, and tells everybody why it ended.
    pub(super) async fn run(mut self, mut stream: Stream) {
        let reason = match self.serve(&mut stream).await {
            Ok(never) => match never {},
            Err(reason) => reason,
        };
        tracing::debug!(%reason, "connection closed");
        // First the reason, so that whoever learns of the end can read it.
        set_closed(&self.closed, &reason);
        let sent = self.queued - length(self.out.len() - self.written);
        for (_, Pending { reply, loads: _, end }) in self.pending.drain() {
            drop(reply.send(Err(Lost { reason: reason.clone(), sent: end <= sent })));
        }
        // By ssl, the server is told that this is the end, and not somebody who cut the wire.
        drop(timeout(FAREWELL, stream.writer.shutdown()).await);
    }

    async fn serve(&mut self, Stream { reader, writer }: &mut Stream) -> Result<std::convert::Infallible, Closed> {
        let mut chunk = vec![0; CHUNK];
        let timer = sleep_until(self.heard + self.options.probe_interval.unwrap_or_default());
        tokio::pin!(timer);
        let mut in_use = true;
        loop {
            // Who still waits for an answer holds a handle: what is left are transactions whose futures were dropped.
            if !in_use && self.out.is_empty() && !self.unflushed {
                return Err(Closed::Unused);
            }
            // The timer comes last: after a pause of the whole program, what the server said meanwhile counts.
            tokio::select! {
                biased;
                done = async {
                    tokio::select! {
                        command = self.commands.recv(), if in_use => Done::Command(command),
                        count = reader.read(&mut chunk) => Done::Read(count),
                        done = send(writer, &self.out[self.written..]), if self.unflushed || !self.out.is_empty() => done,
                    }
                } => match done {
                    Done::Command(Some(command)) => {
                        self.obey(command)?;
                        // One write for all that is there.
                        while let Ok(command) = self.commands.try_recv() {
                            self.obey(command)?;
                        }
                    }
                    Done::Command(None) => in_use = false,
                    Done::Read(count) => self.hear(&chunk[..count.map_err(broken)?])?,
                    Done::Write(Ok(count)) => self.wrote(count)?,
                    Done::Flushed(Ok(())) => self.unflushed = false,
                    Done::Write(Err(error)) | Done::Flushed(Err(error)) => {
                        // Why it does not listen any more it may have said.
                        return Err(timeout(FAREWELL, self.hear_out(reader)).await.unwrap_or_else(|_| broken(error)));
                    }
                },
                () = &mut timer, if self.options.probe_interval.is_some() => {
                    timer.as_mut().reset(self.probe(self.options.probe_interval.unwrap_or_default())?);
                }
            }
        }
    }

    /// Hears what a server said before it closed the connection.
    async fn hear_out(&mut self, reader: &mut (dyn AsyncRead + Send + Unpin)) -> Closed {
        let mut chunk = vec![0; CHUNK];
        loop {
            match reader.read(&mut chunk).await.map_err(broken).and_then(|count| self.hear(&chunk[..count])) {
                Ok(()) => {}
                Err(reason) => return reason,
            }
        }
    }

    fn obey(&mut self, command: Command) -> Result<(), Closed> {
        match command {
            Command::Request { id, text, reply, updates } => {
                self.queue(&text);
                self.pending.insert(id, Pending { reply, loads: updates.is_some(), end: self.queued });
                if let Some(updates) = updates {
                    self.monitors.insert(id, updates);
                }
                Ok(())
            }
            Command::Lock { id, text, name, state } => {
                self.queue(&text);
                self.locking.insert(id, name.clone());
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
        // Under steady load there is always something left to write: what is written must not stay for ever.
        if self.written > self.out.len() / 2 {
            self.out.drain(..self.written);
            self.written = 0;
        }
        self.out.extend_from_slice(text);
        self.queued += length(text.len());
    }

    fn wrote(&mut self, count: usize) -> Result<(), Closed> {
        if count == 0 {
            return Err(broken(io::ErrorKind::WriteZero.into()));
        }
        self.written += count;
        self.unflushed = true;
        if self.written == self.out.len() {
            self.written = 0;
            self.out.clear();
            self.out.shrink_to(CHUNK);
        }
        Ok(())
    }

    fn hear(&mut self, bytes: &[u8]) -> Result<(), Closed> {
        if bytes.is_empty() {
            return Err(Closed::ByServer);
        }
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
            Message::Answer { id, answer } if self.locking.contains_key(&id) => self.answered_lock(id, answer)?,
            Message::Answer { id, answer } => {
                if answer.is_err() {
                    self.monitors.remove(&id);
                }
                let Some(pending) = self.pending.remove(&id) else {
                    return Err(Closed::Protocol(format!("an answer to request {id}, which was not made")));
                };
                // Who does not wait any more has dropped the other end.
                drop(pending.reply.send(Ok(answer)));
            }
            Message::Update { monitor, params } => match self.monitors.get(&monitor).map(|updates| updates.send(params)) {
                Some(Ok(())) => {}
                Some(Err(Full::Backlog(bytes))) => return Err(Closed::Backlog(bytes)),
                Some(Err(Full::NoReader)) => {
                    self.monitors.remove(&monitor);
                    self.queue(message::monitor_cancel(monitor).as_bytes());
                }
                // Cancelled, but sent before the server knew.
                None => {}
            },
            Message::Echo { reply } => {
                if self.out.len() - self.written > MAX_UNSENT_ECHOES && self.pending.is_empty() {
                    return Err(Closed::Protocol("echo requests without end".to_owned()));
                }
                self.queue(&reply);
            }
            // Sent before the server knew that it was given back.
            Message::Lock { name, held } => {
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
        let state = self.locking.remove(&id).and_then(|name| self.locks.get(&name));
        let now = match answer {
            Ok(answer) => match serde_json::from_str(answer.as_str()) {
                Ok(Answer { locked: true }) => LockState::Held,
                Ok(Answer { locked: false }) => LockState::Waits,
                Err(error) => return Err(Closed::Protocol(format!("an answer about a lock: {error}"))),
            },
            Err(error) => LockState::Refused(Arc::new(error)),
        };
        if let Some(state) = state {
            state.send_replace(now);
        }
        Ok(())
    }

    /// The timer has run out: probes, or gives up; else when to look again.
    fn probe(&mut self, interval: Duration) -> Result<Instant, Closed> {
        let silent = self.heard.elapsed();
        if silent < interval {
            Ok(self.heard + interval)
        } else if self.probing && silent < self.options.load_timeout && self.pending.values().any(|pending| pending.loads) {
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

/// Tells everybody why the connection is over, unless they know.
pub(super) fn set_closed(closed: &watch::Sender<Option<Closed>>, reason: &Closed) {
    closed.send_if_modified(|known| {
        let first = known.is_none();
        known.get_or_insert_with(|| reason.clone());
        first
    });
}

/// What one turn of the loop brought.
enum Done {
    Command(Option<Command>),
    Read(io::Result<usize>),
    Write(io::Result<usize>),
    Flushed(io::Result<()>),
}

/// Writes some of the bytes or, if there are none, sees to it that those written before are on their way.
async fn send(writer: &mut (dyn AsyncWrite + Send + Unpin), bytes: &[u8]) -> Done {
    if bytes.is_empty() { Done::Flushed(writer.flush().await) } else { Done::Write(writer.write(bytes).await) }
}

fn broken(error: io::Error) -> Closed {
    match error.kind() {
        // The last: by ssl, without a farewell.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Closed::ByServer,
        _ if error.get_ref().is_some_and(|inner| inner.is::<SslError>()) => match error.downcast::<SslError>() {
            Ok(fault) => Closed::Ssl(Arc::new(fault)),
            Err(error) => Closed::Io(Arc::new(error)),
        },
        _ => Closed::Io(Arc::new(error)),
    }
}

/// A length in memory as a number of bytes on the wire.
fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("memory is smaller than 2^64 bytes")
}
