//! An echo request of ICMP, by a socket for which no capability is needed (icmp(7),
//! `ping_group_range`).

use std::{io, net::IpAddr, os::fd::AsRawFd as _, time::Duration};

use nix::sys::{
    socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6,
        connect, recv, send, setsockopt, socket, sockopt::ReceiveTimeout,
    },
    time::TimeVal,
};

const REQUEST_V4: u8 = 8;
const REQUEST_V6: u8 = 128;
const REPLY_V4: u8 = 0;
const REPLY_V6: u8 = 129;

/// Sends one request and waits for its answer. The kernel fills in identifier and checksum.
pub(super) fn once(to: IpAddr, patience: Duration) -> io::Result<()> {
    let (family, protocol, request, reply) = match to {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp, REQUEST_V4, REPLY_V4),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6, REQUEST_V6, REPLY_V6),
    };
    let socket = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol)?;
    let seconds = i64::try_from(patience.as_secs()).unwrap_or(1);
    let patience = TimeVal::new(seconds, patience.subsec_micros().into());
    setsockopt(&socket, ReceiveTimeout, &patience)?;
    match to {
        IpAddr::V4(to) => {
            connect(socket.as_raw_fd(), &SockaddrIn::from(std::net::SocketAddrV4::new(to, 0)))?
        }
        IpAddr::V6(to) => {
            connect(
                socket.as_raw_fd(),
                &SockaddrIn6::from(std::net::SocketAddrV6::new(to, 0, 0, 0)),
            )?;
        }
    }
    let message = [request, 0, 0, 0, 0, 0, 0, 1, b'o', b'v', b'n'];
    send(socket.as_raw_fd(), &message, MsgFlags::empty())?;
    let mut answer = [0; 64];
    let count = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    if count == message.len() && answer[0] == reply && answer[8..count] == message[8..] {
        Ok(())
    } else {
        Err(io::Error::other("another answer than the echo"))
    }
}
