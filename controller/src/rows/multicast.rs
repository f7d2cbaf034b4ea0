//! Priorities and matches of rules about multicast.

/// Multicast is dropped, unless a rule of the next priority lets it pass. Both are upstream's.
pub(crate) const DROP: i64 = 1011;
/// See [`DROP`].
pub(crate) const ALLOW: i64 = 1012;
/// Matches groups of IPv6 that are not assigned for good: those have the bit `T` (RFC 4291 §2.7).
/// Neighbour discovery needs the others.
pub(crate) const TRANSIENT_V6: &str = "(ip6.dst[120..127] == 0xff && ip6.dst[116] == 1)";

/// The key of the router's `options` that lets it carry multicast.
pub(crate) const RELAY: &str = "mcast_relay";
