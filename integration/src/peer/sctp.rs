//! The first packets of SCTP associations, by raw sockets, because hardly a kernel of a test
//! machine has SCTP: an INIT, which is answered by INIT ACK or refused by ABORT (RFC 9260, 3.2 and
//! 3.3). They show what a load balancer does with addresses, ports and the checksum.

use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::mpsc,
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with};

use super::{
    Report,
    questions::{PATIENCE, Reply},
};

/// Ports, verification tag and checksum.
const HEADER: usize = 12;
/// The type of the parameter of INIT ACK that the client is to send back.
const COOKIE: u16 = 7;

/// A packet with one chunk.
#[derive(Debug, PartialEq, Eq)]
struct Packet {
    from: u16,
    to: u16,
    /// The tag that its receiver has chosen.
    tag: u32,
    chunk: Chunk,
}

#[derive(Debug, PartialEq, Eq)]
enum Chunk {
    /// With the tag that the client has chosen.
    Init(u32),
    /// With the cookie, which is the server's address here.
    InitAck(String),
    Abort,
    Other(u8),
}

/// Answers associations to these addresses, until the process is killed.
pub(super) fn answer(addresses: &[SocketAddr], report: impl Fn(&Report)) -> Result<()> {
    let (ended, first) = mpsc::channel();
    for address in addresses.iter().copied() {
        let socket = raw_socket(address.ip())?;
        bind(&socket, &SocketAddr::new(address.ip(), 0))
            .with_context(|| format!("receive on {address}"))?;
        let ended = ended.clone();
        thread::spawn(move || ended.send(answer_at(&socket, address)));
    }
    report(&Report::Answering);
    // None ends but by an error.
    first.recv()?
}

fn answer_at(socket: &UdpSocket, address: SocketAddr) -> Result<()> {
    let mut buffer = [0; 1500];
    loop {
        let (length, client) = socket.recv_from(&mut buffer)?;
        let packet = Packet::read(payload(address.ip(), &buffer[..length]))?;
        if packet.to != address.port() {
            continue;
        }
        if let Chunk::Init(tag) = packet.chunk {
            let chunk = Chunk::InitAck(address.to_string());
            let answer = Packet { from: packet.to, to: packet.from, tag, chunk };
            socket.send_to(&answer.spelled(), (client.ip(), 0))?;
        }
    }
}

/// Asks each of them for an association, one after the other.
pub(super) fn ask_all(addresses: &[SocketAddr]) -> Result<Vec<Reply>> {
    addresses.iter().map(|address| ask(*address)).collect()
}

fn ask(to: SocketAddr) -> Result<Reply> {
    let socket = raw_socket(to.ip())?;
    socket.connect((to.ip(), 0))?;
    let (own_port, tag) = (fastrand::u16(32_768..), fastrand::u32(1..));
    let init = Packet { from: own_port, to: to.port(), tag: 0, chunk: Chunk::Init(tag) };
    socket.send(&init.spelled())?;
    let (end, mut buffer) = (Instant::now() + PATIENCE, [0; 1500]);
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        socket.set_read_timeout(Some(left))?;
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                return Ok(Reply::Refused);
            }
            Err(error) if super::would_block(&error) => break,
            Err(error) => return Err(error).context("receive"),
        };
        let packet = Packet::read(payload(to.ip(), &buffer[..length]))?;
        if (packet.from, packet.to, packet.tag) != (to.port(), own_port, tag) {
            continue;
        }
        match packet.chunk {
            Chunk::InitAck(server) => return Ok(Reply::By(server.parse()?)),
            Chunk::Abort => return Ok(Reply::Refused),
            Chunk::Init(_) | Chunk::Other(_) => {}
        }
    }
    Ok(Reply::Nothing)
}

/// A socket for SCTP packets of that family, without SCTP itself.
fn raw_socket(family_of: IpAddr) -> Result<UdpSocket> {
    let family = if family_of.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::SCTP));
    // Of the standard library's types, this one sends and receives whole packets.
    Ok(UdpSocket::from(socket.context("open a raw socket")?))
}

