//! Removes stale connections: those that Open vSwitch tracks itself, where its datapath is in user
//! space, and the kernel's. A failure changes nothing for new connections, so it is logged and the
//! rest goes on.

use std::{
    collections::{BTreeSet, HashSet},
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use ovslog::LogRateLimit;
use podnet::{
    conntrack::{self, Stale, StaleEnd, Translated},
    control_socket::ControlSocket,
};

use crate::own_addresses;

/// How long ovs-vswitchd may take for one. It answers in milliseconds, unless it is busy with ten
/// thousands of connections; there will be another attempt.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Connections {
    pub(super) switch: ControlSocket,
    pub(super) failing: LogRateLimit,
}

/// How long ovs-vswitchd may take for all of its connections.
const PATIENCE_FOR_ALL: Duration = Duration::from_secs(10);
/// Bytes of its answer: 150,000 connections. A longer one is not read to its end.
const LONGEST: usize = 32 << 20;

impl Connections {
    pub(super) async fn remove(&mut self, stale: &[Stale]) {
        let needs_hosts = stale.iter().any(is_at_hosts);
        let hosts = if needs_hosts { addresses_of_host().await } else { BTreeSet::new() };
        let stale: Vec<Stale> = stale.iter().flat_map(|one| at_hosts(one, &hosts)).collect();
        let with_datapath = match datapath(&self.switch).await {
            // The kernel's datapath has the kernel's connections. Of these, ovs-vswitchd would read
            // all for each that is stale, and forward nothing new meanwhile.
            Ok(None) => &[][..],
            Ok(Some(_)) => &stale,
            Err(error) => {
                self.tell(&error);
                &[]
            }
        };
        for one in with_datapath {
            let [original, reply] = tuples(one);
            let arguments: Vec<&str> =
                [&original, &reply].into_iter().flatten().map(String::as_str).collect();
            if let Err(error) = self.switch.ask("dpctl/flush-conntrack", &arguments, PATIENCE).await
            {
                self.tell(&error);
                break;
            }
        }
        if !conntrack::has_connections() {
            return;
        }
        match conntrack::flush_stale(&stale).await {
            Ok(0) => {}
            Ok(removed) => {
                tracing::debug!(removed, "removed tracked connections to endpoints that are gone")
            }
            Err(error) => self.failing.now(|times| {
                tracing::warn!(
                    %error, times,
                    "the kernel does not remove connections to endpoints that are gone"
                )
            }),
        }
    }

    fn tell(&mut self, error: &io::Error) {
        self.failing.now(|times| {
            tracing::warn!(
                %error, times,
                "ovs-vswitchd does not remove connections to endpoints that are gone"
            )
        });
    }
}

/// Connections to a node port from before there was one lead to the host itself, at any of its
/// addresses. Others with the same port have nothing to do with it: those of pods to another
/// machine.
fn at_hosts(stale: &Stale, hosts: &BTreeSet<IpAddr>) -> Vec<Stale> {
    if !is_at_hosts(stale) {
        return vec![*stale];
    }
    hosts.iter().map(|host| Stale { address: Some(*host), ..*stale }).collect()
}

fn is_at_hosts(stale: &Stale) -> bool {
    stale.address.is_none() && stale.end == StaleEnd::Itself
}

async fn addresses_of_host() -> BTreeSet<IpAddr> {
    let addresses = own_addresses::read().await.unwrap_or_else(|error| {
        tracing::warn!(%error, "this host's addresses are unknown: a UDP client of a new node port may wait");
        HashSet::new()
    });
    addresses.into_iter().collect()
}

/// The translated UDP connections that there are. What cannot be asked is logged, and left out.
pub(super) async fn translated(switch: ControlSocket) -> BTreeSet<Translated> {
    let of_kernel = if conntrack::has_connections() {
        conntrack::translated().await
    } else {
        Ok(BTreeSet::new())
    };
    let mut all = of_kernel.unwrap_or_else(|error| unknown("the kernel", &error));
    match of_switch(&switch).await {
        Ok(of_switch) => all.extend(of_switch),
        Err(error) => all.extend(unknown("ovs-vswitchd", &error)),
    }
    all
}

/// Those of the datapath in user space, if the switch has one. Another one has the kernel's.
async fn of_switch(switch: &ControlSocket) -> io::Result<BTreeSet<Translated>> {
    let Some(datapath) = datapath(switch).await? else { return Ok(BTreeSet::new()) };
    let lines = switch
        .ask_at_length("dpctl/dump-conntrack", &[&datapath], PATIENCE_FOR_ALL, LONGEST)
        .await?;
    Ok(lines.lines().filter_map(read).collect())
}

/// The switch's datapath in user space, if it has one: that one tracks connections by itself.
async fn datapath(switch: &ControlSocket) -> io::Result<Option<String>> {
    let datapaths = switch.ask("dpctl/dump-dps", &[], PATIENCE).await?;
    Ok(datapaths.lines().map(str::trim).find(|line| line.starts_with("netdev@")).map(str::to_owned))
}

fn unknown(tracker: &str, error: &io::Error) -> BTreeSet<Translated> {
    tracing::warn!(
        %error, tracker,
        "connections are unknown: a UDP client may go on sending to an endpoint that went while this server \
         was away"
    );
    BTreeSet::new()
}

