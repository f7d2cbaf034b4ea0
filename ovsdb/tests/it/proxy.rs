//! A forwarder between client and server that can cut connections and lose answers.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

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
    /// Requests reach the server; its answers are dropped.
    LoseAnswers,
    /// Connections are closed, new ones at once.
    Refuse,
}

pub(crate) struct Proxy {
    endpoint: Endpoint,
    mode: Arc<watch::Sender<Mode>>,
    answers: Arc<Mutex<Vec<u8>>>,
    acceptor: JoinHandle<()>,
}

impl Proxy {
    pub(crate) fn start(listen: PathBuf, server: &Endpoint) -> Self {
        let Endpoint::Unix(server) = server.clone() else { panic!("tests use unix sockets") };
        let listener = UnixListener::bind(&listen).expect("a fresh path");
        let mode = Arc::new(watch::channel(Mode::Forward).0);
        let modes = Arc::clone(&mode);
        let answers = Arc::default();
        let record = Arc::clone(&answers);
        let acceptor = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *modes.borrow() == Mode::Refuse {
                    continue;
                }
                let Ok(server) = UnixStream::connect(&server).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let (mode, mut cut) = (modes.subscribe(), modes.subscribe());
                let record = Arc::clone(&record);
                tokio::spawn(async move {
                    tokio::select! {
                        () = forward_requests(from_client, to_server) => {}
                        () = forward_answers(from_server, to_client, mode, &record) => {}
                        _ = cut.wait_for(|mode| *mode == Mode::Refuse) => {}
                    }
                });
            }
        });
        Self { endpoint: Endpoint::Unix(listen), mode, answers, acceptor }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    pub(crate) fn lose_answers(&self) {
        self.mode.send_replace(Mode::LoseAnswers);
    }

    /// Closes all connections, and refuses new ones until [`mend`](Self::mend).
    pub(crate) fn cut(&self) {
        self.mode.send_replace(Mode::Refuse);
    }

    pub(crate) fn mend(&self) {
        self.answers.lock().unwrap().clear();
        self.mode.send_replace(Mode::Forward);
    }
}

impl Proxy {
    /// The server's answers since the last [`mend`](Self::mend).
    pub(crate) fn answers(&self) -> String {
        String::from_utf8_lossy(&self.answers.lock().unwrap()).into_owned()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

async fn forward_requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut chunk = vec![0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        if to.write_all(&chunk[..count]).await.is_err() {
            return;
        }
    }
}

async fn forward_answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mode: watch::Receiver<Mode>,
    record: &Mutex<Vec<u8>>,
) {
    let mut chunk = vec![0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        if *mode.borrow() == Mode::Forward {
            record.lock().unwrap().extend_from_slice(&chunk[..count]);
            if to.write_all(&chunk[..count]).await.is_err() {
                return;
            }
        }
    }
}
