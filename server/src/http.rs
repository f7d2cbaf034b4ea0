//! HTTP/1.1 on the server's socket: accepting, limits, shutdown. [`requests`](crate::requests)
//! knows what is asked and answered.
//!
//! The accept loop is our own, because it holds what protects a server that programs of root call
//! all day: which peers may connect (`peer`), how many at once (`connection_limit`, `reserve`), how
//! slowly they may send (`exchange`), and which requests outlive their connection
//! (`detached_close`).

use std::{io, os::fd::AsRawFd, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use nix::sys::socket::{MsgFlags, recv};
use ovslog::LogRateLimit;
use tokio::{
    io::Interest,
    net::{UnixListener, UnixStream},
    sync::oneshot,
    time::sleep,
};

use self::{
    connection_limit::{ConnectionLimit, ConnectionPermit, ConnectionState},
    detached_close::DetachedClose,
    peer::Peers,
};
use crate::requests::HandlerState;

mod connection_limit;
mod detached_close;
mod exchange;
mod peer;
mod reserve;

/// How long a caller may take for the head of a request, and how long it may keep an idle
/// connection. A plugin sends its head at once, so seconds are for a busy node; a caller that hangs
/// must not keep its slot for long.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// How long accepting pauses after a failure. As a rule descriptors or memory have run out, which
/// only the end of another connection changes: without the pause the loop would spin.
const BACK_OFF: Duration = Duration::from_millis(100);
/// How long connections may take to end after their last request. Every ADD has been answered by
/// then, so a longer wait would only delay the exit.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves connections until `stop` is sent or dropped, then finishes the requests in flight.
pub(crate) async fn serve(
    listener: UnixListener,
    handler_state: Arc<HandlerState>,
    mut stop: oneshot::Receiver<()>,
) {
    let graceful = GracefulShutdown::new();
    let limit = ConnectionLimit::default();
    let mut peers = Peers::of_this_process();
    let mut failing = LogRateLimit::default();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &limit) => accepted,
            _ = &mut stop => break,
        };
        let (stream, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // As a rule out of file descriptors or memory: closing an idle connection frees
                // some.
                failing.now(
                    |times| tracing::warn!(%error, times, "no connection can be accepted for now"),
                );
                limit.make_room();
                sleep(BACK_OFF).await;
                continue;
            }
        };
        if peers.may_connect(&stream) {
            let connection =
                connection(stream, Arc::clone(&handler_state), graceful.watcher(), limit.clone());
            tokio::spawn(async move {
                connection.await;
                drop(place);
            });
        }
    }
    // Connections that wait in the backlog end now, and their plugins need not wait for the
    // shutdown.
    drop(listener);
    limit.close_silent();
    let _ = tokio::time::timeout(LAST_WORDS, graceful.shutdown()).await;
}

async fn accept(
    listener: &UnixListener,
    limit: &ConnectionLimit,
) -> io::Result<(UnixStream, ConnectionPermit)> {
    // The first connection is accepted at any limit; with none the server would be of no use.
    if limit.some_connected() {
        reserve::untouched(listener)?;
    }
    let (stream, _) = listener.accept().await?;
    // While all places are taken, this caller waits here, and those after it in the backlog of the
    // kernel.
    Ok((stream, limit.place().await))
}

/// Serves one connection until either side closes it.
async fn connection(
    stream: UnixStream,
    handler_state: Arc<HandlerState>,
    watcher: Watcher,
    limit: ConnectionLimit,
) {
    let _open = handler_state.metrics.connected();
    let state = limit.accepted();
    let speaks = tokio::select! {
        biased;
        first = first_byte(&stream) => first.is_ok(),
        () = state.evicted() => false,
        () = sleep(HEAD_DEADLINE) => false,
    };
    if !speaks {
        tracing::debug!("a connection on which nothing was sent is closed");
        return;
    }
    if !state.take_slot().await {
        exchange::refuse_connection(stream, &handler_state).await;
        return;
    }
    // A thousand connections may wait for a slot, so each costs as little as possible: the memory
    // for serving comes with the slot.
    Box::pin(listen(stream, handler_state, watcher, Arc::new(state))).await;
}

/// Waits until there is something to read: bytes, or the end of the caller's stream.
async fn first_byte(stream: &UnixStream) -> io::Result<()> {
    let peek =
        || Ok(recv(stream.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT)?);
    loop {
        // A new stream counts as readable until a read would block.
        stream.readable().await?;
        match stream.try_io(Interest::READABLE, peek) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => return outcome.map(drop),
        }
    }
}

async fn listen(
    stream: UnixStream,
    handler_state: Arc<HandlerState>,
    watcher: Watcher,
    state: Arc<ConnectionState>,
) {
    let in_flight = Arc::clone(&handler_state);
    let _call = in_flight.calls.enter();
    let service = {
        let state = Arc::clone(&state);
        service_fn(move |request| {
            exchange::exchange(Arc::clone(&handler_state), Arc::clone(&state), request)
        })
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .serve_connection(TokioIo::new(DetachedClose::new(stream)), service);
    tokio::select! {
        // A request that has arrived is read before the connection counts as idle.
        biased;
        ended = watcher.watch(connection) => {
            if let Err(error) = ended {
                // The caller hung up or was too slow. That is its own error, and the plugin reports
                // it itself.
                tracing::debug!(error = crate::chain(&error), "a connection ended early");
            }
        }
        () = state.evicted() => tracing::debug!("an idle connection made room for another"),
    }
}
