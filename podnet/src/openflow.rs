//! One question to a bridge, in OpenFlow 1.3 or 1.5: whether it has a flow for an address. Asked at the
//! bridge's own socket (ovs-vswitchd(8)), which needs no configuration.
//!
//! Must not know what the flow means.

use std::{io, net::IpAddr, path::Path, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::timeout,
};

// Constants of the OpenFlow Switch Specification 1.3.5 (section 7); those of 1.5.1 are the same.

/// Versions that this module speaks: 1.3 and 1.5.
const VERSIONS: [u8; 2] = [4, 6];
const HELLO: u8 = 0;
const ERROR: u8 = 1;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const MULTIPART_REQUEST: u8 = 18;
const MULTIPART_REPLY: u8 = 19;
/// `OFPHET_VERSIONBITMAP`
const VERSION_BITMAP: u16 = 1;
/// `OFPMP_FLOW`; in 1.5 `OFPMP_FLOW_DESC`, with the same request.
const FLOWS: u16 = 1;
/// `OFPMPF_REPLY_MORE`
const MORE: u16 = 1;
/// Bytes of `struct ofp_header`, and of it with that of a multipart message.
const HEADER: usize = 8;
const MULTIPART: usize = 16;

struct Message {
    version: u8,
    kind: u8,
    id: u32,
    body: Vec<u8>,
}

/// Whether `bridge`, whose socket is in `run_dir`, has a flow that matches the very destination `address`, in
/// any table.
///
/// # Errors
/// The bridge does not exist, refuses, or does not answer within `patience`.
pub async fn has_flow_to(
    run_dir: &Path,
    bridge: &str,
    address: IpAddr,
    patience: Duration,
) -> io::Result<bool> {
    let socket = run_dir.join(format!("{bridge}.mgmt"));
    let answered = timeout(patience, ask(&socket, address)).await;
    answered
        .unwrap_or(Err(io::ErrorKind::TimedOut.into()))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", socket.display())))
}

async fn ask(socket: &Path, address: IpAddr) -> io::Result<bool> {
    let mut stream = UnixStream::connect(socket).await?;
    let bitmap = VERSIONS.iter().fold(0_u32, |bitmap, version| bitmap | 1 << version);
    let mut versions = [VERSION_BITMAP.to_be_bytes(), 8_u16.to_be_bytes()].concat();
    versions.extend(bitmap.to_be_bytes());
    let newest = VERSIONS[VERSIONS.len() - 1];
    send(&mut stream, &Message { version: newest, kind: HELLO, id: 0, body: versions }).await?;
    let mut version = newest;
    let mut is_asked = false;
    loop {
        let message = receive(&mut stream).await?;
        match message.kind {
            HELLO if !is_asked => {
                version = agreed(&message)
                    .ok_or_else(|| io::Error::other("the bridge speaks neither OpenFlow 1.3 nor 1.5"))?;
                send(
                    &mut stream,
                    &Message { version, kind: MULTIPART_REQUEST, id: 1, body: question(address) },
                )
                .await?;
                is_asked = true;
            }
            ECHO_REQUEST => {
                send(&mut stream, &Message { version, kind: ECHO_REPLY, ..message }).await?;
            }
            MULTIPART_REPLY if message.id == 1 => {
                // Type, flags and padding come before the flows.
                if message.body.len() > MULTIPART - HEADER {
                    return Ok(true);
                }
                let flags = message.body.get(2..4).and_then(|flags| flags.try_into().ok());
                if flags.map(u16::from_be_bytes).unwrap_or_default() & MORE == 0 {
                    return Ok(false);
                }
            }
            ERROR => return Err(io::Error::other("the bridge refuses the question")),
            _ => {}
        }
    }
}

/// The newest version that both sides speak.
fn agreed(hello: &Message) -> Option<u8> {
    let mut rest = &hello.body[..];
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
    let speaks =
        |version: &&u8| bitmap.map_or(**version <= hello.version, |bitmap| bitmap & 1 << **version != 0);
    VERSIONS.iter().rev().find(speaks).copied()
}

