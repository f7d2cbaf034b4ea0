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

use crate::netns::Netns;

/// How long an address may take. A packet that is not lost needs a thousandth of it.
pub const PATIENCE: Duration = Duration::from_millis(1500);
/// Types of messages of ICMP and ICMPv6: the request, and its reply.
const ECHO_V4: [u8; 2] = [8, 0];
const ECHO_V6: [u8; 2] = [128, 129];
/// Identifier and sequence number of an echo, and the id of a question.
const IDENTIFIER: [u8; 2] = *b"ov";
const SEQUENCE: [u8; 2] = [0, 1];
/// A question for the address of the root (RFC 1035 §4.1): each server answers something.
const QUESTION: [u8; 17] =
    [IDENTIFIER[0], IDENTIFIER[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1];

/// An address that may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub kind: TargetKind,
    pub address: IpAddr,
    /// 0 for an echo.
    pub port: u16,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// An echo request of ICMP.
    Echo,
    /// A connection of TCP, which is closed again.
    Connect,
    /// A question to a server of the DNS, over UDP.
    Dns,
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Answered,
    /// The network, or the target, refuses; the text is the kernel's.
    Refused(String),
    Silent,
    /// Nothing was sent: this side has no route there.
    NoRoute,
    /// Nothing was sent: a missing right, or a family that this kernel does not have.
    Unsent(String),
}

/// A question under way.
struct Asked {
    /// Its place among the targets.
    index: usize,
    target: Target,
    socket: Socket,
    /// Of IPv4, packets come with their header (raw(7)).
    is_raw: bool,
}

