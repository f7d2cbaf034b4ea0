//! One link of the kernel, and whether it can be the uplink of a bridge.

use std::path::Path;

use futures_util::TryStreamExt;
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use podnet::link::into_io;
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec};

use crate::BridgeError;

/// Bytes of the longest name of a link, without the final zero (`IFNAMSIZ` in `linux/if.h`).
const LONGEST_NAME: usize = 15;
/// Name of the device that is the master of all ports of the kernel datapath.
const OVS_MASTER: &str = "ovs-system";
/// Prefix of the names of management ports.
const MANAGEMENT_PORT: &str = "ovn-k8s-mp";

/// A link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nic {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) mtu: u32,
    /// In lower case with colons, as Open vSwitch writes it.
    pub(crate) mac: String,
    flags: LinkFlags,
    layer: LinkLayerType,
    master: Option<u32>,
    kind: Option<InfoKind>,
}

/// Why a link cannot be an uplink, or a name cannot be that of a bridge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("there is no interface {0:?}")]
    Missing(String),
    #[error(
        "the name of the bridge, br{0}, would be longer than {LONGEST_NAME} characters; \
         rename the interface first (ip link set … name …)"
    )]
    LongName(String),
    #[error("it is the loopback interface")]
    Loopback,
    #[error("it is a management port of this node")]
    ManagementPort,
    #[error("it is a {0}, not a NIC")]
    Kind(&'static str),
    #[error("it is not an Ethernet interface")]
    NotEthernet,
    #[error(
        "it is wireless, and an access point does not take packets of other stations behind it"
    )]
    Wireless,
    #[error(
        "it belongs to {0:?} (a bond or another bridge); name that one instead, or take it out of there"
    )]
    HasMaster(String),
    #[error("it is a port of bridge {0:?} that Open vSwitch made itself")]
    OvsInternal(String),
    #[error("it is a port of the integration bridge: an interface of a pod?")]
    PodInterface,
    #[error("it is the integration bridge, which has no uplink")]
    IntegrationBridge,
    #[error("there is an interface {0:?} already, and it is not a bridge of Open vSwitch")]
    NameTaken(String),
}

impl Nic {
    pub(crate) async fn find(netlink: &Handle, name: &str) -> Result<Option<Self>, BridgeError> {
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Ok(None);
        }
        let found = netlink
            .link()
            .get()
            .match_name(name.to_owned())
            .execute()
            .try_next()
            .await
            .map_err(into_io);
        match found {
            Ok(message) => Ok(message.map(|message| Self::from(&message))),
            Err(error) if error.raw_os_error() == Some(nix::libc::ENODEV) => Ok(None),
            Err(error) => Err(BridgeError::Kernel { what: format!("link {name}"), error }),
        }
    }

    pub(crate) async fn existing(netlink: &Handle, name: &str) -> Result<Self, BridgeError> {
        Ok(Self::find(netlink, name).await?.ok_or_else(|| Unfit::Missing(name.to_owned()))?)
    }

    /// Checks the link by what the kernel knows. Checks against the database are up to the caller.
    pub(crate) async fn check(&self, netlink: &Handle) -> Result<(), BridgeError> {
        self.check_alone(Path::new("/sys/class/net"))?;
        // A port of the kernel datapath has `ovs-system` as its master: it may be this bridge's
        // uplink already.
        let Some(master) = self.master else { return Ok(()) };
        let name = name_of(netlink, master).await?;
        if name == OVS_MASTER { Ok(()) } else { Err(Unfit::HasMaster(name).into()) }
    }

    fn check_alone(&self, sysfs: &Path) -> Result<(), Unfit> {
        if self.flags.contains(LinkFlags::Loopback) {
            return Err(Unfit::Loopback);
        }
        if self.name.starts_with(MANAGEMENT_PORT) {
            return Err(Unfit::ManagementPort);
        }
        match &self.kind {
            Some(InfoKind::Bridge) => return Err(Unfit::Kind("Linux bridge")),
            Some(InfoKind::Tun) => return Err(Unfit::Kind("tap device")),
            Some(InfoKind::Other(kind)) if kind == "openvswitch" => {
                return Err(Unfit::Kind("port of Open vSwitch's own"));
            }
            _ => {}
        }
        if self.layer != LinkLayerType::Ether {
            return Err(Unfit::NotEthernet);
        }
        // cfg80211 makes `phy80211`; `wireless` is from the older wireless extensions.
        let sysfs = sysfs.join(&self.name);
        if sysfs.join("wireless").exists() || sysfs.join("phy80211").exists() {
            return Err(Unfit::Wireless);
        }
        if self.name.len() + "br".len() > LONGEST_NAME {
            return Err(Unfit::LongName(self.name.clone()));
        }
        Ok(())
    }

    pub(crate) fn is_up(&self) -> bool {
        self.flags.contains(LinkFlags::Up)
    }

    pub(crate) async fn set_up(&self, netlink: &Handle) -> std::io::Result<()> {
        let message = LinkMessageBuilder::<LinkUnspec>::new().index(self.index).up().build();
        netlink.link().set(message).execute().await.map_err(into_io)
    }
}

