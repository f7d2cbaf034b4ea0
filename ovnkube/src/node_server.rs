//! Questions to the server of this node, over its socket. Must not know what an answer means.

use std::{
    io::{ErrorKind, Write as _, stdout},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, StatusCode, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::{net::UnixStream, time::timeout};

use crate::findings::ended;

/// The command that passes a question on to the server in its pod ([`pass_on`]).
pub const ASK: &str = "ask-server";
/// How long the server may take. Longer than a busy one needs; short enough to be waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer of a server, in bytes, far above any real one.
pub(crate) const LONGEST: usize = 1 << 20;

/// Why the server does not say anything.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// There is no socket.
    NoServer,
    /// The socket is there, and nobody listens.
    Gone,
    /// Another user's.
    Forbidden,
    /// An older server, or upstream's.
    Unknowing,
    Broken(String),
}

impl Silence {
    /// The rest of a sentence that begins with the server.
    pub(crate) fn why(&self, socket: &Path) -> String {
        let socket = socket.display();
        match self {
            Self::NoServer => format!("does not run: there is no socket {socket}"),
            Self::Gone => format!("does not run: nobody listens on {socket}"),
            Self::Forbidden => format!("this user may not ask it at {socket}: run as root"),
            Self::Unknowing => "is upstream's, or too old to be asked".to_owned(),
            Self::Broken(why) => format!("cannot be asked at {socket}: {why}"),
        }
    }
}

/// Asks the server at `socket`; `body` is JSON, or nothing.
///
/// # Errors
///
/// There is no server, or it does not answer the question.
pub(crate) async fn ask<T: DeserializeOwned>(
    socket: &Path,
    path: &'static str,
    body: Vec<u8>,
) -> Result<T, Silence> {
    let answer = bytes(socket, path, body).await?;
    serde_json::from_slice(&answer).map_err(|error| Silence::Broken(error.to_string()))
}

/// Prints the answer to a question of another machine (`ovnkube ask-server`), as the server gives
/// it.
pub fn pass_on(socket: &Path, path: &'static str, body: &str) -> ExitCode {
    ended(bytes(socket, path, body.as_bytes().to_vec()), |answer| match answer {
        Ok(answer) => u8::from(stdout().write_all(&answer).is_err()).into(),
        Err(silence) => {
            eprintln!("the node's server {}", silence.why(socket));
            ExitCode::FAILURE
        }
    })
}

async fn bytes(socket: &Path, path: &'static str, body: Vec<u8>) -> Result<Bytes, Silence> {
    match timeout(PATIENCE, exchange(socket, path, body)).await {
        Ok(answer) => answer,
        Err(_) => Err(Silence::Broken(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

async fn exchange(socket: &Path, path: &'static str, body: Vec<u8>) -> Result<Bytes, Silence> {
    let broken = |error: &dyn std::fmt::Display| Silence::Broken(error.to_string());
    let stream = UnixStream::connect(socket).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Silence::NoServer,
        ErrorKind::ConnectionRefused => Silence::Gone,
        ErrorKind::PermissionDenied => Silence::Forbidden,
        _ => broken(&error),
    })?;
    let handshake = http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| broken(&error))?;
    let request = Request::builder().method(Method::POST).uri(path).header("host", "localhost");
    let request = request.body(Full::from(body)).map_err(|error| broken(&error))?;
    let exchanged = async {
        let answer = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST)
            .collect()
            .await
            .map_err(|error| broken(&error))?
            .to_bytes();
        match status {
            StatusCode::OK => Ok(body),
            StatusCode::NOT_FOUND => Err(Silence::Unknowing),
            status => Err(Silence::Broken(format!("it answers {status}"))),
        }
    };
    tokio::select! {
        biased;
        answer = exchanged => answer,
        ended = connection => Err(Silence::Broken(match ended {
            Ok(()) => "it closed the connection".to_owned(),
            Err(error) => error.to_string(),
        })),
    }
}

#[cfg(test)]
mod tests {
    use contract::wire::{NODE_PATH, NodeAnswer};

    use super::*;

    #[tokio::test]
    async fn a_server_that_hangs_ends_the_question_and_one_that_is_not_there_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let ask = || ask::<NodeAnswer>(&socket, NODE_PATH, Vec::new());
        assert_eq!(ask().await.unwrap_err(), Silence::NoServer);
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        tokio::time::pause();
        // The listener accepts nothing: the kernel takes the connection, and no answer comes.
        let Err(Silence::Broken(why)) = ask().await else { panic!("an answer") };
        assert!(why.contains("no answer within 5 s"), "{why}");
        drop(listener);
        assert_eq!(ask().await.unwrap_err(), Silence::Gone);
    }
}
