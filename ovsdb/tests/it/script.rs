//! A server that a test scripts, message by message.

use std::collections::VecDeque;

use ovsdb::{Endpoint, FrameLimits, Framer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

use crate::eventually::in_time;

pub(crate) struct ScriptedServer {
    _directory: TempDir,
    endpoint: Endpoint,
    listener: UnixListener,
}

/// The server's end of one connection.
pub(crate) struct Peer {
    pub(crate) stream: UnixStream,
    framer: Framer,
    received: VecDeque<Value>,
}

impl ScriptedServer {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let path = directory.path().join("db.sock");
        let listener = UnixListener::bind(&path).expect("a fresh path");
        Self { _directory: directory, endpoint: Endpoint::Unix(path), listener }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// The next connection. No request is answered yet.
    pub(crate) async fn accept(&self) -> Peer {
        let (stream, _) =
            in_time("a client connects", self.listener.accept()).await.expect("the socket is ours");
        let framer = Framer::new(FrameLimits { size: 1 << 24, depth: 50 });
        Peer { stream, framer, received: VecDeque::new() }
    }

    /// The next connection, after its schema request was answered: a table `Port` with a `name`.
    pub(crate) async fn accept_client(&self) -> Peer {
        self.accept_client_of(json!({"name": {"type": "string"}})).await
    }

    /// The next connection, after its schema request was answered: a table `Port` with these
    /// columns.
    pub(crate) async fn accept_client_of(&self, columns: Value) -> Peer {
        let mut peer = self.accept().await;
        let request = peer.expect("get_schema").await;
        peer.answer(&request, json!({"name": "Db", "tables": {"Port": {"columns": columns}}}))
            .await;
        peer
    }
}

impl Peer {
    /// The next message, which has to be a request or notification of this method.
    pub(crate) async fn expect(&mut self, method: &str) -> Value {
        let message = self.receive().await;
        assert_eq!(message["method"], method, "{message}");
        message
    }

    pub(crate) async fn receive(&mut self) -> Value {
        let mut chunk = vec![0; 4096];
        loop {
            if let Some(message) = self.received.pop_front() {
                return message;
            }
            let count = in_time("the client sends a message", self.stream.read(&mut chunk))
                .await
                .expect("the client is there");
            assert_ne!(count, 0, "the client closed the connection");
            self.framer.push(&chunk[..count]);
            while let Some(message) = self.framer.next_message().expect("the client sends messages")
            {
                self.received
                    .push_back(serde_json::from_slice(&message).expect("the client sends JSON"));
            }
        }
    }

    /// Waits until the client closes the connection, and ignores its last messages.
    pub(crate) async fn expect_end(&mut self) {
        let mut chunk = vec![0; 4096];
        while !matches!(
            in_time("the client closes the connection", self.stream.read(&mut chunk)).await,
            Ok(0) | Err(_)
        ) {}
    }

    pub(crate) async fn answer(&mut self, request: &Value, result: Value) {
        self.send(&json!({"id": request["id"], "result": result, "error": null}).to_string()).await;
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.send_bytes(text.as_bytes()).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        in_time("the client reads", self.stream.write_all(bytes))
            .await
            .expect("the client is there");
    }
}