/// Asks all targets at once, and waits for `patience`. `from`: the namespace to ask from; `None`
/// for the one of this thread. The replies are in the order of the targets. An echo needs a group
/// in `ping_group_range` (icmp(7)) or `CAP_NET_RAW`. Blocks.
///
/// # Errors
/// The namespace cannot be entered.
pub fn reach(
    from: Option<&Netns>,
    targets: &[Target],
    patience: Duration,
) -> io::Result<Vec<Reply>> {
    let open = || targets.iter().map(opened).collect::<Vec<_>>();
    let sockets = match from {
        Some(netns) => netns.visit(open)?,
        None => open(),
    };
    let mut replies = vec![Reply::Silent; targets.len()];
    let mut under_way = Vec::new();
    for (index, (target, socket)) in targets.iter().zip(sockets).enumerate() {
        let sent = socket.map_err(|error| Reply::Unsent(error.to_string())).and_then(
            |(socket, is_raw)| match send(&socket, target) {
                Ok(()) => Ok(Asked { index, target: *target, socket, is_raw }),
                Err(error) if error.kind() == ErrorKind::NetworkUnreachable => Err(Reply::NoRoute),
                Err(error) => Err(Reply::Refused(error.to_string())),
            },
        );
        match sent {
            Ok(asked) => under_way.push(asked),
            Err(reply) => replies[index] = reply,
        }
    }
    let deadline = Instant::now() + patience;
    while let Some(left) = deadline.checked_duration_since(Instant::now())
        && !under_way.is_empty()
    {
        let event = |asked: &Asked| match asked.target.kind {
            TargetKind::Connect => PollFlags::POLLOUT,
            TargetKind::Echo | TargetKind::Dns => PollFlags::POLLIN,
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

/// The socket, and whether it is a raw one.
fn opened(target: &Target) -> io::Result<(Socket, bool)> {
    let is_v4 = target.address.is_ipv4();
    let domain = if is_v4 { Domain::IPV4 } else { Domain::IPV6 };
    let (socket, is_raw) = match target.kind {
        TargetKind::Echo => {
            let protocol = Some(if is_v4 { Protocol::ICMPV4 } else { Protocol::ICMPV6 });
            match Socket::new(domain, Type::DGRAM, protocol) {
                Ok(socket) => (socket, false),
                Err(_) => (Socket::new(domain, Type::RAW, protocol)?, true),
            }
        }
        TargetKind::Connect => (Socket::new(domain, Type::STREAM, None)?, false),
        TargetKind::Dns => (Socket::new(domain, Type::DGRAM, None)?, false),
    };
    socket.set_nonblocking(true)?;
    Ok((socket, is_raw))
}

fn send(socket: &Socket, target: &Target) -> io::Result<()> {
    let port = if target.kind == TargetKind::Echo { 0 } else { target.port };
    match socket.connect(&SocketAddr::new(target.address, port).into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(nix::libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    match (target.kind, target.address) {
        (TargetKind::Connect, _) => Ok(()),
        (TargetKind::Dns, _) => socket.send(&QUESTION).map(drop),
        (TargetKind::Echo, IpAddr::V4(_)) => socket.send(&echo(ECHO_V4[0])).map(drop),
        // The kernel fills in this checksum (RFC 3542 §3.1).
        (TargetKind::Echo, IpAddr::V6(_)) => socket.send(&echo(ECHO_V6[0])).map(drop),
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
fn received(asked: &Asked) -> Option<Reply> {
    let Asked { target, socket, .. } = asked;
    let refused = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => None,
        _ => Some(Reply::Refused(error.to_string())),
    };
    if target.kind == TargetKind::Connect {
        return match socket.take_error() {
            Ok(None) => Some(Reply::Answered),
            Ok(Some(error)) | Err(error) => refused(error),
        };
    }
    let mut bytes = [0; 512];
    let mut reader: &Socket = socket;
    let count = match reader.read(&mut bytes) {
        Ok(count) => count,
        Err(error) => return refused(error),
    };
    is_reply(asked, &bytes[..count]).then_some(Reply::Answered)
}

fn is_reply(asked: &Asked, bytes: &[u8]) -> bool {
    let Asked { target, is_raw, .. } = asked;
    // The kernel gives a socket that is not raw an identifier, and what is meant for it alone.
    let is_echo = |message: &[u8], kind: u8| {
        message.first() == Some(&kind)
            && (!is_raw || message.get(4..6) == Some(&IDENTIFIER))
            && message.get(6..8) == Some(&SEQUENCE)
    };
    match (target.kind, target.address) {
        (TargetKind::Connect, _) => false,
        (TargetKind::Dns, _) => bytes.get(..2) == Some(&IDENTIFIER),
        (TargetKind::Echo, IpAddr::V6(_)) => is_echo(bytes, ECHO_V6[1]),
        (TargetKind::Echo, IpAddr::V4(_)) => {
            // Its length counts words.
            let words = bytes.first().filter(|_| *is_raw).map_or(0, |first| first & 0xf);
            let message = bytes.get(usize::from(words) * 4..);
            message.is_some_and(|message| is_echo(message, ECHO_V4[1]))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, TcpListener, UdpSocket},
        thread,
    };

    use super::*;

    fn at(kind: TargetKind, of: SocketAddr) -> Target {
        Target { kind, address: of.ip(), port: of.port() }
    }

    #[test]
    fn who_answers_and_who_refuses_are_known_at_once() {
        let here = (Ipv4Addr::LOCALHOST, 0);
        let listener = TcpListener::bind(here).unwrap();
        // Bound, and nobody listens.
        let closed = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        closed.bind(&SocketAddr::from(here).into()).unwrap();
        let dns = UdpSocket::bind(here).unwrap();
        let targets = [
            at(TargetKind::Connect, listener.local_addr().unwrap()),
            at(TargetKind::Connect, closed.local_addr().unwrap().as_socket().unwrap()),
            at(TargetKind::Dns, dns.local_addr().unwrap()),
        ];
        let server = thread::spawn(move || {
            let mut question = [0; 64];
            let (count, client) = dns.recv_from(&mut question).unwrap();
            assert_eq!(&question[..count], &QUESTION);
            // Another's answer before the right one.
            dns.send_to(b"xxxx", client).unwrap();
            dns.send_to(&[question[0], question[1], 0x81, 0x80], client).unwrap();
        });
        let replies = reach(None, &targets, Duration::from_secs(60)).unwrap();
        server.join().unwrap();
        assert_eq!((&replies[0], &replies[2]), (&Reply::Answered, &Reply::Answered));
        assert!(matches!(replies[1], Reply::Refused(_)), "{replies:?}");
    }

    #[test]
    fn who_says_nothing_is_waited_for_and_an_echo_comes_back_where_it_may_be_sent() {
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let echo = Target { kind: TargetKind::Echo, address: Ipv4Addr::LOCALHOST.into(), port: 0 };
        let targets = [at(TargetKind::Dns, silent.local_addr().unwrap()), echo];
        let began = Instant::now();
        let replies = reach(None, &targets, Duration::from_secs(1)).unwrap();
        assert!(began.elapsed() >= Duration::from_secs(1));
        assert_eq!(replies[0], Reply::Silent);
        assert!(matches!(replies[1], Reply::Answered | Reply::Unsent(_)), "{replies:?}");
    }

    #[test]
    fn where_there_is_no_route_nothing_is_sent_and_nobody_is_waited_for() {
        let asked = thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("a network namespace: this test runs as root");
            let of = |kind| Target { kind, address: Ipv4Addr::new(192, 0, 2, 1).into(), port: 53 };
            let targets = [TargetKind::Echo, TargetKind::Connect, TargetKind::Dns].map(of);
            reach(None, &targets, Duration::from_secs(60)).unwrap()
        });
        assert_eq!(asked.join().unwrap(), [Reply::NoRoute, Reply::NoRoute, Reply::NoRoute]);
    }
}
