//! One request on a connection: its body within limits, its story in the log, its answer.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use contract::wire::{MAX_BODY, PortNews};
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::{
    Request, Response,
    body::{Bytes, Frame, Incoming},
    header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue},
};
use tokio::{
    io::AsyncWriteExt,
    net::UnixStream,
    sync::mpsc,
    time::{Instant, timeout},
};
use tracing::{Instrument, Span};

use super::slots::Slot;
use crate::{
    refusal::Refusal,
    requests::{Asked, Body, Desk, Reply, Route, millis},
};

/// How long a caller may take for the body of a request.
const BODY_DEADLINE: Duration = Duration::from_secs(5);

/// Answers one request. Dropped by hyper when the caller hangs up.
pub(super) async fn exchange(desk: Arc<Desk>, slot: Arc<Slot>, request: Request<Incoming>) -> Result<Response<Whole>, Infallible> {
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
                Asked::Port(_) | Asked::Metrics(_) => Patience::None,
            };
            let unanswered = Unanswered { span: span.clone(), started, patience };
            let outcome = desk.answer(asked, started).instrument(span.clone()).await;
            unanswered.answered();
            (span, outcome)
        }
        Err(refusal) => (Span::none(), Err(refusal)),
    };
    // After a refusal the rest of a body may still be under way: a new connection is a clean start. A caller that waits for the next server
    // keeps this connection, whose end tells that the socket is free; its request was read to the end.
    last |= outcome.as_ref().is_err_and(|refusal| refusal.retry().is_none());
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

fn response(Reply { status, body }: Reply) -> Response<Whole> {
    let has_body = !matches!(&body, Body::Whole(bytes) if bytes.is_empty());
    let mut response = Response::new(match body {
        Body::Whole(bytes) => Either::Left(Full::new(Bytes::from(bytes))),
        Body::News(news) => Either::Right(News(news)),
    });
    *response.status_mut() = status;
    if has_body {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}

/// A body of either kind.
type Whole = Either<Full<Bytes>, News>;

/// Lines of JSON.
pub(super) struct News(mpsc::UnboundedReceiver<PortNews>);

impl hyper::body::Body for News {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|news| {
            let line = serde_json::to_string(&news?).expect("a word can be written") + "\n";
            Some(Ok(Frame::data(line.into())))
        })
    }
}

/// Tells a caller that nobody will listen to it, without listening to it.
pub(super) async fn refuse_connection(mut stream: UnixStream, desk: &Desk) {
    let Reply { status, body: Body::Whole(body) } = desk.refuse(&Refusal::Busy, Duration::ZERO) else { return };
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
