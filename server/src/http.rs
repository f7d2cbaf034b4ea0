//! HTTP/1.1 on the server's socket: accepts, limits, ends. What is asked and answered, [`requests`](crate::requests) knows.
//!
//! An accept loop of our own, because what protects a server that root's programs talk to all day is here: who may connect
//! (`peer`), how many at once (`slots`, `reserve`), how slowly they may speak (`exchange`),
//! and who need not wait for the answer (`parting`).

use std::{io, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::oneshot,
    time::sleep,
};

use self::{
    parting::Parting,
    peer::Peers,
    slots::{Place, Slot, Slots},
};
use crate::requests::Desk;

mod exchange;
mod parting;
mod peer;
mod reserve;
mod seldom;
mod slots;

pub(crate) use seldom::Seldom;

/// How long a caller may take for the head of a request, and how long it may keep an idle connection.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// How long nothing is accepted after accepting failed.
const BACK_OFF: Duration = Duration::from_millis(100);
/// How long connections may take to end after their last request.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Answers connections until `stop` is sent or dropped; then finishes those that are being answered.
pub async fn serve(listener: UnixListener, desk: Arc<Desk>, mut stop: oneshot::Receiver<()>) {
    let graceful = GracefulShutdown::new();
    let slots = Slots::default();
    let mut peers = Peers::of_this_process();
    let mut failing = Seldom::default();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &slots) => accepted,
            _ = &mut stop => break,
        };
        let (stream, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors or memory, as a rule: others may give some back.
                failing.now(|times| tracing::warn!(%error, times, "no connection can be accepted for now"));
                slots.make_room();
                sleep(BACK_OFF).await;
                continue;
            }
        };
        if peers.may_connect(&stream) {
            let connection = connection(stream, Arc::clone(&desk), graceful.watcher(), slots.clone());
            tokio::spawn(async move {
                connection.await;
                drop(place);
            });
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(LAST_WORDS, graceful.shutdown()).await;
}

async fn accept(listener: &UnixListener, slots: &Slots) -> io::Result<(UnixStream, Place)> {
    if slots.some_connected() {
        reserve::untouched(listener)?;
    }
    let place = slots.place().await;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

/// Speaks with one caller until either side has enough.
async fn connection(stream: UnixStream, desk: Arc<Desk>, watcher: Watcher, slots: Slots) {
    let _open = desk.metrics.connected();
    let Some(slot) = slots.slot().await else {
        exchange::refuse_connection(stream, &desk).await;
        return;
    };
    // A thousand that wait for a slot cost as little as they can: what is needed to listen comes with the slot.
    Box::pin(listen(stream, desk, watcher, Arc::new(slot))).await;
}

async fn listen(stream: UnixStream, desk: Arc<Desk>, watcher: Watcher, slot: Arc<Slot>) {
    let service = {
        let slot = Arc::clone(&slot);
        service_fn(move |request| exchange::exchange(Arc::clone(&desk), Arc::clone(&slot), request))
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .serve_connection(TokioIo::new(Parting::new(stream)), service);
    tokio::select! {
        ended = watcher.watch(connection) => {
            if let Err(error) = ended {
                // The caller hung up or was too slow: its own business, and the plugin says so itself.
                tracing::debug!(error = crate::chain(&error), "a connection ended early");
            }
        }
        () = slot.evicted() => tracing::debug!("an idle connection made room for another"),
    }
}
