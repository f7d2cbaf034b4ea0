//! The NIC behind the bridge, and what the bridge takes over when it changes. Pure.
//!
//! `nics-to-bridge` gives a bridge the MAC address and the MTU of its NIC, and Open vSwitch keeps
//! them from then on, whatever becomes of the NIC. What an administrator has set otherwise stays.

use std::fmt;

use contract::mac::Mac;

/// A NIC, as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nic {
    pub(super) name: String,
    /// It stays when the name changes, and is another one after the NIC was unplugged.
    pub(super) index: u32,
    pub(super) mac: Mac,
    /// Bytes.
    pub(super) mtu: u32,
}

/// What a bridge is told to have. `None`: what follows from its ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) mac: Option<Mac>,
    pub(super) mtu: Option<i64>,
}

/// What the bridge takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Mac(Mac),
    Mtu(u32),
}

impl Nic {
    /// What a bridge takes over that was told to have what the NIC had `before`.
    pub(super) fn changes(&self, before: &Self, told: Told) -> Vec<Change> {
        let mac = self.mac != before.mac && told.mac == Some(before.mac);
        let mtu = self.mtu != before.mtu && told.mtu == Some(before.mtu.into());
        let mac = mac.then_some(Change::Mac(self.mac));
        mac.into_iter().chain(mtu.then_some(Change::Mtu(self.mtu))).collect()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(mac) => write!(f, "MAC address {mac}"),
            Self::Mtu(mtu) => write!(f, "MTU {mtu}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_follows_its_nic_and_keeps_what_an_administrator_has_set() {
        let mac = |text: &str| text.parse::<Mac>().unwrap();
        let before =
            Nic { name: "eth0".to_owned(), index: 3, mac: mac("0a:00:00:00:00:01"), mtu: 1500 };
        let now = Nic { index: 9, mac: mac("0a:00:00:00:00:02"), mtu: 9000, ..before.clone() };
        let of_nic = Told { mac: Some(before.mac), mtu: Some(1500) };
        assert_eq!(now.changes(&before, of_nic), [Change::Mac(now.mac), Change::Mtu(9000)]);
        assert_eq!(before.changes(&before, of_nic), []);
        let of_administrator = Told { mac: Some(mac("0a:00:00:00:00:99")), mtu: Some(1400) };
        assert_eq!(now.changes(&before, of_administrator), []);
        assert_eq!(
            now.changes(&before, Told { mac: None, mtu: None }),
            [],
            "Open vSwitch follows by itself"
        );
    }
}
