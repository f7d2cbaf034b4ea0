//! One request on a connection: its body within limits, its span in the log, its answer.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use contract::wire::{MAX_BODY, PortStatus};
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

use super::connection_limit::ConnectionState;
use crate::{
    api_error::ApiError,
    requests::{ApiPath, ApiRequest, ApiResponse, Body, HandlerState, millis},
};

/// How long a caller may take for the body of a request: at most 1 MiB through a local socket. This
/// is for a caller that hangs, which must not keep its slot for long.
const BODY_DEADLINE: Duration = Duration::from_secs(5);

/// Answers one request. hyper drops this future when the caller hangs up.
pub(super) async fn exchange(
    handler_state: Arc<HandlerState>,
    state: Arc<ConnectionState>,
    request: Request<Incoming>,
) -> Result<Response<Whole>, Infallible> {
    state.busy();
    let started = Instant::now();
    let mut last = false;
    let (span, outcome) = match read(request).await {
        Ok(asked) => {
            let span = asked.span();
            let patience = match asked {
                ApiRequest::Cni(_) => Patience::OfTheRuntime,
                ApiRequest::Watch(_) => {
                    // A watch lasts as long as its ADD. Without a slot it keeps no other caller
                    // out, but the connection can then serve nothing else.
                    state.step_aside();
                    last = true;
                    Patience::OfTheWatcher
                }
                ApiRequest::Port(_)
                | ApiRequest::Metrics(_)
                | ApiRequest::Node
                | ApiRequest::Trace(_)
                | ApiRequest::Inside(_) => Patience::None,
            };
            // A hang-up drops this future, and `unanswered` with it, which logs it.
            let unanswered = Unanswered { span: span.clone(), started, patience };
            let outcome = handler_state.answer(asked, started).instrument(span.clone()).await;
            unanswered.answered();
            (span, outcome)
        }
        Err(refusal) => (Span::none(), Err(refusal)),
    };
    // After a refusal the rest of a body may still be in flight, so the connection is closed: a new
    // one is a clean start. A caller that is told to wait for the next server keeps its connection,
    // whose end tells it that the socket is free; its request was read completely.
    last |= outcome.as_ref().is_err_and(|refusal| refusal.retry().is_none());
    let method_refused = matches!(outcome, Err(ApiError::Method(_)));
    let reply = outcome.unwrap_or_else(|refusal| {
        span.in_scope(|| handler_state.refuse(&refusal, started.elapsed()))
    });
    state.idle();
    let mut response = response(reply);
    if last {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if method_refused {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    Ok(response)
}

/// Reads a request: path, method, body.
async fn read(request: Request<Incoming>) -> Result<ApiRequest, ApiError> {
    let route = ApiPath::of(request.method(), request.uri().path())?;
    // A longer body fails as soon as it is too long, and is never in memory as a whole.
    let body = Limited::new(request.into_body(), MAX_BODY).collect();
    match timeout(BODY_DEADLINE, body).await {
        Ok(Ok(body)) => route.read(&body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ApiError::TooLong),
        Ok(Err(error)) => Err(ApiError::BrokenBody(error)),
        Err(_) => Err(ApiError::TooSlow(BODY_DEADLINE)),
    }
}

fn response(ApiResponse { status, body }: ApiResponse) -> Response<Whole> {
    let has_body = !matches!(&body, Body::Whole(bytes) if bytes.is_empty());
    let mut response = Response::new(match body {
        Body::Whole(bytes) => Either::Left(Full::new(Bytes::from(bytes))),
        Body::News(news) => Either::Right(PortStatusBody(news)),
    });
    *response.status_mut() = status;
    if has_body {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}

/// The body of an answer, of either kind.
type Whole = Either<Full<Bytes>, PortStatusBody>;

/// Status updates of a port, each a line of JSON.
pub(super) struct PortStatusBody(mpsc::UnboundedReceiver<PortStatus>);

impl hyper::body::Body for PortStatusBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|news| {
            let line = serde_json::to_string(&news?).expect("a word can be written") + "\n";
            Some(Ok(Frame::data(line.into())))
        })
    }
}

/// Refuses a connection without reading its request.
pub(super) async fn refuse_connection(mut stream: UnixStream, handler_state: &HandlerState) {
    let ApiResponse { status, body: Body::Whole(body) } =
        handler_state.refuse(&ApiError::Busy, Duration::ZERO)
    else {
        return;
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let answer = [head.as_bytes(), &body].concat();
    // The answer fits into the socket's buffer: a caller that does not read it has hung up.
    let _ = timeout(BODY_DEADLINE, stream.write_all(&answer)).await;
}

/// Logs that the caller hung up, if it is dropped before [`Self::answered`]: hyper then drops the
/// whole request.
struct Unanswered {
    span: Span,
    started: Instant,
    patience: Patience,
}

/// What it means that the caller hangs up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// The runtime's call has failed: the pod has no network yet.
    OfTheRuntime,
    /// The plugin has what it wanted.
    OfTheWatcher,
    /// Nothing: the answer is immediate, or was given.
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
            Patience::OfTheRuntime => self
                .span
                .in_scope(|| tracing::warn!(ms, "the caller hung up before it was answered")),
            Patience::OfTheWatcher => {
                self.span.in_scope(|| tracing::debug!(ms, "the caller hung up"))
            }
            Patience::None => {}
        }
    }
}
