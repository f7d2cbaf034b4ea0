//! A request as far as the proxy reads it: its head, and the bytes of its body.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::Of;

/// Bytes; larger than any head that a client of the API server sends. It only stops a client that never ends
/// its head.
const LONGEST_HEAD: usize = 64 * 1024;

/// A request, and when it came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// When its head had arrived.
    pub at: Instant,
    /// Method, such as `GET`.
    pub method: String,
    /// Path with its parameters.
    pub path: String,
    /// The bearer token, empty if there was none. It is no secret: the lab made it.
    pub token: String,
}

/// A request that was read to its end.
pub(super) struct Request {
    pub(super) asked: Asked,
    /// What the API server gets, with `connection: close`: one request per connection.
    pub(super) bytes: Vec<u8>,
}

impl Asked {
    /// Whether `of` includes it.
    pub fn is(&self, of: &Of) -> bool {
        let of_pods = self.method == "GET" && self.path.starts_with("/api/v1/pods?");
        let watch = self.path.contains("watch=");
        match of {
            Of::All => true,
            Of::Lists => of_pods && !watch,
            Of::Watches => of_pods && watch,
            Of::Patches => self.method == "PATCH" && self.path.contains("/pods/"),
            Of::Token(token) => self.token == *token,
        }
    }

    /// Whether its answer has no end of its own.
    pub(super) fn is_watch(&self) -> bool {
        self.path.contains("watch=")
    }
}

/// Reads one request.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = head_end(&bytes) {
            break end;
        }
        ensure!(bytes.len() < LONGEST_HEAD, "a head without an end");
        ensure!(stream.read_buf(&mut bytes).await? > 0, "the client hung up in the middle of a request");
    };
    let head = String::from_utf8(bytes[..end].to_vec()).context("the head of a request")?;
    let mut lines = head.trim_end().split("\r\n");
    let (method, rest) = lines.next().and_then(|line| line.split_once(' ')).context("a request line")?;
    // The path ends before the protocol version.
    let path = rest.rsplit_once(' ').context("a request line")?.0;
    let fields: Vec<(String, &str)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
        .collect();
    let field = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);

    let length: usize = field("content-length").map_or(Ok(0), str::parse).context("content-length")?;
    while bytes.len() < end + length {
        ensure!(stream.read_buf(&mut bytes).await? > 0, "the client hung up in the middle of a body");
    }
    let token =
        field("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default().to_owned();
    let asked = Asked { at: Instant::now(), method: method.to_owned(), path: path.to_owned(), token };
    let mut onward = format!("{method} {rest}\r\nconnection: close\r\n");
    for (name, value) in fields.iter().filter(|(name, _)| name != "connection") {
        onward += &format!("{name}: {value}\r\n");
    }
    onward += "\r\n";
    Ok(Request { asked, bytes: [onward.as_bytes(), &bytes[end..]].concat() })
}

/// Where the body begins, once the head is complete.
pub(super) fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|position| position + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_is_read_to_its_end_and_asks_for_one_connection() {
        let text = b"PATCH /api/v1/pods/x?a=b HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\nContent-Length: 2\r\n\r\n{}";
        let request = read(&mut &text[..]).await.unwrap();
        assert_eq!(
            (request.asked.method.as_str(), request.asked.path.as_str()),
            ("PATCH", "/api/v1/pods/x?a=b")
        );
        assert!(request.asked.is(&Of::Token("t".to_owned())) && !request.asked.is(&Of::Lists));
        let onward = String::from_utf8(request.bytes).unwrap();
        assert!(onward.starts_with("PATCH /api/v1/pods/x?a=b HTTP/1.1\r\nconnection: close\r\n"), "{onward}");
        assert!(onward.ends_with("content-length: 2\r\n\r\n{}"), "{onward}");
        assert!(read(&mut &text[..text.len() - 1]).await.is_err(), "its body is not complete");
    }

    #[tokio::test]
    async fn lists_and_watches_of_pods_are_told_apart() {
        let asked = async |path: &str| {
            read(&mut format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap().asked
        };
        assert!(asked("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode1").await.is(&Of::Lists));
        assert!(asked("/api/v1/pods?&watch=true").await.is(&Of::Watches));
        assert!(!asked("/api/v1/nodes?watch=true").await.is(&Of::Watches));
    }
}
