//! One address: listens, accepts, limits. Every host of the network may connect to it, so the
//! limits that protect the server are here.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use contract::backoff::Backoff;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use ovslog::LogRateLimit;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet, spawn_blocking},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{certificate::Certificate, pages::Pages};

/// Open connections at once. A node has a handful of callers: Prometheus, the kubelet, an
/// administrator. Ten times more would use up the 1024 file descriptors of a usual process; ten
/// times fewer would make callers of one moment wait for each other.
const MOST: usize = 128;
/// Each connection may keep its place for this long, however many others come: enough for an honest
/// request, which is one packet. Shorter, and hostile connections push out honest ones on a busy
/// machine; longer, and they block the listener for longer.
const GRACE: Duration = Duration::from_millis(100);
/// Limit for the head of a request. A head is one packet: this leaves time for its retransmission,
/// and frees a silent connection before [`DEADLINE`].
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// Limit for one connection, from the handshake to the last byte of its only answer. Prometheus
/// gives up after 10 s, too (`scrape_timeout`); a shorter limit would cut off scrapes of a busy
/// machine. One answer is enough: callers come back after seconds, not at once.
const DEADLINE: Duration = Duration::from_secs(10);
/// Bytes. The head of an honest request has a few hundred; [`MOST`] of this size are 2 MiB.
const MAX_HEAD: usize = 16 * 1024;
/// The first pause between attempts to listen: short, for an address that the former process has
/// not released yet.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// The longest such pause: one log line in 10 s, and a server that can listen again is seen within
/// 15 s.
const LAST_RETRY: Duration = Duration::from_secs(10);
/// The pause after accept(2) failed. Without it the loop would spin: the connection stays in the
/// queue, and accept(2) fails again at once.
const BACK_OFF: Duration = Duration::from_millis(100);

/// An address and what is served there.
#[derive(Debug)]
pub(super) struct Listener {
    /// The option that chose the address.
    pub(super) option: &'static str,
    pub(super) address: SocketAddr,
    pub(super) certificate: Option<Arc<Certificate>>,
    pub(super) pages: Arc<Pages>,
}

/// The connections that are open, the oldest first.
#[derive(Debug, Default)]
struct Open {
    tasks: JoinSet<()>,
    since: VecDeque<(Instant, AbortHandle)>,
}

impl Listener {
    /// Serves until it is dropped.
    pub(super) async fn serve(self) {
        let listener = self.listen().await;
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        let address = listener.local_addr().unwrap_or(self.address);
        tracing::info!(option = self.option, url = format!("{scheme}://{address}"), "listening");

        let mut open = Open::default();
        let mut failing = LogRateLimit::default();
        loop {
            open.make_room().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    open.add(connection(stream, self.certificate.clone(), Arc::clone(&self.pages)))
                }
                Err(error) => {
                    // Usually EMFILE, ENFILE or ENOMEM: wait until other connections of the process
                    // end.
                    failing.now(|times| {
                        let option = self.option;
                        tracing::warn!(%error, times, option, "no connection can be accepted for now")
                    });
                    sleep(BACK_OFF).await;
                }
            }
        }
    }

    /// Tries until it succeeds: another process may hold the port, or the address may not be
    /// configured yet.
    async fn listen(&self) -> TcpListener {
        let Self { option, address, .. } = self;
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        loop {
            match bind(*address).await {
                Ok(listener) => return listener,
                Err(error) => {
                    let (hint, retry) = (hint(&error), backoff.next(None));
                    tracing::error!(
                        %error,
                        hint,
                        ?retry,
                        "{option} {address}: cannot listen; pods are served all the same"
                    );
                    sleep(retry).await;
                }
            }
        }
    }
}

/// `[::]` accepts IPv4, too (ipv6(7), `bindv6only` is 0). If the kernel has no IPv6, it is
/// `0.0.0.0`.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        // Not if the port is in use: IPv6 callers would reach the other process.
        Err(error)
            if address.ip() == Ipv6Addr::UNSPECIFIED
                && !matches!(error.kind(), io::ErrorKind::AddrInUse) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there: see `ss -ltnp`, or choose another port"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have the address (yet): see `ip address`"
        }
        io::ErrorKind::PermissionDenied => {
            "a port below 1024 needs CAP_NET_BIND_SERVICE: choose another port"
        }
        _ => "choose another address or port",
    }
}

impl Open {
    /// Waits until there is room for another connection. If there is none, the oldest is closed
    /// after its [`GRACE`]: an honest one is answered by then.
    async fn make_room(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        while self.tasks.len() >= MOST {
            self.since.retain(|(_, task)| !task.is_finished());
            let Some((since, _)) = self.since.front() else { return };
            tokio::select! {
                _ = self.tasks.join_next() => {}
                () = sleep_until(*since + GRACE) => if let Some((_, oldest)) = self.since.pop_front() {
                    oldest.abort();
                },
            }
        }
    }

    /// Keeps the list short without a search for each connection: it has at most twice [`MOST`]
    /// entries.
    fn add(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        if self.since.len() >= 2 * MOST {
            self.since.retain(|(_, task)| !task.is_finished());
        }
        self.since.push_back((Instant::now(), self.tasks.spawn(connection)));
    }
}

/// One connection, one request, one answer.
async fn connection(stream: TcpStream, certificate: Option<Arc<Certificate>>, pages: Arc<Pages>) {
    let talk = async {
        let Some(certificate) = certificate else { return speak(stream, pages).await };
        // It reads files, which may block.
        let acceptor = spawn_blocking(move || certificate.acceptor()).await.ok().flatten();
        let acceptor = acceptor.ok_or("there is no usable certificate")?;
        speak(timeout(HEAD_DEADLINE, acceptor.accept(stream)).await??, pages).await
    };
    match timeout(DEADLINE, talk).await {
        Ok(Ok(())) => {}
        // The caller hung up, was too slow, or was a port scanner: nothing that an administrator
        // has to act on.
        Ok(Err(error)) => {
            tracing::debug!(error = crate::chain(&*error), "a connection ended early")
        }
        Err(_) => tracing::debug!("a connection took too long"),
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    pages: Arc<Pages>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let service = service_fn(move |request: Request<Incoming>| {
        let pages = Arc::clone(&pages);
        async move {
            Ok::<_, Infallible>(
                pages.page(request.method(), request.uri().path(), request.uri().query()).await,
            )
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}