async fn name_of(netlink: &Handle, index: u32) -> Result<String, BridgeError> {
    let found = netlink.link().get().match_index(index).execute().try_next().await;
    let found = found.map_err(|error| BridgeError::Kernel {
        what: format!("link {index}"),
        error: into_io(error),
    })?;
    Ok(found.map(|message| Nic::from(&message).name).unwrap_or_default())
}

impl From<&LinkMessage> for Nic {
    fn from(message: &LinkMessage) -> Self {
        let mut nic = Self {
            name: String::new(),
            index: message.header.index,
            mtu: 0,
            mac: String::new(),
            flags: message.header.flags,
            layer: message.header.link_layer_type,
            master: None,
            kind: None,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => nic.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => nic.mtu = *mtu,
                LinkAttribute::Controller(index) if *index != 0 => nic.master = Some(*index),
                LinkAttribute::Address(octets) => {
                    nic.mac = octets
                        .iter()
                        .map(|octet| format!("{octet:02x}"))
                        .collect::<Vec<_>>()
                        .join(":");
                }
                LinkAttribute::LinkInfo(infos) => {
                    nic.kind = infos.iter().find_map(|info| {
                        if let LinkInfo::Kind(kind) = info { Some(kind.clone()) } else { None }
                    });
                }
                _ => {}
            }
        }
        nic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nic(name: &str) -> Nic {
        Nic {
            name: name.to_owned(),
            index: 2,
            mtu: 1500,
            mac: "52:54:00:12:34:56".to_owned(),
            flags: LinkFlags::Up,
            layer: LinkLayerType::Ether,
            master: None,
            kind: None,
        }
    }

    #[test]
    fn what_is_no_nic_is_refused_with_the_reason() {
        let sysfs = std::env::temp_dir().join("no-sysfs-at-all");
        let check = |nic: Nic| nic.check_alone(&sysfs);
        assert_eq!(check(nic("eth0")), Ok(()));
        assert_eq!(check(Nic { flags: LinkFlags::Loopback, ..nic("lo") }), Err(Unfit::Loopback));
        assert_eq!(check(nic("ovn-k8s-mp0")), Err(Unfit::ManagementPort));
        assert_eq!(
            check(Nic { kind: Some(InfoKind::Bridge), ..nic("docker0") }),
            Err(Unfit::Kind("Linux bridge"))
        );
        assert_eq!(
            check(Nic { kind: Some(InfoKind::Tun), ..nic("tap0") }),
            Err(Unfit::Kind("tap device"))
        );
        assert_eq!(
            check(Nic { layer: LinkLayerType::Infiniband, ..nic("ib0") }),
            Err(Unfit::NotEthernet)
        );
        assert_eq!(check(nic("exactly-13-cha")), Err(Unfit::LongName("exactly-13-cha".to_owned())));
        assert_eq!(check(nic("thirteen-char")), Ok(()));
    }

    #[test]
    fn a_wireless_interface_is_known_by_its_files() {
        let sysfs = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(sysfs.path().join("wlan0/phy80211")).unwrap();
        assert_eq!(nic("wlan0").check_alone(sysfs.path()), Err(Unfit::Wireless));
    }
}
