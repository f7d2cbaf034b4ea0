//! Ethernet frames byte by byte: whatever a raw socket may send. Pure.
//!
//! Addresses are the caller's, true or false. Checksums are right, so that nothing drops a frame
//! for those.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result};
use contract::mac::Mac;

/// Every station of a network.
pub const BROADCAST: [u8; 6] = [0xff; 6];
/// Protocol numbers (IANA).
pub const ICMP: u8 = 1;
/// See [`ICMP`].
pub const TCP: u8 = 6;
/// See [`ICMP`].
pub const UDP: u8 = 17;
/// See [`ICMP`].
pub const ICMPV6: u8 = 58;

/// From where to where a frame goes on its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stations {
    /// Whose it claims to be.
    pub from: [u8; 6],
    /// Whose it is to be.
    pub to: [u8; 6],
}

/// The octets of a MAC as text.
///
/// # Errors
/// If it is none.
pub fn octets(mac: &str) -> Result<[u8; 6]> {
    Ok(mac.trim().parse::<Mac>().with_context(|| format!("not a MAC: {mac:?}"))?.octets())
}

/// A frame with any payload.
pub fn ethernet(Stations { from, to }: Stations, kind: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), payload].concat()
}

/// An ARP packet (RFC 826): operation 1 asks who has `target`, 2 says that `sender` has.
pub fn arp(
    stations: Stations,
    operation: u16,
    sender: ([u8; 6], Ipv4Addr),
    target: Ipv4Addr,
) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4];
    let (mac, address) = (sender.0, sender.1.octets());
    let packet =
        [&head[..], &operation.to_be_bytes(), &mac, &address, &[0; 6], &target.octets()].concat();
    ethernet(stations, 0x0806, &packet)
}

/// An IP packet of either family, with the payload of a protocol.
///
/// # Panics
/// If the addresses are of two families.
pub fn ip(stations: Stations, from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            fragment(stations, (from, to), protocol, payload, 0, Follows::Nothing)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let length = u16::try_from(payload.len()).expect("a short packet").to_be_bytes();
            let head =
                [&[0x60, 0, 0, 0][..], &length, &[protocol, 255], &from.octets(), &to.octets()]
                    .concat();
            ethernet(stations, 0x86dd, &[&head[..], payload].concat())
        }
        _ => panic!("{from} and {to} are of two families"),
    }
}

/// Whether there are further fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// There are.
    More,
    /// It is the last one, or the only one.
    Nothing,
}

/// An IPv4 packet that begins at this octet of a datagram, a multiple of 8.
pub fn fragment(
    stations: Stations,
    (from, to): (Ipv4Addr, Ipv4Addr),
    protocol: u8,
    payload: &[u8],
    offset: u16,
    follows: Follows,
) -> Vec<u8> {
    let length = u16::try_from(20 + payload.len()).expect("a short packet").to_be_bytes();
    let more = if follows == Follows::More { 0x2000 } else { 0 };
    let place = (more | (offset / 8)).to_be_bytes();
    let mut head = [
        &[0x45, 0][..],
        &length,
        &[0x77, 0x77],
        &place,
        &[64, protocol, 0, 0],
        &from.octets(),
        &to.octets(),
    ]
    .concat();
    let sum = checksum(&head);
    head[10..12].copy_from_slice(&sum);
    ethernet(stations, 0x0800, &[&head[..], payload].concat())
}

/// A UDP datagram.
pub fn udp(stations: Stations, from: (IpAddr, u16), to: (IpAddr, u16), payload: &[u8]) -> Vec<u8> {
    ip(stations, from.0, to.0, UDP, &datagram(from, to, payload))
}

/// What of a UDP datagram is in the IP packet, or its fragments.
pub fn datagram(from: (IpAddr, u16), to: (IpAddr, u16), payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).expect("a short datagram").to_be_bytes();
    let bytes =
        [&from.1.to_be_bytes()[..], &to.1.to_be_bytes(), &length, &[0, 0], payload].concat();
    summed(from.0, to.0, UDP, bytes, 6)
}

/// The first packet of a TCP connection.
pub fn syn(stations: Stations, from: (IpAddr, u16), to: (IpAddr, u16)) -> Vec<u8> {
    let sequence = [0, 0, 0, 1, 0, 0, 0, 0];
    let rest = [0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0];
    let bytes = [&from.1.to_be_bytes()[..], &to.1.to_be_bytes(), &sequence, &rest].concat();
    ip(stations, from.0, to.0, TCP, &summed(from.0, to.0, TCP, bytes, 16))
}

