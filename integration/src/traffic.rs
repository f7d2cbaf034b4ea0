//! Packets between pods, and between pods and nodes: ping, TCP and UDP.

mod lasting;
mod raw;

use std::{
    ffi::OsStr,
    fmt,
    net::{IpAddr, SocketAddr},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    Lab, Node, Pod, command, eventually, executable,
    peer::{Echoes, PeerProcess, Reply, Report},
    world::Machine,
};

pub use lasting::{Drip, Lasting};
pub use raw::Counter;

/// Where traffic begins or ends.
#[derive(Debug, Clone, Copy)]
pub enum End<'a> {
    /// In a pod.
    Pod(&'a Pod),
    /// A process of a node itself, as in a pod on the host's network.
    Node(&'a Node),
    /// A machine beside the nodes, on the wire between them.
    Lab,
    /// A machine of the world outside.
    World(Machine),
}

impl fmt::Display for End<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Pod(pod) => write!(f, "pod {pod} of {}", pod.node),
            End::Node(node) => write!(f, "{}", node.name),
            End::Lab => write!(f, "the lab"),
            End::World(machine) => write!(f, "the {}", machine.name()),
        }
    }
}

impl Lab {
    /// Pings `to` from `from` until an answer comes, for 10 s at most: the first packets may be
    /// lost while addresses are resolved.
    pub fn ping(&self, from: &Pod, to: IpAddr) -> Result<()> {
        eventually(&format!("{} reaches {to}", from.name), Duration::from_secs(10), || {
            self.ping_once(from, to)
        })
    }

    /// Pings the gateway of the pod's subnet, which OVN answers for.
    pub fn reaches_gateway(&self, pod: &Pod) -> Result<()> {
        self.ping(pod, pod.gateways[0])
    }

    /// Checks that none of five pings is answered. Ping in the other direction first: silence alone
    /// proves nothing.
    ///
    /// # Errors
    /// If an answer comes.
    pub fn cannot_ping(&self, from: &Pod, to: IpAddr) -> Result<()> {
        let answers = (0..5).filter(|_| self.ping_once(from, to).is_ok()).count();
        ensure!(
            answers == 0,
            "{} reaches {to}, although it should not ({answers} of 5 pings)",
            from.name
        );
        Ok(())
    }

    /// Sends one ping with `size` bytes of data that must not be fragmented: `mtu - 28` fits into
    /// IPv4, `mtu
    /// - 48` into IPv6 (headers of IP and ICMP), and one byte more does not.
    pub fn ping_size(&self, from: &Pod, to: IpAddr, size: u32) -> Result<()> {
        let size = size.to_string();
        self.node_of(from)
            .run_in_pod(
                from,
                ["ping", "-M", "do", "-c", "1", "-W", "1", "-s", &size, &to.to_string()],
            )
            .map(drop)
    }

    fn ping_once(&self, from: &Pod, to: IpAddr) -> Result<()> {
        self.node_of(from)
            .run_in_pod(from, ["ping", "-n", "-c", "1", "-W", "0.3", &to.to_string()])
            .map(drop)
    }

    /// Sends `bytes` over TCP to the first address of `to`; length and checksum must arrive.
    pub fn tcp(&self, from: &Pod, to: &Pod, bytes: u64) -> Result<()> {
        self.tcp_to(from, to, to.address(), bytes)
    }

    /// The same to any address of `to`.
    pub fn tcp_to(&self, from: &Pod, to: &Pod, address: IpAddr, bytes: u64) -> Result<()> {
        self.tcp_between(&End::Pod(from), &End::Pod(to), address, bytes)
    }

    /// The same between any two places, over UDP: `count` datagrams and their echoes.
    pub fn udp_between(
        &self,
        from: &End<'_>,
        to: &End<'_>,
        address: IpAddr,
        count: u64,
    ) -> Result<Echoes> {
        let server = self.echo(to, address)?;
        let arguments = ["udp-send", &server.address.to_string(), "--count", &count.to_string()];
        PeerProcess::start(self.at(from)?.args(arguments))?.echoes()
    }

