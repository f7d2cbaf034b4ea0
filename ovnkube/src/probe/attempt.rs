//! One attempt of a probe.

use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

use podnet::reach::Reply;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket, lookup_host},
};

use super::{Kind, Probe, echo};

/// What is sent where the size does not matter.
const WORD: &[u8] = b"ovnkube connectivity test";
const BULK: usize = 1 << 20;
/// The device of a pod.
const DEVICE_MTU: &str = "/sys/class/net/eth0/mtu";
/// Bytes of the headers of a datagram.
const OVER_IPV4: usize = 28;
const OVER_IPV6: usize = 48;

/// Tries once. The error says what happened instead.
pub(super) async fn once(probe: &Probe) -> Result<(), String> {
    let Probe { kind, to, port, .. } = probe;
    let text = |error: std::io::Error| error.to_string();
    let place = lookup_host((to.as_str(), *port))
        .await
        .map_err(text)?
        .next()
        .ok_or("the name has no address")?;
    match kind {
        Kind::Dns => Ok(()),
        Kind::Connect => TcpStream::connect(place).await.map(drop).map_err(text),
        Kind::Tcp => tcp(place, WORD).await,
        Kind::TcpBulk => tcp(place, &vec![7; BULK]).await,
        Kind::Udp => udp(place, WORD).await,
        Kind::UdpFull => {
            let mtu =
                fs::read_to_string(DEVICE_MTU).map_err(|error| format!("{DEVICE_MTU}: {error}"))?;
            let mtu: usize =
                mtu.trim().parse().map_err(|_| format!("{DEVICE_MTU} is no number"))?;
            let headers = if place.is_ipv4() { OVER_IPV4 } else { OVER_IPV6 };
            let size = mtu.saturating_sub(headers);
            udp(place, &vec![7; size])
                .await
                .map_err(|why| format!("a packet of {mtu} bytes: {why}"))
        }
        Kind::Icmp => match echo(place.ip()).await {
            Reply::Answered => Ok(()),
            Reply::Silent => Err("no answer".to_owned()),
            Reply::NoRoute => Err("no route".to_owned()),
            Reply::Refused(why) | Reply::Unsent(why) => Err(why),
        },
    }
}

async fn tcp(place: SocketAddr, sent: &[u8]) -> Result<(), String> {
    let mut stream =
        TcpStream::connect(place).await.map_err(|error| format!("connect: {error}"))?;
    let (mut reader, mut writer) = stream.split();
    // At the same time: both sides' buffers are smaller than what is sent.
    let mut echoed = vec![0; sent.len()];
    let (written, read) = tokio::join!(writer.write_all(sent), reader.read_exact(&mut echoed));
    written.map_err(|error| format!("send: {error}"))?;
    read.map_err(|error| format!("receive: {error}"))?;
    if echoed == sent { Ok(()) } else { Err("it answers, but does not echo".to_owned()) }
}

async fn udp(place: SocketAddr, sent: &[u8]) -> Result<(), String> {
    let from: SocketAddr = if place.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let text = |error: std::io::Error| error.to_string();
    let socket = UdpSocket::bind(from).await.map_err(text)?;
    socket.connect(place).await.map_err(text)?;
    socket.send(sent).await.map_err(text)?;
    let mut echoed = vec![0; sent.len() + 1];
    let count = socket.recv(&mut echoed).await.map_err(text)?;
    if &echoed[..count] == sent { Ok(()) } else { Err("it answers, but does not echo".to_owned()) }
}
