//! A forwarder between client and server that can be cut, and that can lose answers.

use std::{path::PathBuf, sync::Arc};

use ovsdb::Endpoint;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream, unix::OwnedReadHalf, unix::OwnedWriteHalf},
    sync::watch,
    task::JoinHandle,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Forward,
    /// Requests reach the server; what it says is thrown away.
    LoseAnswers,
    /// Connections end, and new ones end at once.
    Refuse,
}

pub(crate) struct Proxy {
    endpoint: Endpoint,
    mode: Arc<watch::Sender<Mode>>,
    acceptor: JoinHandle<()>,
}

impl Proxy {
    pub(crate) fn start(listen: PathBuf, server: &Endpoint) -> Self {
        let Endpoint::Unix(server) = server.clone() else { panic!("tests use unix sockets") };
        let listener = UnixListener::bind(&listen).expect("a fresh path");
        let mode = Arc::new(watch::channel(Mode::Forward).0);
        let modes = Arc::clone(&mode);
        let acceptor = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *modes.borrow() == Mode::Refuse {
                    continue;
                }
                let Ok(server) = UnixStream::connect(&server).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let (one, other, mut cut) = (modes.subscribe(), modes.subscribe(), modes.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        () = pump(from_client, to_server, one, false) => {}
                        () = pump(from_server, to_client, other, true) => {}
                        _ = cut.wait_for(|mode| *mode == Mode::Refuse) => {}
                    }
                });
            }
        });
        Self { endpoint: Endpoint::Unix(listen), mode, acceptor }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    pub(crate) fn lose_answers(&self) {
        self.mode.send_replace(Mode::LoseAnswers);
    }

    /// Ends all connections, and lets none through until [`mend`](Self::mend).
    pub(crate) fn cut(&self) {
        self.mode.send_replace(Mode::Refuse);
    }

    pub(crate) fn mend(&self) {
        self.mode.send_replace(Mode::Forward);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mode: watch::Receiver<Mode>, answers: bool) {
    let mut chunk = vec![0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        let lost = answers && *mode.borrow() != Mode::Forward;
        if !lost && to.write_all(&chunk[..count]).await.is_err() {
            return;
        }
    }
}
