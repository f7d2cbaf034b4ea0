//! The world outside of the cluster: a router on the nodes' wire, and behind it a server, a name
//! server and a client, each in a network namespace of its own.
//!
//! ```text
//! node1, node2 ─── fabric ─── router ─── web        203.0.113.10   2001:db8:113::10
//!              172.30.0.254              resolver   203.0.113.53   2001:db8:113::53
//!            fd00:172:30::fe             client     203.0.113.100  2001:db8:113::100
//! ```
//!
//! The nodes' default routes lead to the router. It knows no way to pods or Services: what reaches
//! the world with a pod's address gets no answer, and nothing finds into the cluster but over a
//! node's address, or one that [`World::announce`] leads to a node. Must not know what the nodes do
//! with packets.

use std::{ffi::OsStr, net::IpAddr, process::Command};

use anyhow::{Context as _, Result};

use crate::{Families, Node, command, fabric, prerequisites};

/// The router's address on the wire.
pub const ROUTER: &str = "172.30.0.254";
/// The same in IPv6.
pub const ROUTER_V6: &str = "fd00:172:30::fe";
/// Network behind the router, up to the host number.
const BEYOND: &str = "203.0.113.";
/// The same in IPv6.
const BEYOND_V6: &str = "2001:db8:113::";

/// A machine of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// Between the nodes' wire and the others.
    Router,
    /// Serves whatever a test starts on it.
    Web,
    /// The same, as another address.
    Resolver,
    /// Asks for what the cluster serves.
    Client,
}

impl Machine {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Router, Self::Web, Self::Resolver, Self::Client];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Web => "web",
            Self::Resolver => "resolver",
            Self::Client => "client",
        }
    }

    /// Path of its network namespace.
    pub fn namespace(self) -> String {
        format!("/run/netns/{}", self.name())
    }

    /// Its host number behind the router.
    fn host(self) -> u8 {
        match self {
            Self::Router => 1,
            Self::Web => 10,
            Self::Resolver => 53,
            Self::Client => 100,
        }
    }
}

/// The world of a lab. It ends with the lab's namespaces.
#[derive(Debug)]
pub struct World {
    families: Families,
}

impl World {
    /// Makes the machines, and gives the nodes their default routes.
    pub(crate) fn start(nodes: &[Node], families: Families, mtu: u32) -> Result<Self> {
        let world = Self { families };
        for machine in Machine::ALL {
            command::output(Command::new("ip").args(["netns", "add", machine.name()]))?;
        }
        world.connect_router(mtu)?;
        for machine in [Machine::Web, Machine::Resolver, Machine::Client] {
            world.connect(machine, mtu)?;
        }
        if families != Families::V4 {
            fabric::add_v6()?;
        }
        for node in nodes {
            if families != Families::V4 {
                node.add_v6()?;
                node.add_to_uplink(format!("route replace default via {ROUTER_V6} dev breth0"))?;
            }
            node.add_to_uplink(format!("route replace default via {ROUTER} dev breth0"))?;
        }
        Ok(world)
    }

    fn connect_router(&self, mtu: u32) -> Result<()> {
        let fabric = fabric::BRIDGE;
        command::output_with_input(
            Command::new("ip").args(["-batch", "-"]),
            &format!(
                "link add router mtu {mtu} type veth peer name wire mtu {mtu} netns router\n\
                 link set router master {fabric} up\n"
            ),
        )?;
        // As the nodes' links: what goes to a userspace datapath needs its checksum.
        command::output(Command::new("ethtool").args(["-K", "router", "tx", "off"]))?;
        let host = Machine::Router.host();
        self.shell(
            Machine::Router,
            &format!(
                "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
                 echo 1 > /proc/sys/net/ipv4/ip_forward
                 echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
                 ip link add beyond address 0a:00:00:00:00:02 mtu {mtu} type bridge
                 ip addr add {ROUTER}/24 dev wire; ip addr add {ROUTER_V6}/64 dev wire
                 ip addr add {BEYOND}{host}/24 dev beyond; ip addr add {BEYOND_V6}{host}/64 dev beyond
                 ip link set lo up; ip link set wire up; ip link set beyond up"
            ),
        )
        .map(drop)
    }

