//! One request on a connection: its body within limits, its story in the log, its answer.

use std::{convert::Infallible, sync::Arc, time::Duration};

use contract::wire::MAX_BODY;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue},
};
use tokio::{
    io::AsyncWriteExt,
    net::UnixStream,
    time::{Instant, timeout},
};
use tracing::{Instrument, Span};

use super::slots::Slot;
use crate::{
    refusal::Refusal,
    requests::{Asked, Desk, Reply, Route, millis},
};

/// How long a caller may take for the body of a request.
const BODY_DEADLINE: Duration = Duration::from_secs(5);

/// Answers one request. Dropped by hyper when the caller hangs up.
pub(super) async fn exchange(desk: Arc<Desk>, slot: Arc<Slot>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    slot.busy();
    let started = Instant::now();
    let mut last = false;
    let (span, outcome) = match read(request).await {
        Ok(asked) => {
            let span = asked.span();
            let patience = match asked {
                Asked::Cni(_) => Patience::OfTheRuntime,
                Asked::Watch(_) => {
                    slot.step_aside();
                    last = true;
                    Patience::OfTheWatcher
                }
                Asked::Metrics(_) => Patience::None,
            };
            let unanswered = Unanswered { span: span.clone(), started, patience };
            let outcome = desk.answer(asked, started).instrument(span.clone()).await;
            unanswered.answered();
            (span, outcome)
        }
        Err(refusal) => (Span::none(), Err(refusal)),
    };
    // After a refusal the rest of a body may still be under way: a new connection is a clean start.
    last |= outcome.is_err();
    let method_refused = matches!(outcome, Err(Refusal::Method(_)));
    let reply = outcome.unwrap_or_else(|refusal| span.in_scope(|| desk.refuse(&refusal, started.elapsed())));
    slot.idle();
    let mut response = response(reply);
    if last {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if method_refused {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    Ok(response)
}

/// The request's shape: path, method, body.
async fn read(request: Request<Incoming>) -> Result<Asked, Refusal> {
    let route = Route::of(request.method(), request.uri().path())?;
    let body = Limited::new(request.into_body(), MAX_BODY).collect();
    match timeout(BODY_DEADLINE, body).await {
        Ok(Ok(body)) => route.read(&body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::TooLong),
        Ok(Err(error)) => Err(Refusal::BrokenBody(error)),
        Err(_) => Err(Refusal::TooSlow(BODY_DEADLINE)),
    }
}

fn response(Reply { status, body }: Reply) -> Response<Full<Bytes>> {
    let has_body = !body.is_empty();
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    if has_body {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}

/// Tells a caller that nobody will listen to it, without listening to it.
pub(super) async fn refuse_connection(mut stream: UnixStream, desk: &Desk) {
    let Reply { status, body } = desk.refuse(&Refusal::Busy, Duration::ZERO);
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let answer = [head.as_bytes(), &body].concat();
    // A caller that does not read what fits into the socket's buffer has hung up.
    let _ = timeout(BODY_DEADLINE, stream.write_all(&answer)).await;
}

/// Says in the log that a caller hung up: then this is dropped, with the rest of the request.
struct Unanswered {
    span: Span,
    started: Instant,
    patience: Patience,
}

/// What it means that a caller hangs up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Its pod has no network yet.
    OfTheRuntime,
    /// It has what it wanted.
    OfTheWatcher,
    /// It never waits.
    None,
}

impl Unanswered {
    fn answered(mut self) {
        self.patience = Patience::None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let ms = millis(self.started.elapsed());
        match self.patience {
            Patience::OfTheRuntime => self.span.in_scope(|| tracing::warn!(ms, "the caller hung up before it was answered")),
            Patience::OfTheWatcher => self.span.in_scope(|| tracing::debug!(ms, "the caller hung up")),
            Patience::None => {}
        }
    }
}
