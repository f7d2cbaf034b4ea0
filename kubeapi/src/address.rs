//! Addresses and networks as API servers take them.
//!
//! Go read `010.096.000.001` as decimal for years, and API servers go on to accept it where an
//! object had it (KEP-4858). An object with such a text is served as kube-proxy serves it; the
//! text's other meaning, octal, is nobody's.

use std::{
    net::IpAddr,
    net::{Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;

/// The address, whose decimal numbers may have leading zeros.
pub fn parse(text: &str) -> Option<IpAddr> {
    let strict = || text.parse().ok();
    let v4 = |text: &str| -> Option<Ipv4Addr> {
        let numbers: Vec<&str> = text.split('.').map(without_zeros).collect();
        numbers.join(".").parse().ok()
    };
    let sloppy = || match text.rsplit_once(':') {
        None => v4(text).map(IpAddr::V4),
        // The end of an IPv6 address may be an IPv4 address (RFC 4291, 2.2).
        Some((start, end)) => {
            format!("{start}:{}", v4(end)?).parse::<Ipv6Addr>().ok().map(IpAddr::V6)
        }
    };
    strict().or_else(sloppy)
}

/// The network, whose decimal numbers may have leading zeros. Bits of the host stay as they are.
pub fn parse_net(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    // `+8` is a number for Rust.
    let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let length = is_number.then(|| without_zeros(length).parse().ok()).flatten()?;
    IpNet::new(parse(address)?, length).ok()
}

fn without_zeros(number: &str) -> &str {
    let stripped = number.trim_start_matches('0');
    // The zero itself.
    if stripped.is_empty() && !number.is_empty() { "0" } else { stripped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_leading_zeros_are_decimal() {
        for (text, address) in [
            ("10.96.0.1", "10.96.0.1"),
            ("010.096.011.211", "10.96.11.211"),
            ("000.00.0.0000", "0.0.0.0"),
            ("fd00::1", "fd00::1"),
            ("::ffff:010.001.02.3", "::ffff:10.1.2.3"),
        ] {
            assert_eq!(parse(text), address.parse().ok(), "{text}");
        }
        for (text, net) in [
            ("10.0.0.1/8", "10.0.0.1/8"),
            ("010.000.000.000/08", "10.0.0.0/8"),
            ("fd00::/048", "fd00::/48"),
            ("0.0.0.0/0", "0.0.0.0/0"),
        ] {
            assert_eq!(parse_net(text), net.parse().ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_stays_none() {
        for text in [
            "",
            "1.2.3",
            "1.2.3.",
            "1..2.3",
            "256.1.1.1",
            "0x10.1.1.1",
            "-1.2.3.4",
            "00fd00::1",
            "1.2.3.4.5",
            "a:b",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in ["10.0.0.0", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/33", "x/8", "10.0.0.0/8/8"] {
            assert_eq!(parse_net(text), None, "{text}");
        }
    }
}
