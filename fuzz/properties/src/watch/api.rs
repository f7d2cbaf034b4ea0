//! An API server within this process: a function answers each request. Knows nothing of pods.

use std::{convert::Infallible, io};

use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use kube::{Client, client::Body};
use tower::service_fn;

/// The response to a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) pieces: Vec<Vec<u8>>,
    pub(super) end: End,
}

/// The end of the body, after its pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Ordinary,
    /// The connection is reset.
    Broken,
    /// The body never ends.
    Never,
}

impl Answer {
    pub(super) fn json(text: &str) -> Self {
        Self { status: 200, pieces: vec![text.as_bytes().to_vec()], end: End::Ordinary }
    }
}

/// A client whose requests are answered by `respond`, which gets the path with its query.
pub(super) fn client(respond: impl Fn(&str) -> Answer + Send + Sync + Clone + 'static) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        let Answer { status, pieces, end } = respond(&path);
        async move {
            let pieces = stream::iter(pieces).map(|piece| Ok(Frame::data(Bytes::from(piece))));
            let rest = match end {
                End::Ordinary => stream::empty().boxed(),
                End::Broken => {
                    stream::iter([Err(io::Error::from(io::ErrorKind::ConnectionReset))]).boxed()
                }
                End::Never => stream::pending().boxed(),
            };
            let body = StreamBody::new(pieces.chain(rest));
            Ok::<_, Infallible>(
                Response::builder().status(status).body(body).expect("a status is all that it has"),
            )
        }
    });
    Client::new(service, "default")
}
