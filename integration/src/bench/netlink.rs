//! The netlink messages of the floor: one request at a time over a blocking socket, with no layer in between.

use std::{
    fs::File,
    io,
    net::IpAddr,
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
    thread,
};

use anyhow::{Context as _, Result, anyhow, bail};
use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{
        AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags,
        LinkInfo, LinkMessage,
    },
    route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType},
};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use nix::sched::{CloneFlags, setns};

/// A netlink socket of one network namespace.
#[derive(Debug)]
pub(crate) struct Netlink(Socket);

/// A pod's namespace.
#[derive(Debug)]
pub(crate) struct Netns {
    file: File,
    pub(crate) netlink: Netlink,
}

impl Netns {
    /// Opens the namespace, and a netlink socket in it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        // A socket belongs to the namespace it was opened in. A thread of its own enters the namespace and
        // ends there, so that no thread of the driver stays in a foreign namespace.
        let socket = thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(file.as_fd(), CloneFlags::CLONE_NEWNET)?;
                Netlink::open()
            });
            inside.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked (see above)")))
        });
        Ok(Self { netlink: socket.with_context(|| format!("enter {}", path.display()))?, file })
    }
}

impl Netlink {
    /// Opens a socket in this thread's namespace.
    pub(crate) fn open() -> Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        Ok(Self(socket))
    }

    /// Creates a veth pair with the peer `eth0` in the pod, and brings `host`, the node's end, up. The node's
    /// end gets no IPv6 link-local address: it is not needed, and each address and route is an event for
    /// every daemon that follows links. The kernel accepts `IFLA_INET6_ADDR_GEN_MODE` only for an existing
    /// link, so the second request sets it.
    pub(crate) fn add_veth(&self, host: &str, mtu: u32, mac: [u8; 6], pod: &Netns) -> Result<()> {
        let mut peer = LinkMessage::default();
        peer.attributes = vec![
            LinkAttribute::IfName("eth0".to_owned()),
            LinkAttribute::Mtu(mtu),
            LinkAttribute::Address(mac.to_vec()),
            LinkAttribute::NetNsFd(pod.file.as_raw_fd()),
        ];
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfName(host.to_owned()),
            LinkAttribute::Mtu(mtu),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ];
        self.request(RouteNetlinkMessage::NewLink(link), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
            .context("create the veth")?;

        let mut up = LinkMessage::default();
        up.header.flags = LinkFlags::Up;
        up.header.change_mask = LinkFlags::Up;
        let no_address = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
        up.attributes =
            vec![LinkAttribute::IfName(host.to_owned()), LinkAttribute::AfSpecUnspec(vec![no_address])];
        self.request(RouteNetlinkMessage::SetLink(up), NLM_F_ACK).map(drop).context("bring the host's end up")
    }

    /// Deletes a link.
    pub(crate) fn delete_link(&self, name: &str) -> Result<()> {
        let mut link = LinkMessage::default();
        link.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        self.request(RouteNetlinkMessage::DelLink(link), NLM_F_ACK).map(drop).context("delete the veth")
    }

    /// Configures the pod's `eth0`: address, up, default route.
    pub(crate) fn configure_eth0(&self, address: IpNet, gateway: IpAddr) -> Result<()> {
        let mut wanted = LinkMessage::default();
        wanted.attributes = vec![LinkAttribute::IfName("eth0".to_owned())];
        let index = match self.request(RouteNetlinkMessage::GetLink(wanted), 0).context("look for eth0")? {
            Some(RouteNetlinkMessage::NewLink(link)) => link.header.index,
            other => bail!("instead of eth0 the kernel sends {other:?}"),
        };
        let family = if address.addr().is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };

        let mut add_address = AddressMessage::default();
        add_address.header.family = family;
        add_address.header.prefix_len = address.prefix_len();
        add_address.header.index = index;
        add_address.attributes =
            vec![AddressAttribute::Local(address.addr()), AddressAttribute::Address(address.addr())];
        let add = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        self.request(RouteNetlinkMessage::NewAddress(add_address), add).context("add the address")?;

        let mut up = LinkMessage::default();
        up.header.index = index;
        up.header.flags = LinkFlags::Up;
        up.header.change_mask = LinkFlags::Up;
        // Up before the route: the kernel refuses a route over a link that is down (ENETDOWN).
        self.request(RouteNetlinkMessage::SetLink(up), NLM_F_ACK).context("bring eth0 up")?;

        let mut route = RouteMessage::default();
        route.header.address_family = family;
        route.header.table = RouteHeader::RT_TABLE_MAIN;
        route.header.protocol = RouteProtocol::Static;
        route.header.scope = RouteScope::Universe;
        route.header.kind = RouteType::Unicast;
        let gateway = match gateway {
            IpAddr::V4(address) => RouteAddress::Inet(address),
            IpAddr::V6(address) => RouteAddress::Inet6(address),
        };
        route.attributes = vec![RouteAttribute::Gateway(gateway), RouteAttribute::Oif(index)];
        self.request(RouteNetlinkMessage::NewRoute(route), add).map(drop).context("add the route")
    }

    /// Sends a message and reads the kernel's answer: an object, or `None` for an acknowledgement.
    fn request(&self, message: RouteNetlinkMessage, flags: u16) -> Result<Option<RouteNetlinkMessage>> {
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send(&bytes, 0)?;
        let (answer, _) = self.0.recv_from_full()?;
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io().into()),
            NetlinkPayload::Error(_) => Ok(None),
            NetlinkPayload::InnerMessage(found) => Ok(Some(found)),
            other => bail!("the kernel answers {other:?}"),
        }
    }
}