    /// The same with datagrams of that many bytes.
    pub fn udp_of_size(
        &self,
        from: &End<'_>,
        to: &End<'_>,
        address: IpAddr,
        count: u64,
        size: usize,
    ) -> Result<Echoes> {
        let server = self.echo(to, address)?;
        let (to, count, size) = (server.address.to_string(), count.to_string(), size.to_string());
        let mut sender = self.at(from)?;
        PeerProcess::start(sender.args(["udp-send", &to, "--count", &count, "--size", &size]))?
            .echoes()
    }

    /// Sends `bytes` over TCP to `address` of `to`.
    pub fn tcp_between(
        &self,
        from: &End<'_>,
        to: &End<'_>,
        address: IpAddr,
        bytes: u64,
    ) -> Result<()> {
        self.tcp_by(from, to, address, bytes, Ok)
    }

    /// Sends `bytes` over TCP to `address` of `to`, not directly but where `by` says: at a
    /// Service's address, once its load balancer knows the port.
    pub fn tcp_by(
        &self,
        from: &End<'_>,
        to: &End<'_>,
        address: IpAddr,
        bytes: u64,
        by: impl FnOnce(SocketAddr) -> Result<SocketAddr>,
    ) -> Result<()> {
        let mut server =
            PeerProcess::start(self.at(to)?.arg("tcp-serve").arg(address.to_string()))?;
        let by = by(server.address()?)?;
        command::output(self.at(from)?.args(["tcp-send", &by.to_string(), &bytes.to_string()]))
            .map(drop)
    }

    /// An end that sends datagrams back, until it is dropped.
    pub fn echo(&self, at: &End<'_>, address: IpAddr) -> Result<Echo> {
        let mut server = PeerProcess::start(self.at(at)?.arg("udp-echo").arg(address.to_string()))?;
        Ok(Echo { address: server.address()?, _server: server })
    }

    /// Sends a datagram to `to` every 5 ms from one socket, until [`Flow::stop`].
    pub fn flow_to(&self, from: &End<'_>, to: SocketAddr) -> Result<Flow> {
        let sender = PeerProcess::start(self.at(from)?.args(["udp-send", &to.to_string()]))?;
        Ok(Flow { sender, _server: None })
    }

    /// A server at that end whose connections get back what they send, until it is dropped.
    pub fn tcp_echo(&self, at: &End<'_>, address: SocketAddr) -> Result<Echo> {
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let mut server = PeerProcess::start(self.at(at)?.args(["tcp-echo", &ip, "--port", &port]))?;
        Ok(Echo { address: server.address()?, _server: server })
    }

    /// Asks each address once from there, by TCP and by UDP.
    ///
    /// # Errors
    /// The client cannot run.
    pub fn ask(
        &self,
        from: &End<'_>,
        tcp: &[SocketAddr],
        udp: &[SocketAddr],
    ) -> Result<[Vec<Reply>; 2]> {
        let mut peer = self.at(from)?;
        peer.arg("ask").stdin(Stdio::null());
        for (option, addresses) in [("--tcp", tcp), ("--udp", udp)] {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            if !addresses.is_empty() {
                peer.args([option, &addresses.join(",")]);
            }
        }
        let text = command::output(&mut peer)?;
        match serde_json::from_str(&text).with_context(|| text.clone())? {
            Report::Asked(replies) => Ok(replies),
            other => bail!("the client reports {other:?}"),
        }
    }