/// A neighbour advertisement (RFC 4861 §4.4), that `target` is at this MAC, whoever else said so.
pub fn neighbour(
    stations: Stations,
    from: Ipv6Addr,
    to: Ipv6Addr,
    target: Ipv6Addr,
    at: [u8; 6],
) -> Vec<u8> {
    let bytes = [&[136, 0, 0, 0, 0x20, 0, 0, 0][..], &target.octets(), &[2, 1], &at].concat();
    icmpv6(stations, from, to, bytes)
}

/// A router advertisement (§4.2): the sender is the router of everything, and hosts make addresses
/// of this prefix.
pub fn router(stations: Stations, from: Ipv6Addr, to: Ipv6Addr, prefix: Ipv6Addr) -> Vec<u8> {
    let head = [134, 0, 0, 0, 64, 0x08, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
    let option = [3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0];
    icmpv6(stations, from, to, [&head[..], &option, &prefix.octets()].concat())
}

fn icmpv6(stations: Stations, from: Ipv6Addr, to: Ipv6Addr, bytes: Vec<u8>) -> Vec<u8> {
    let bytes = summed(from.into(), to.into(), ICMPV6, bytes, 2);
    ip(stations, from.into(), to.into(), ICMPV6, &bytes)
}

/// A frame inside of a tunnel of OVN's (RFC 8926): UDP payload for port 6081.
pub fn geneve(network: u32, inner: &[u8]) -> Vec<u8> {
    let network = network.to_be_bytes();
    // Version 0, one option of 8 octets; a frame is inside. OVN's option: class 0x0102, type 0x80,
    // ports of the logical network.
    let head = [&[2, 0, 0x65, 0x58][..], &network[1..], &[0]].concat();
    let option = [0x01, 0x02, 0x80, 0x01, 0, 1, 0, 2];
    [&head[..], &option, inner].concat()
}

/// Puts the checksum of a payload into its place, with what the IP header adds to it.
fn summed(from: IpAddr, to: IpAddr, protocol: u8, mut bytes: Vec<u8>, place: usize) -> Vec<u8> {
    let address = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let length = u32::try_from(bytes.len()).expect("a short packet").to_be_bytes();
    let pseudo = [&address(from)[..], &address(to), &length, &[0, 0, 0, protocol], &bytes].concat();
    let sum = checksum(&pseudo);
    bytes[place..place + 2].copy_from_slice(&sum);
    bytes
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let pairs = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from));
    let mut sum: u32 = pairs.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).expect("it was folded")).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATIONS: Stations = Stations { from: [2, 0, 0, 0, 0, 1], to: BROADCAST };

    #[test]
    fn the_checksum_is_that_of_the_specifications_example() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), [0x22, 0x0d]);
    }

    /// A receiver sums all, the checksum too, to zero.
    #[test]
    fn a_packet_with_its_checksum_sums_to_zero() {
        let v4 = udp(STATIONS, ([10, 0, 0, 1].into(), 1), ([10, 0, 0, 2].into(), 2), b"odd");
        assert_eq!(checksum(&v4[14..34]), [0, 0]);
        let pseudo = [&v4[26..34], &[0, 17, 0, 11], &v4[34..]].concat();
        assert_eq!(checksum(&pseudo), [0, 0]);
        assert_eq!(v4.len(), 14 + 20 + 8 + 3);
    }

    #[test]
    fn a_fragment_says_where_it_begins_and_whether_more_follow() {
        let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let first = fragment(STATIONS, (from, to), UDP, &[0; 8], 0, Follows::More);
        let second = fragment(STATIONS, (from, to), UDP, &[0; 8], 8, Follows::Nothing);
        assert_eq!((&first[20..22], &second[20..22]), (&[0x20, 0][..], &[0, 1][..]));
    }

    #[test]
    fn a_question_of_arp_has_the_layout_of_its_specification() {
        let frame = arp(STATIONS, 1, (STATIONS.from, [10, 0, 0, 1].into()), [10, 0, 0, 2].into());
        assert_eq!(frame.len(), 42);
        assert_eq!(frame[12..22], [0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
        assert_eq!(frame[38..], [10, 0, 0, 2]);
    }
}