/// The flows of all tables that match the destination.
fn question(address: IpAddr) -> Vec<u8> {
    // `OFPXMC_OPENFLOW_BASIC`; the numbers of the fields are shifted by the bit that says whether a mask
    // follows.
    let field = |number: u8, value: &[u8]| {
        let length = u8::try_from(value.len()).unwrap_or_default();
        [&[0x80, 0, number << 1, length], value].concat()
    };
    // `OXM_OF_ETH_TYPE`, then `OXM_OF_IPV4_DST` or `OXM_OF_IPV6_DST`.
    let fields = match address {
        IpAddr::V4(v4) => [field(5, &0x0800_u16.to_be_bytes()), field(12, &v4.octets())].concat(),
        IpAddr::V6(v6) => [field(5, &0x86dd_u16.to_be_bytes()), field(27, &v6.octets())].concat(),
    };
    let length = u16::try_from(fields.len() + 4).unwrap_or_default();
    // `OFPMT_OXM`
    let mut matches = [1_u16.to_be_bytes(), length.to_be_bytes()].concat();
    matches.extend(fields);
    matches.resize(matches.len().next_multiple_of(8), 0);
    let mut body = [FLOWS.to_be_bytes(), [0; 2], [0; 2], [0; 2]].concat();
    // `OFPTT_ALL`, `OFPP_ANY`, `OFPG_ANY`, and no cookie.
    body.extend([0xff, 0, 0, 0]);
    body.extend([0xff; 8]);
    body.extend([0; 4 + 16]);
    body.extend(matches);
    body
}

async fn send(stream: &mut UnixStream, message: &Message) -> io::Result<()> {
    let Message { version, kind, id, body } = message;
    let length = u16::try_from(HEADER + body.len()).map_err(io::Error::other)?;
    let mut bytes = vec![*version, *kind];
    bytes.extend(length.to_be_bytes());
    bytes.extend(id.to_be_bytes());
    bytes.extend(body);
    stream.write_all(&bytes).await
}

async fn receive(stream: &mut UnixStream) -> io::Result<Message> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).await?;
    let [version, kind, l0, l1, id @ ..] = header;
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    let mut body = vec![0; length.saturating_sub(HEADER)];
    stream.read_exact(&mut body).await?;
    Ok(Message { version, kind, id: u32::from_be_bytes(id), body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_is_spoken() {
        let hello = |version: u8, bitmap: Option<u32>| {
            let element = bitmap.map(|bitmap| [[0, 1, 0, 8], bitmap.to_be_bytes()].concat());
            agreed(&Message { version, kind: HELLO, id: 0, body: element.unwrap_or_default() })
        };
        assert_eq!(hello(6, Some(0b111_1010)), Some(6));
        assert_eq!(hello(5, Some(0b011_0010)), Some(4));
        assert_eq!(hello(1, Some(0b10)), None);
        assert_eq!((hello(5, None), hello(1, None)), (Some(4), None));
    }

    #[test]
    fn a_question_is_as_long_as_it_says() {
        let v4 = question([10, 96, 0, 1].into());
        assert_eq!(v4.len(), 8 + 32 + 24);
        assert_eq!(v4[40..58], [0, 1, 0, 18, 0x80, 0, 10, 2, 8, 0, 0x80, 0, 24, 4, 10, 96, 0, 1]);
        assert_eq!(question("fd00::1".parse().unwrap()).len(), 8 + 32 + 32);
    }

    #[tokio::test]
    async fn a_bridge_that_is_not_there_is_an_error_that_names_its_socket() {
        let error =
            has_flow_to(Path::new("/nowhere"), "br-int", [10, 96, 0, 1].into(), Duration::from_secs(1));
        assert!(error.await.unwrap_err().to_string().contains("/nowhere/br-int.mgmt"));
    }
}