    /// Waits until each question from there is answered with the address that is expected, over TCP
    /// and UDP. The server names its own or its client's.
    pub fn answers(
        &self,
        what: &str,
        from: &End<'_>,
        expected: &[(SocketAddr, IpAddr)],
        within: Duration,
    ) -> Result<()> {
        let to: Vec<SocketAddr> = expected.iter().map(|(to, _)| *to).collect();
        eventually(what, within, || {
            for (protocol, replies) in ["TCP", "UDP"].iter().zip(self.ask(from, &to, &to)?) {
                for ((to, by), reply) in expected.iter().zip(replies) {
                    ensure!(
                        reply.address() == Some(*by),
                        "{protocol} to {to} from {from}: {reply:?}, and not {by}"
                    );
                }
            }
            Ok(())
        })
    }

    /// Asks each address from there for an SCTP association.
    ///
    /// # Errors
    /// The client cannot run, or it receives a packet with a wrong checksum.
    pub fn ask_sctp(&self, from: &End<'_>, addresses: &[SocketAddr]) -> Result<Vec<Reply>> {
        let mut peer = self.at(from)?;
        peer.arg("sctp-ask").args(addresses.iter().map(ToString::to_string)).stdin(Stdio::null());
        let text = command::output(&mut peer)?;
        match serde_json::from_str(&text).with_context(|| text.clone())? {
            Report::AskedBySctp(replies) => Ok(replies),
            other => bail!("the client reports {other:?}"),
        }
    }

    /// A command at one end of traffic: `integration peer`, to be completed.
    pub fn at(&self, end: &End<'_>) -> Result<Command> {
        let mut command = self.command_at(end, executable::of_package("integration")?);
        command.arg("peer");
        Ok(command)
    }

    /// A command in the network namespace of an end, to be completed.
    pub fn command_at(&self, end: &End<'_>, program: impl AsRef<OsStr>) -> Command {
        match end {
            End::Pod(pod) => self.node_of(pod).pod_command(pod, program),
            End::Node(node) => node.command(program),
            End::Lab => Command::new(program),
            End::World(machine) => self.world().command(*machine, program),
        }
    }

    /// Pings `to` from outside. Each ping is answered, and once: two nodes may have the address.
    pub fn ping_from_world(&self, from: Machine, to: IpAddr) -> Result<()> {
        let words = ["-n", "-c", "3", "-i", "0.2", "-W", "1", &to.to_string()];
        let said = command::output(self.command_at(&End::World(from), "ping").args(words))?;
        ensure!(!said.contains("DUP!") && said.contains("3 received"), "{said}");
        Ok(())
    }

    /// Pings `to` from the node itself until an answer comes, for 10 s at most.
    pub fn ping_from_node(&self, from: &Node, to: IpAddr) -> Result<()> {
        let once = || from.run(["ping", "-n", "-c", "1", "-W", "0.3", &to.to_string()]).map(drop);
        eventually(&format!("{} itself reaches {to}", from.name), Duration::from_secs(10), once)
    }

    /// Sends `count` datagrams of `size` bytes to `to`, which sends them back; counts those that
    /// come back whole.
    pub fn udp(&self, from: &Pod, to: &Pod, count: u64, size: usize) -> Result<Echoes> {
        self.udp_of_size(&End::Pod(from), &End::Pod(to), to.address(), count, size)
    }

    /// Sends a datagram every 5 ms from `from` to `to` and back, until [`Flow::stop`]: it shows
    /// whether a restart loses packets.
    pub fn flow(&self, from: &Pod, to: &Pod) -> Result<Flow> {
        let server = self.echo(&End::Pod(to), to.address())?;
        let flow = self.flow_to(&End::Pod(from), server.address)?;
        Ok(Flow { _server: Some(server), ..flow })
    }
}

/// Traffic that goes on in the background.
#[derive(Debug)]
pub struct Flow {
    sender: PeerProcess,
    _server: Option<Echo>,
}

/// An end that sends back what it gets.
#[derive(Debug)]
pub struct Echo {
    /// Where it listens.
    pub address: SocketAddr,
    _server: PeerProcess,
}

impl Flow {
    /// Ends the traffic; how many datagrams were sent, and how many came back.
    pub fn stop(mut self) -> Result<Echoes> {
        self.sender.end_input();
        self.sender.echoes()
    }
}
