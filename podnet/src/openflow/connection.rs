//! A connection to a bridge's own OpenFlow socket (ovs-vswitchd(8)), which needs no configuration:
//! greeting and framing. Must not know what a message asks.

use std::{io, path::Path};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

// Constants of the OpenFlow Switch Specification 1.3.5 (section 7); those of later versions are the
// same.

const HELLO: u8 = 0;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
/// `OFPHET_VERSIONBITMAP`
const VERSION_BITMAP: u16 = 1;
/// Bytes of `struct ofp_header`.
const HEADER: usize = 8;

/// A version of OpenFlow, as its header has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u8);

impl Version {
    pub const V1_3: Self = Self(4);
    pub const V1_4: Self = Self(5);
    pub const V1_5: Self = Self(6);
}

/// A message, without its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub kind: u8,
    /// The transaction; an answer has that of its question.
    pub id: u32,
    pub body: Vec<u8>,
}

/// A connection after the greeting.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    version: Version,
    /// Bytes that are read, but not yet a whole message.
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects to the bridge whose socket is in `run_dir`, and agrees on one of `versions`, the
    /// newest that the bridge speaks.
    ///
    /// # Errors
    /// The bridge does not exist, or speaks none of them. Each error names the socket.
    pub async fn open(run_dir: &Path, bridge: &str, versions: &[Version]) -> io::Result<Self> {
        let socket = run_dir.join(format!("{bridge}.mgmt"));
        let opened = Self::greet(&socket, versions).await;
        opened
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", socket.display())))
    }

    async fn greet(socket: &Path, versions: &[Version]) -> io::Result<Self> {
        let newest = versions.iter().max().copied().unwrap_or(Version::V1_3);
        let stream = UnixStream::connect(socket).await?;
        let mut connection = Self { stream, version: newest, buffer: Vec::new() };
        let bitmap = versions.iter().fold(0_u32, |bitmap, version| bitmap | 1 << version.0);
        let mut body = [VERSION_BITMAP.to_be_bytes(), 8_u16.to_be_bytes()].concat();
        body.extend(bitmap.to_be_bytes());
        connection.send(&[Message { kind: HELLO, id: 0, body }]).await?;
        loop {
            let (version, message) = connection.next().await?;
            if message.kind == HELLO {
                connection.version = agreed(version, &message.body, versions).ok_or_else(|| {
                    let wanted: Vec<String> =
                        versions.iter().map(|version| version.to_string()).collect();
                    let none_of =
                        format!("the bridge does not speak OpenFlow {}", wanted.join(" or "));
                    io::Error::new(io::ErrorKind::Unsupported, none_of)
                })?;
                return Ok(connection);
            }
        }
    }

    /// Sends messages, in one piece. Returns how many bytes they are.
    ///
    /// # Errors
    /// The connection is closed, or a message is longer than 64 KiB.
    pub async fn send(&mut self, messages: &[Message]) -> io::Result<usize> {
        let mut bytes = Vec::new();
        for message in messages {
            self.frame(message, &mut bytes)?;
        }
        self.stream.write_all(&bytes).await?;
        Ok(bytes.len())
    }

    /// Appends the message with its header, as it is on the wire.
    ///
    /// # Errors
    /// The message is longer than 64 KiB.
    pub fn frame(&self, message: &Message, bytes: &mut Vec<u8>) -> io::Result<()> {
        let Message { kind, id, body } = message;
        let length = u16::try_from(HEADER + body.len()).map_err(io::Error::other)?;
        bytes.extend([self.version.0, *kind]);
        bytes.extend(length.to_be_bytes());
        bytes.extend(id.to_be_bytes());
        bytes.extend(body);
        Ok(())
    }

    /// The next message; an echo request is answered and skipped. Nothing is lost if the future is
    /// dropped while no message has come.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn receive(&mut self) -> io::Result<Message> {
        loop {
            let (_, message) = self.next().await?;
            if message.kind != ECHO_REQUEST {
                return Ok(message);
            }
            self.send(&[Message { kind: ECHO_REPLY, ..message }]).await?;
        }
    }

    async fn next(&mut self) -> io::Result<(Version, Message)> {
        loop {
            if let Some(message) = split(&mut self.buffer)? {
                return Ok(message);
            }
            self.buffer.reserve(1 << 16);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "1.{}", self.0.saturating_sub(1))
    }
}

/// Takes the first message from what was read, if it is complete.
fn split(buffer: &mut Vec<u8>) -> io::Result<Option<(Version, Message)>> {
    let Some((header, _)) = buffer.split_first_chunk::<HEADER>() else { return Ok(None) };
    let [version, kind, l0, l1, id @ ..] = *header;
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    if length < HEADER {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message shorter than its header",
        ));
    }
    if buffer.len() < length {
        return Ok(None);
    }
    let body = buffer.drain(..length).skip(HEADER).collect();
    Ok(Some((Version(version), Message { kind, id: u32::from_be_bytes(id), body })))
}

/// The newest of our versions that the other side speaks, by its greeting.
fn agreed(newest: Version, hello: &[u8], versions: &[Version]) -> Option<Version> {
    let mut rest = hello;
    let mut bitmap = None;
    while let [k0, k1, l0, l1, ..] = *rest {
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let element = rest.get(4..length)?;
        if u16::from_be_bytes([k0, k1]) == VERSION_BITMAP {
            bitmap = element.first_chunk().map(|first| u32::from_be_bytes(*first));
        }
        rest = rest.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    // Without the element: all up to the version of the message.
    let speaks = |version: &&Version| {
        bitmap.map_or(**version <= newest, |bitmap| bitmap & 1 << version.0 != 0)
    };
    versions.iter().filter(speaks).max().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_is_spoken() {
        let ours = [Version::V1_3, Version::V1_5];
        let hello = |version: u8, bitmap: Option<u32>| {
            let element = bitmap.map(|bitmap| [[0, 1, 0, 8], bitmap.to_be_bytes()].concat());
            agreed(Version(version), &element.unwrap_or_default(), &ours).map(|version| version.0)
        };
        assert_eq!(hello(6, Some(0b111_1010)), Some(6));
        assert_eq!(hello(5, Some(0b011_0010)), Some(4));
        assert_eq!(hello(1, Some(0b10)), None);
        assert_eq!((hello(5, None), hello(1, None)), (Some(4), None));
        assert_eq!(Version::V1_4.to_string(), "1.4");
    }

    #[test]
    fn a_message_is_taken_when_it_is_complete() {
        let mut buffer = vec![5, 19, 0, 9, 0, 0, 0, 7];
        assert_eq!(split(&mut buffer).unwrap(), None);
        buffer.extend([42, 5]);
        let message = Message { kind: 19, id: 7, body: vec![42] };
        assert_eq!(split(&mut buffer).unwrap(), Some((Version::V1_4, message)));
        assert_eq!(buffer, [5]);
        assert!(split(&mut vec![5, 19, 0, 7, 0, 0, 0, 7]).is_err());
    }
}
