//! Frames by a packet socket, as a pod with NET_RAW sends them, and how many frames or datagrams
//! with a mark arrive at an end.

use std::{
    io::{ErrorKind, Read as _},
    net::{SocketAddr, UdpSocket},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
        addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque},
        bind, netdevice, recv, send, socket_with,
        sockopt::{Timeout, set_socket_timeout},
    },
};

use super::Report;

/// ETH_P_ALL of linux/if_ether.h: every protocol.
const EVERY_PROTOCOL: u16 = 3;
/// How often a receiver looks whether its input has ended.
const TURN: Duration = Duration::from_millis(50);

/// Size of a [`Link`]: a test compares it.
const LENGTH: SocketAddrLen = 20;

/// `sockaddr_ll` of packet(7).
#[repr(C)]
struct Link {
    family: u16,
    /// In network byte order.
    protocol: u16,
    index: i32,
    kind: u16,
    packet: u8,
    length: u8,
    address: [u8; 8],
}

// SAFETY: the closure gets a pointer to a whole `Link`, and its size. It has the layout of the
// kernel's `sockaddr_ll`, all of whose bytes are initialised.
#[expect(unsafe_code, reason = "neither rustix nor nix makes addresses of packet sockets")]
unsafe impl SocketAddrArg for Link {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        f(std::ptr::from_ref(self).cast(), LENGTH)
    }
}

/// A packet socket on an interface, which gets frames of this protocol; 0 is none.
fn packet_socket(interface: &str, protocol: u16) -> Result<OwnedFd> {
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .context("a packet socket")?;
    let index = netdevice::name_to_index(&socket, interface)
        .with_context(|| format!("find {interface}"))?;
    let link = Link {
        family: AddressFamily::PACKET.as_raw(),
        protocol: protocol.to_be(),
        index: i32::try_from(index)?,
        kind: 0,
        packet: 0,
        length: 0,
        address: [0; 8],
    };
    bind(&socket, &link).with_context(|| format!("bind to {interface}"))?;
    Ok(socket)
}

/// Sends the frames that are lines of hexadecimal digits on standard input, so often each, one
/// after the other.
pub(super) fn send_frames(interface: &str, times: u32, report: impl Fn(&Report)) -> Result<()> {
    let socket = packet_socket(interface, 0)?;
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input)?;
    let frames = input.lines().map(bytes).collect::<Result<Vec<_>>>()?;
    let mut sent = 0;
    for _ in 0..times {
        for frame in &frames {
            match send(&socket, frame, SendFlags::empty()) {
                Ok(_) => sent += 1,
                // The queue of the device is full: the frame is lost, as it would be later.
                Err(Errno::NOBUFS) => {}
                Err(error) => return Err(error).context("send a frame"),
            }
        }
    }
    report(&Report::Counted(sent));
    Ok(())
}

fn bytes(digits: &str) -> Result<Vec<u8>> {
    ensure!(digits.is_ascii() && digits.len().is_multiple_of(2), "not hexadecimal: {digits:?}");
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16);
    Ok((0..digits.len()).step_by(2).map(pair).collect::<Result<_, _>>()?)
}

/// Counts the frames with the mark that an interface gets, until standard input closes.
pub(super) fn sniff(interface: &str, mark: &str, report: impl Fn(&Report)) -> Result<()> {
    let socket = packet_socket(interface, EVERY_PROTOCOL)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(TURN))?;
    let mark = bytes(mark)?;
    report(&Report::Answering);
    count(&mark, report, |frame| match recv(&socket, frame, RecvFlags::empty()) {
        Ok((length, _)) => Ok(length),
        Err(error) => Err(error.into()),
    })
}

/// Counts the datagrams with the mark that come to a port of any address, or of a group, until
/// standard input closes.
pub(super) fn hear(at: SocketAddr, mark: &str, report: impl Fn(&Report)) -> Result<()> {
    let socket = UdpSocket::bind(at).with_context(|| format!("listen on {at}"))?;
    socket.set_read_timeout(Some(TURN))?;
    let mark = bytes(mark)?;
    report(&Report::Answering);
    count(&mark, report, |datagram| socket.recv(datagram))
}

fn count(
    mark: &[u8],
    report: impl Fn(&Report),
    mut receive: impl FnMut(&mut [u8]) -> std::io::Result<usize>,
) -> Result<()> {
    let until = super::end_of_input();
    let (mut received, mut counted) = (vec![0; 1 << 16], 0);
    // What has come before the end of the input is counted, whatever else goes on coming.
    let mut end: Option<Instant> = None;
    while end.is_none_or(|end| Instant::now() < end) {
        match receive(&mut received) {
            Ok(length) => {
                let found = received[..length].windows(mark.len()).any(|part| part == mark);
                counted += u64::from(found);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error).context("receive"),
        }
        if until.is_finished() {
            end.get_or_insert_with(|| Instant::now() + 2 * TURN);
        }
    }
    report(&Report::Counted(counted));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_from_hexadecimal_digits() {
        assert_eq!(bytes("00ff1a").unwrap(), [0, 255, 26]);
        assert!(bytes("0").is_err() && bytes("zz").is_err());
    }

    #[test]
    fn the_address_of_a_link_has_the_size_that_the_kernel_expects() {
        assert_eq!(SocketAddrLen::try_from(size_of::<Link>()).unwrap(), LENGTH);
    }
}