    fn connect(&self, machine: Machine, mtu: u32) -> Result<()> {
        let (name, host, router) = (machine.name(), machine.host(), Machine::Router.host());
        self.shell(
            Machine::Router,
            &format!(
                "ip link add {name} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {name}
                 ip link set {name} master beyond up"
            ),
        )?;
        self.shell(
            machine,
            &format!(
                "echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad
                 ip link set lo up; ip link set eth0 up
                 ip addr add {BEYOND}{host}/24 dev eth0; ip addr add {BEYOND_V6}{host}/64 dev eth0 nodad
                 ip route add default via {BEYOND}{router}; ip -6 route add default via {BEYOND_V6}{router}"
            ),
        )
        .map(drop)
    }

    /// The machine's addresses behind the router, one per family of the lab's pods.
    pub fn addresses(&self, machine: Machine) -> Vec<IpAddr> {
        let host = machine.host();
        self.of_families(&format!("{BEYOND}{host}"), &format!("{BEYOND_V6}{host}"))
    }

    /// The node's addresses on the wire, one per family of the lab's pods.
    pub fn of_node(&self, node: &Node) -> Vec<IpAddr> {
        self.of_families(&fabric::address(node.index), &fabric::address_v6(node.index))
    }

    fn of_families(&self, v4: &str, v6: &str) -> Vec<IpAddr> {
        let texts = match self.families {
            Families::V4 => vec![v4],
            Families::V6 => vec![v6],
            Families::Dual => vec![v4, v6],
        };
        texts
            .into_iter()
            .map(|text| text.parse().expect("the lab's addresses are addresses"))
            .collect()
    }

    /// Leads packets for `address` to `node`: an external address of a Service.
    pub fn announce(&self, address: IpAddr, node: &Node) -> Result<()> {
        let via = match address {
            IpAddr::V4(_) => fabric::address(node.index),
            IpAddr::V6(_) => fabric::address_v6(node.index),
        };
        let words = ["ip", "route", "replace", &address.to_string(), "via", &via];
        command::output(self.command(Machine::Router, words[0]).args(&words[1..])).map(drop)
    }

    /// Has the machine own another address, besides those of [`World::addresses`].
    pub fn give(&self, machine: Machine, address: IpAddr) -> Result<()> {
        // `nodad`: an IPv6 address would not be usable for about a second.
        self.shell(machine, &format!("ip addr add {address} dev lo nodad"))?;
        let (family, via) = match address {
            IpAddr::V4(_) => ("-4", BEYOND),
            IpAddr::V6(_) => ("-6", BEYOND_V6),
        };
        let host = machine.host();
        self.shell(Machine::Router, &format!("ip {family} route replace {address} via {via}{host}"))
            .map(drop)
    }

    /// Leads packets for `address` to the lab's own namespaces, where the central programs are.
    pub fn lead_to_lab(&self, address: IpAddr) -> Result<()> {
        let (family, via) = match address {
            IpAddr::V4(_) => ("-4", fabric::LAB_ADDRESS),
            IpAddr::V6(_) => ("-6", fabric::LAB_ADDRESS_V6),
        };
        // The packets leave by the link by which they have come. The router must not say so (IPv6
        // has no such setting): nodes are to know one way out.
        self.shell(
            Machine::Router,
            &format!(
                "echo 0 > /proc/sys/net/ipv4/conf/all/send_redirects
                 echo 0 > /proc/sys/net/ipv4/conf/wire/send_redirects
                 ip {family} route replace {address} via {via}"
            ),
        )
        .map(drop)
    }

    /// MTU of the router's link to the machines behind it: larger packets do not fit through, and
    /// their senders are told.
    pub fn narrow(&self, mtu: u32) -> Result<()> {
        // Of the router's own end: the machines go on sending as before.
        self.shell(Machine::Router, &format!("ip link set beyond mtu {mtu}")).map(drop)
    }

    /// Runs a shell script on a machine; it ends at its first failure.
    pub fn shell(&self, machine: Machine, script: &str) -> Result<String> {
        command::output(self.command(machine, "sh").args(["-euc", script]))
            .with_context(|| format!("on the {}", machine.name()))
    }

    /// A command on a machine, to be completed by the caller.
    pub fn command(&self, machine: Machine, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", machine.namespace())).arg("--").arg(program);
        command.env("PATH", prerequisites::search_path());
        command
    }
}