/// The packet without its IP header: a raw socket of IPv4 receives that, too (raw(7)).
fn payload(family_of: IpAddr, received: &[u8]) -> &[u8] {
    let header = if family_of.is_ipv4() { usize::from(received[0] & 0xf) * 4 } else { 0 };
    &received[header..]
}

impl Packet {
    fn spelled(&self) -> Vec<u8> {
        // Of a new association, after its tag: window, streams out and in, first sequence number.
        let begin = |tag: u32| [tag, 1 << 16, 1 << 16 | 1, 1].map(u32::to_be_bytes).concat();
        let (kind, body) = match &self.chunk {
            Chunk::Init(tag) => (1, begin(*tag)),
            Chunk::InitAck(cookie) => {
                let length = u16::try_from(4 + cookie.len()).expect("an address is short");
                let mut body = begin(1);
                body.extend([COOKIE, length].map(u16::to_be_bytes).concat());
                body.extend(cookie.as_bytes());
                (2, body)
            }
            Chunk::Abort => (6, Vec::new()),
            Chunk::Other(kind) => (*kind, Vec::new()),
        };
        let length = u16::try_from(4 + body.len()).expect("a chunk is short");
        let mut packet = [self.from, self.to].map(u16::to_be_bytes).concat();
        packet.extend(self.tag.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend([kind, 0]);
        packet.extend(length.to_be_bytes());
        packet.extend(body);
        packet.resize(packet.len().next_multiple_of(4), 0);
        let sum = checksum(&packet);
        packet[8..HEADER].copy_from_slice(&sum.to_le_bytes());
        packet
    }

    /// # Errors
    /// It is cut off, or its checksum is wrong.
    fn read(bytes: &[u8]) -> Result<Self> {
        ensure!(bytes.len() >= HEADER + 4, "a packet of {} bytes", bytes.len());
        let u16_at = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) << 16 | u32::from(u16_at(at + 2));
        let (from, to, tag) = (u16_at(0), u16_at(2), u32_at(4));
        let sum = [bytes[8], bytes[9], bytes[10], bytes[11]];
        ensure!(
            sum == checksum(bytes).to_le_bytes(),
            "a packet from port {from} to port {to} has a wrong checksum"
        );
        let body = &bytes[HEADER + 4..];
        let chunk = match bytes[HEADER] {
            1 if body.len() >= 16 => Chunk::Init(u32_at(HEADER + 4)),
            2 if body.len() >= 20 => {
                let end = 16 + usize::from(u16_at(HEADER + 4 + 18));
                let cookie = body.get(20..end).context("its cookie is cut off")?;
                Chunk::InitAck(String::from_utf8(cookie.to_vec())?)
            }
            6 => Chunk::Abort,
            other => Chunk::Other(other),
        };
        Ok(Self { from, to, tag, chunk })
    }
}

/// CRC32c of the packet, whose own place counts as zero (RFC 9260, 6.8).
fn checksum(packet: &[u8]) -> u32 {
    let own = 8..HEADER;
    crc32c(packet.iter().enumerate().map(|(at, byte)| if own.contains(&at) { 0 } else { *byte }))
}

fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_castagnoli_polynomial() {
        // Its published check value.
        assert_eq!(crc32c(b"123456789".iter().copied()), 0xe306_9283);
    }

    #[test]
    fn a_packet_is_read_as_it_was_spelled_and_a_changed_one_is_not() {
        for chunk in [Chunk::Init(7), Chunk::InitAck("[fd00::1]:80".to_owned()), Chunk::Abort] {
            let packet = Packet { from: 40_000, to: 80, tag: 9, chunk };
            let mut bytes = packet.spelled();
            assert_eq!(Packet::read(&bytes).unwrap(), packet);
            bytes[3] ^= 1;
            assert!(Packet::read(&bytes).is_err(), "the port is another one");
        }
    }
}
