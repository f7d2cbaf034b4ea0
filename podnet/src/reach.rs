//! Whether addresses answer, asked from a network namespace: a socket stays in the one in which it
//! was opened. What is sent is an echo request, an empty connection or a question to the DNS.

use std::{
    io::{self, ErrorKind, Read},
    net::{IpAddr, SocketAddr},
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};

use self::wire::{MOST_TARGETS, ReachKind, ReachTarget, Reached};
use crate::netns::Netns;

pub mod wire;

/// Types of messages of ICMP and ICMPv6: the request, and its reply.
const ECHO_V4: [u8; 2] = [8, 0];
const ECHO_V6: [u8; 2] = [128, 129];
/// Identifier and sequence number of an echo, and the id of a question.
const IDENTIFIER: [u8; 2] = *b"ov";
const SEQUENCE: [u8; 2] = [0, 1];
/// A question for the address of the root (RFC 1035 §4.1): each server answers something.
const QUESTION: [u8; 17] =
    [IDENTIFIER[0], IDENTIFIER[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1];

/// A question under way.
struct Asked {
    /// Its place among the targets.
    index: usize,
    target: ReachTarget,
    socket: Socket,
}

/// Asks all targets at once, [`MOST_TARGETS`] at most, and waits for `patience`. `from`: the
/// namespace to ask from; `None` for the one of this thread. The replies are in the order of the
/// targets. Needs `CAP_NET_RAW` for an echo. Blocks.
///
/// # Errors
/// The namespace cannot be entered, or a socket cannot be opened in it.
pub fn reach(
    from: Option<&Netns>,
    targets: &[ReachTarget],
    patience: Duration,
) -> io::Result<Vec<Reached>> {
    let targets = &targets[..targets.len().min(MOST_TARGETS)];
    let open = || targets.iter().map(opened).collect::<io::Result<Vec<Socket>>>();
    let sockets = match from {
        Some(netns) => netns.visit(open)??,
        None => open()?,
    };
    let mut replies = vec![Reached::Silent; targets.len()];
    let mut under_way = Vec::new();
    for (index, (target, socket)) in targets.iter().zip(sockets).enumerate() {
        match sent(&socket, target) {
            Ok(()) => under_way.push(Asked { index, target: *target, socket }),
            Err(error) => replies[index] = Reached::Refused(error.to_string()),
        }
    }
    let deadline = Instant::now() + patience;
    while let Some(left) = deadline.checked_duration_since(Instant::now())
        && !under_way.is_empty()
    {
        let event = |asked: &Asked| match asked.target.kind {
            ReachKind::Connect => PollFlags::POLLOUT,
            ReachKind::Echo | ReachKind::Dns => PollFlags::POLLIN,
        };
        let mut descriptors: Vec<PollFd<'_>> =
            under_way.iter().map(|asked| PollFd::new(asked.socket.as_fd(), event(asked))).collect();
        // Rounded up: a wait of no time would turn.
        let left = PollTimeout::try_from(left + Duration::from_millis(1));
        match poll(&mut descriptors, left.unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let are_ready: Vec<bool> = descriptors.iter().map(|it| it.any() == Some(true)).collect();
        let mut are_ready = are_ready.into_iter();
        under_way.retain(|asked| {
            let is_ready = are_ready.next().unwrap_or_default();
            let Some(reply) = is_ready.then(|| received(asked)).flatten() else { return true };
            replies[asked.index] = reply;
            false
        });
    }
    Ok(replies)
}

fn opened(target: &ReachTarget) -> io::Result<Socket> {
    let domain = if target.address.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = match (target.kind, target.address) {
        (ReachKind::Echo, IpAddr::V4(_)) => Socket::new(domain, Type::RAW, Some(Protocol::ICMPV4)),
        (ReachKind::Echo, IpAddr::V6(_)) => Socket::new(domain, Type::RAW, Some(Protocol::ICMPV6)),
        (ReachKind::Connect, _) => Socket::new(domain, Type::STREAM, None),
        (ReachKind::Dns, _) => Socket::new(domain, Type::DGRAM, None),
    }?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn sent(socket: &Socket, target: &ReachTarget) -> io::Result<()> {
    let port = if target.kind == ReachKind::Echo { 0 } else { target.port };
    match socket.connect(&SocketAddr::new(target.address, port).into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(nix::libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    match (target.kind, target.address) {
        (ReachKind::Connect, _) => Ok(()),
        (ReachKind::Dns, _) => socket.send(&QUESTION).map(drop),
        (ReachKind::Echo, IpAddr::V4(_)) => socket.send(&echo(ECHO_V4[0])).map(drop),
        // The kernel fills in this checksum (RFC 3542 §3.1).
        (ReachKind::Echo, IpAddr::V6(_)) => socket.send(&echo(ECHO_V6[0])).map(drop),
    }
}

/// An echo request with the checksum of ICMP over IPv4 (RFC 792).
fn echo(kind: u8) -> [u8; 8] {
    let [[a, b], [c, d]] = [IDENTIFIER, SEQUENCE];
    let words = [u16::from_be_bytes([kind, 0]), u16::from_be_bytes([a, b]), u16::from(d)];
    let sum: u32 = words.into_iter().map(u32::from).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let [high, low] = (!u16::try_from(folded).unwrap_or_default()).to_be_bytes();
    [kind, 0, high, low, a, b, c, d]
}

/// The reply; `None` if what has arrived is another packet.
fn received(asked: &Asked) -> Option<Reached> {
    let Asked { target, socket, .. } = asked;
    let refused = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => None,
        _ => Some(Reached::Refused(error.to_string())),
    };
    if target.kind == ReachKind::Connect {
        return match socket.take_error() {
            Ok(None) => Some(Reached::Answered),
            Ok(Some(error)) | Err(error) => refused(error),
        };
    }
    let mut bytes = [0; 512];
    let mut reader: &Socket = socket;
    let count = match reader.read(&mut bytes) {
        Ok(count) => count,
        Err(error) => return refused(error),
    };
    is_reply(target, &bytes[..count]).then_some(Reached::Answered)
}

fn is_reply(target: &ReachTarget, bytes: &[u8]) -> bool {
    let is_echo = |message: &[u8], kind: u8| {
        message.first() == Some(&kind)
            && message.get(4..6) == Some(&IDENTIFIER)
            && message.get(6..8) == Some(&SEQUENCE)
    };
    match (target.kind, target.address) {
        (ReachKind::Connect, _) => false,
        (ReachKind::Dns, _) => bytes.get(..2) == Some(&IDENTIFIER),
        (ReachKind::Echo, IpAddr::V6(_)) => is_echo(bytes, ECHO_V6[1]),
        // A raw socket of IPv4 has the packet's header, whose length counts words (raw(7)).
        (ReachKind::Echo, IpAddr::V4(_)) => {
            let header = bytes.first().map_or(0, |first| usize::from(first & 0xf) * 4);
            bytes.get(header..).is_some_and(|message| is_echo(message, ECHO_V4[1]))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn who_answers_who_refuses_and_who_is_silent_are_three_things() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let [silent, dns] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let port = |of: SocketAddr| of.port();
        let closed = port(TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
        let at = |kind, port| ReachTarget { kind, address: [127, 0, 0, 1].into(), port };
        let (is_dns, is_silent) =
            (port(dns.local_addr().unwrap()), port(silent.local_addr().unwrap()));
        let server = std::thread::spawn(move || {
            let mut question = [0; 64];
            let (count, client) = dns.recv_from(&mut question).unwrap();
            assert_eq!(&question[..count], &QUESTION);
            // Another's answer before the right one.
            dns.send_to(b"xxxx", client).unwrap();
            dns.send_to(&[question[0], question[1], 0x81, 0x80], client).unwrap();
        });
        let targets = [
            at(ReachKind::Connect, port(listener.local_addr().unwrap())),
            at(ReachKind::Connect, closed),
            at(ReachKind::Dns, is_dns),
            at(ReachKind::Dns, is_silent),
            at(ReachKind::Echo, 0),
            ReachTarget { address: "::1".parse().unwrap(), ..at(ReachKind::Echo, 0) },
        ];
        let began = Instant::now();
        let replies = reach(None, &targets, Duration::from_millis(300)).unwrap();
        server.join().unwrap();
        assert!(began.elapsed() >= Duration::from_millis(300));
        let refused = |reply: &Reached| matches!(reply, Reached::Refused(_));
        assert!(refused(&replies[1]), "{replies:?}");
        for (index, expected) in [
            (0, Reached::Answered),
            (2, Reached::Answered),
            (3, Reached::Silent),
            (4, Reached::Answered),
            (5, Reached::Answered),
        ] {
            assert_eq!(replies[index], expected, "{index}: {replies:?}");
        }
        let many = vec![targets[0]; MOST_TARGETS + 1];
        assert_eq!(reach(None, &many, Duration::from_secs(1)).unwrap().len(), MOST_TARGETS);
    }
}
