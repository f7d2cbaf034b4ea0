//! One connection: a request, what happens to it, its answer.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, bail, ensure};
use testkit::scripted_api::Asked;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};
use tokio_rustls::rustls::pki_types::ServerName;

use super::{API_SERVER, Answer, Fault, Of, Shared};

/// Answers one request. The caller drops the future when the connection is cut.
pub(super) async fn exchange(stream: TcpStream, shared: &Shared) -> Result<()> {
    stream.set_nodelay(true)?;
    let client = Box::new(shared.acceptor.accept(stream).await?);
    let request =
        Asked::read(client).await.context("the client hung up in the middle of a request")?;
    let onward = request.onward();
    let asked = super::Asked::from(&request);
    let (is_watch, mut truncate) = (asked.is(&Of::Watches), false);
    let fault = shared.meet(asked);
    match fault {
        None => {}
        Some(Fault::HangUp) => bail!("told to hang up"),
        Some(Fault::Silence) => return until_the_client_leaves(&mut request.into_stream()).await,
        Some(Fault::Delay(delay)) => sleep(delay).await,
        Some(Fault::Answer(Answer { status, headers, body })) => {
            request.answer(&status, &headers, &body).await;
            return Ok(());
        }
        Some(Fault::Truncate) => truncate = true,
    }

    let upstream = TcpStream::connect(API_SERVER).await?;
    upstream.set_nodelay(true)?;
    let name = ServerName::IpAddress(API_SERVER.0.parse::<Ipv4Addr>()?.into());
    let mut upstream = shared.connector.connect(name, upstream).await?;
    upstream.write_all(&onward).await?;
    let (mut from_client, mut to_client) = tokio::io::split(request.into_stream());
    // A client that leaves ends the connection to the API server, too: a watch would go on for
    // ever.
    tokio::select! {
        passed = pass_on(&mut upstream, &mut to_client, |first| first && truncate || is_watch && shared.truncates()) => passed,
        left = until_the_client_leaves(&mut from_client) => left,
    }
}

/// Passes an answer on as it comes. `truncates` decides for each piece of the body whether it ends
/// in the middle of its first event; its argument tells whether the piece is the first one.
async fn pass_on(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    truncates: impl Fn(bool) -> bool,
) -> Result<()> {
    // The head goes out whole, so that a cut always falls into the body.
    let mut piece = Vec::new();
    let body = loop {
        ensure!(from.read_buf(&mut piece).await? > 0, "the API server hung up");
        if let Some(end) = head_end(&piece) {
            break piece.split_off(end);
        }
    };
    to.write_all(&piece).await?;
    to.flush().await?;
    let (mut piece, mut first) = (body, true);
    loop {
        if piece.is_empty() && from.read_buf(&mut piece).await? == 0 {
            return Ok(to.shutdown().await?);
        }
        if truncates(first) {
            // Flushed: the client has to see half of it before the connection ends.
            to.write_all(&piece[..first_event_end(&piece) / 2]).await?;
            to.flush().await?;
            // Without TLS's close_notify, as when a machine loses its power.
            bail!("told to hang up in the middle of a chunk");
        }
        first = false;
        to.write_all(&piece).await?;
        to.flush().await?;
        piece.clear();
    }
}

async fn until_the_client_leaves(client: &mut (impl AsyncRead + Unpin)) -> Result<()> {
    let mut rest = [0; 1024];
    while client.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Where the first event of a piece of a watch ends. On a busy machine a piece has several events,
/// and half of it has a whole one. The line before an event is the size of its chunk.
fn first_event_end(piece: &[u8]) -> usize {
    let mut ends = piece.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.nth(1).map_or(piece.len(), |(position, _)| position)
}

/// Where the body begins, once the head is complete.
fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|position| position + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_events_is_cut() {
        let event = "b\r\n{\"a\": 123}\n\r\n";
        assert_eq!(first_event_end(event.as_bytes()), 13);
        assert_eq!(first_event_end(event.repeat(2).as_bytes()), 13);
        // The rest of an event whose beginning was in the piece before.
        assert_eq!(first_event_end(b"3}"), 2);
    }
}