/// A line of ovs-vswitchd(8), `dpctl/dump-conntrack`, if it is about a translated UDP connection:
/// `udp,orig=(src=10.244.1.3,dst=10.96.0.10,sport=4000,dport=53),reply=(src=10.244.1.4,dst=…,sport=5353,…),…`.
fn read(line: &str) -> Option<Translated> {
    let (original, reply) = line.strip_prefix("udp,orig=(")?.split_once("),reply=(")?;
    let part = |tuple: &str, address: &str, port: &str| {
        let value = |name: &str| {
            tuple.split([',', ')']).find_map(|pair| Some(pair.strip_prefix(name)?.to_owned()))
        };
        Some(SocketAddr::new(value(address)?.parse().ok()?, value(port)?.parse().ok()?))
    };
    let (to, by) = (part(original, "dst=", "dport=")?, part(reply, "src=", "sport=")?);
    (to != by).then_some(Translated { to, by })
}

/// The tuples of ovs-vswitchd(8), `dpctl/flush-conntrack`: of the first packet, and of the reply to
/// it.
fn tuples(stale: &Stale) -> [Option<String>; 2] {
    let address = |direction: &str, address: IpAddr| match address {
        IpAddr::V4(v4) => format!("ct_nw_{direction}={v4},"),
        IpAddr::V6(v6) => format!("ct_ipv6_{direction}={v6},"),
    };
    let to = stale.address.map(|to| address("dst", to)).unwrap_or_default();
    let original = format!("{to}ct_nw_proto=17,ct_tp_dst={}", stale.port);
    let from = match stale.end {
        StaleEnd::Endpoint(endpoint) => Some(endpoint),
        StaleEnd::Any => None,
        StaleEnd::Itself => stale.address.map(|to| SocketAddr::new(to, stale.port)),
    };
    let reply = from.map(|from| {
        format!("{}ct_nw_proto=17,ct_tp_src={}", address("src", from.ip()), from.port())
    });
    [Some(original), reply]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translated_connections_are_read_as_ovs_vswitchd_writes_them() {
        let v4 = "udp,orig=(src=10.244.2.2,dst=10.96.0.12,sport=47000,dport=9000),\
                  reply=(src=10.244.1.3,dst=10.244.2.2,sport=50904,dport=47000),zone=8,mark=2";
        let v6 = "udp,orig=(src=fd00::2,dst=fd00:10:96::a,sport=47000,dport=53),\
                  reply=(src=fd00::3,dst=fd00::2,sport=5353,dport=47000),zone=8";
        let pair =
            |to: &str, by: &str| Translated { to: to.parse().unwrap(), by: by.parse().unwrap() };
        assert_eq!(read(v4), Some(pair("10.96.0.12:9000", "10.244.1.3:50904")));
        assert_eq!(read(v6), Some(pair("[fd00:10:96::a]:53", "[fd00::3]:5353")));
        let untranslated = v4.replace("src=10.244.1.3", "src=10.96.0.12").replace("50904", "9000");
        assert_eq!(read(&untranslated), None);
        for other in
            ["", "udp,orig=(", &v4.replace("udp", "tcp"), "udp,orig=(src=a,dst=b),reply=(src=c)"]
        {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn tuples_are_those_of_ovs_vswitchd() {
        let texts = |stale: Stale| tuples(&stale).into_iter().flatten().collect::<Vec<_>>();
        let service = Stale { address: Some([10, 96, 0, 10].into()), port: 53, end: StaleEnd::Any };
        assert_eq!(texts(service), ["ct_nw_dst=10.96.0.10,ct_nw_proto=17,ct_tp_dst=53"]);
        let node_port = Stale {
            address: None,
            port: 30053,
            end: StaleEnd::Endpoint("[fd00::5]:5353".parse().unwrap()),
        };
        assert_eq!(
            texts(node_port),
            ["ct_nw_proto=17,ct_tp_dst=30053", "ct_ipv6_src=fd00::5,ct_nw_proto=17,ct_tp_src=5353"]
        );
    }

    /// A new node port ended connections of pods to the same port of other machines.
    #[test]
    fn what_is_not_translated_to_a_node_port_is_at_an_address_of_this_host() {
        let hosts = ["192.0.2.7", "2001:db8::7"].map(|text| text.parse().unwrap()).into();
        let node_port = Stale { address: None, port: 30053, end: StaleEnd::Itself };
        let texts = at_hosts(&node_port, &hosts)
            .iter()
            .map(|stale| tuples(stale).map(Option::unwrap))
            .collect::<Vec<_>>();
        assert_eq!(
            texts,
            [
                [
                    "ct_nw_dst=192.0.2.7,ct_nw_proto=17,ct_tp_dst=30053",
                    "ct_nw_src=192.0.2.7,ct_nw_proto=17,ct_tp_src=30053"
                ],
                [
                    "ct_ipv6_dst=2001:db8::7,ct_nw_proto=17,ct_tp_dst=30053",
                    "ct_ipv6_src=2001:db8::7,ct_nw_proto=17,ct_tp_src=30053",
                ],
            ]
        );
        let other = Stale { address: Some([10, 96, 0, 10].into()), ..node_port };
        assert_eq!(at_hosts(&other, &hosts), [other]);
    }
}
