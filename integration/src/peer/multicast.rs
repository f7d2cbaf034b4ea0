//! A member of multicast groups, and one that sends to a group.

use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, Result};
use rustix::net::{netdevice, sockopt};

use super::Report;

/// The interface of a pod.
const INTERFACE: &str = "eth0";
/// Routers that a datagram may pass. Without it, none leaves the sender's network.
const HOPS: u32 = 4;
/// How often the last datagrams are sent: one may be lost while an address is resolved.
const LAST: usize = 5;
/// Pause between datagrams: ten times what one of them takes on its way.
const EVERY: Duration = Duration::from_millis(10);

/// A datagram to a group, or to the member itself, with a number of the sender's.
pub const TO_GROUP: &str = "group";
/// See [`TO_GROUP`].
pub const TO_MEMBER: &str = "member";

/// Joins the group, and reports the text of each datagram that arrives at the port, until standard
/// input closes.
pub(super) fn listen(group: SocketAddr, mut report: impl FnMut(&Report)) -> Result<()> {
    let socket = UdpSocket::bind((any(group), group.port())).context("listen")?;
    let interface = netdevice::name_to_index(&socket, INTERFACE)?;
    match group.ip() {
        // The kernel takes the interface of the default route.
        IpAddr::V4(group) => socket.join_multicast_v4(&group, &[0, 0, 0, 0].into()),
        IpAddr::V6(group) => socket.join_multicast_v6(&group, interface),
    }
    .with_context(|| format!("join {group}"))?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    report(&Report::Listening(group));
    let until = super::end_of_input();
    let mut datagram = [0; 64];
    while !until.is_finished() {
        match socket.recv(&mut datagram) {
            Ok(length) => {
                report(&Report::Heard(String::from_utf8_lossy(&datagram[..length]).into_owned()))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error).context("receive"),
        }
    }
    Ok(())
}

/// Sends `count` datagrams with this number to the group, and after them some to each of the
/// members themselves.
pub(super) fn send(
    group: SocketAddr,
    number: u64,
    count: usize,
    members: &[SocketAddr],
) -> Result<()> {
    let socket = UdpSocket::bind((any(group), 0))?;
    // A sender that is a member would hear itself without the network.
    if group.is_ipv4() {
        sockopt::set_ip_multicast_ttl(&socket, HOPS)?;
        socket.set_multicast_loop_v4(false)?;
    } else {
        sockopt::set_ipv6_multicast_hops(&socket, HOPS)?;
        socket.set_multicast_loop_v6(false)?;
    }
    let send = |text: &str, to: SocketAddr| -> Result<()> {
        socket
            .send_to(format!("{text} {number}").as_bytes(), to)
            .with_context(|| format!("send to {to}"))?;
        // A pace, so that no queue on the way is too short.
        std::thread::park_timeout(EVERY);
        Ok(())
    };
    (0..count).try_for_each(|_| send(TO_GROUP, group))?;
    (0..LAST).try_for_each(|_| members.iter().try_for_each(|member| send(TO_MEMBER, *member)))
}

fn any(like: SocketAddr) -> IpAddr {
    if like.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() }
}
