//! Keeps hyper from cancelling `POST /metrics` when the client closes early.
//!
//! A plugin that reports on its call does not wait for an answer, because its runtime waits for its
//! exit. hyper takes a connection that the client has closed for an abandoned request, and drops
//! the handler.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use contract::wire::METRICS_PATH;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};

/// A connection that hides the end of the client's stream if its last request is a report.
#[derive(Debug)]
pub(super) struct DetachedClose {
    stream: UnixStream,
    /// Whether the last request that has begun to arrive is a report.
    is_report: bool,
}

impl DetachedClose {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, is_report: false }
    }
}

/// Whether these are the first bytes of `POST /metrics`.
fn begins_a_report(bytes: &[u8]) -> bool {
    let rest =
        bytes.strip_prefix(b"POST ").and_then(|rest| rest.strip_prefix(METRICS_PATH.as_bytes()));
    rest.is_some_and(|rest| rest.starts_with(b" "))
}

impl AsyncRead for DetachedClose {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = &buffer.filled()[before..];
        if read.is_empty() && self.is_report {
            // No waker is needed: the answer wakes hyper, and writing it to the closed connection
            // ends the request.
            return Poll::Pending;
        }
        // A read that begins otherwise continues the same request.
        if read.starts_with(b"POST ") {
            self.is_report = begins_a_report(read);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for DetachedClose {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Reads from a connection whose caller sends these parts one by one and closes: the bytes, and
    /// whether the end is seen.
    async fn read(said: &[&[u8]]) -> (Vec<u8>, bool) {
        let (mut caller, stream) = UnixStream::pair().unwrap();
        let mut parting = DetachedClose::new(stream);
        let mut text = Vec::new();
        for said in said {
            caller.write_all(said).await.unwrap();
            let mut heard = [0; 64];
            let length = parting.read(&mut heard).await.unwrap();
            text.extend_from_slice(&heard[..length]);
        }
        drop(caller);
        while !parting.stream.ready(tokio::io::Interest::READABLE).await.unwrap().is_read_closed() {
            tokio::task::yield_now().await;
        }
        let seen = parting.read(&mut [0]).now_or_never().is_some_and(|end| end.unwrap() == 0);
        (text, seen)
    }

    #[tokio::test]
    async fn only_the_end_of_a_report_is_kept_back() {
        let (report, other) =
            (&b"POST /metrics HTTP/1.1\r\n\r\n"[..], &b"POST / HTTP/1.1\r\n\r\n"[..]);
        for heard in [&[report][..], &[other, report], &[other, &report[..20], &report[20..]]] {
            assert_eq!(read(heard).await, (heard.concat(), false));
        }
        let others: [&[u8]; 4] =
            [other, b"GET /metrics HTTP/1.1\r\n", b"POST /metricsx HTTP/1.1\r\n", b"PO"];
        for heard in others.iter().map(std::slice::from_ref).chain([&[report, other][..]]) {
            assert_eq!(read(heard).await, (heard.concat(), true));
        }
    }
}
