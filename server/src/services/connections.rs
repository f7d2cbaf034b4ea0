//! Removes stale connections: those that Open vSwitch tracks itself, where its datapath is in user space, and
//! the kernel's. A failure changes nothing for new connections, so it is logged and the rest goes on.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use ovslog::LogRateLimit;
use podnet::{
    conntrack::{self, Stale, Translated},
    control_socket::ControlSocket,
};

/// How long ovs-vswitchd may take for one. It answers in milliseconds, unless it is busy with ten thousands
/// of connections; there will be another attempt.
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
        // What OVN does not translate is not for a Service there.
        let is_of_ovn = |stale: &&Stale| stale.address.is_some() || stale.endpoint.is_some();
        for one in stale.iter().filter(is_of_ovn) {
            let [original, reply] = tuples(one);
            let arguments: Vec<&str> =
                [&original, &reply].into_iter().flatten().map(String::as_str).collect();
            if let Err(error) = self.switch.ask("dpctl/flush-conntrack", &arguments, PATIENCE).await {
                self.failing.now(|times| {
                    tracing::warn!(
                        %error, times,
                        "ovs-vswitchd does not remove connections to endpoints that are gone"
                    )
                });
                break;
            }
        }
        if !conntrack::has_connections() {
            return;
        }
        match conntrack::flush_stale(stale).await {
            Ok(0) => {}
            Ok(removed) => tracing::debug!(removed, "removed tracked connections to endpoints that are gone"),
            Err(error) => self.failing.now(|times| {
                tracing::warn!(
                    %error, times,
                    "the kernel does not remove connections to endpoints that are gone"
                )
            }),
        }
    }
}

/// The translated UDP connections that there are. What cannot be asked is logged, and left out.
pub(super) async fn translated(switch: ControlSocket) -> BTreeSet<Translated> {
    let of_kernel =
        if conntrack::has_connections() { conntrack::translated().await } else { Ok(BTreeSet::new()) };
    let mut all = of_kernel.unwrap_or_else(|error| unknown("the kernel", &error));
    match of_switch(&switch).await {
        Ok(of_switch) => all.extend(of_switch),
        Err(error) => all.extend(unknown("ovs-vswitchd", &error)),
    }
    all
}

/// Those of the datapath in user space, if the switch has one. Another one has the kernel's.
async fn of_switch(switch: &ControlSocket) -> io::Result<BTreeSet<Translated>> {
    let datapaths = switch.ask("dpctl/dump-dps", &[], PATIENCE).await?;
    let Some(datapath) = datapaths.lines().map(str::trim).find(|line| line.starts_with("netdev@")) else {
        return Ok(BTreeSet::new());
    };
    let lines = switch.ask_at_length("dpctl/dump-conntrack", &[datapath], PATIENCE_FOR_ALL, LONGEST).await?;
    Ok(lines.lines().filter_map(read).collect())
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
        let value =
            |name: &str| tuple.split([',', ')']).find_map(|pair| Some(pair.strip_prefix(name)?.to_owned()));
        Some(SocketAddr::new(value(address)?.parse().ok()?, value(port)?.parse().ok()?))
    };
    let (to, by) = (part(original, "dst=", "dport=")?, part(reply, "src=", "sport=")?);
    (to != by).then_some(Translated { to, by })
}

/// The tuples of ovs-vswitchd(8), `dpctl/flush-conntrack`: of the first packet, and of the reply to it.
fn tuples(stale: &Stale) -> [Option<String>; 2] {
    let address = |direction: &str, address: IpAddr| match address {
        IpAddr::V4(v4) => format!("ct_nw_{direction}={v4},"),
        IpAddr::V6(v6) => format!("ct_ipv6_{direction}={v6},"),
    };
    let to = stale.address.map(|to| address("dst", to)).unwrap_or_default();
    let original = format!("{to}ct_nw_proto=17,ct_tp_dst={}", stale.port);
    let reply = stale.endpoint.map(|endpoint| {
        format!("{}ct_nw_proto=17,ct_tp_src={}", address("src", endpoint.ip()), endpoint.port())
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
        let pair = |to: &str, by: &str| Translated { to: to.parse().unwrap(), by: by.parse().unwrap() };
        assert_eq!(read(v4), Some(pair("10.96.0.12:9000", "10.244.1.3:50904")));
        assert_eq!(read(v6), Some(pair("[fd00:10:96::a]:53", "[fd00::3]:5353")));
        let untranslated = v4.replace("src=10.244.1.3", "src=10.96.0.12").replace("50904", "9000");
        assert_eq!(read(&untranslated), None);
        for other in ["", "udp,orig=(", &v4.replace("udp", "tcp"), "udp,orig=(src=a,dst=b),reply=(src=c)"] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn tuples_are_those_of_ovs_vswitchd() {
        let texts = |stale: Stale| tuples(&stale).into_iter().flatten().collect::<Vec<_>>();
        let service = Stale { address: Some([10, 96, 0, 10].into()), port: 53, endpoint: None };
        assert_eq!(texts(service), ["ct_nw_dst=10.96.0.10,ct_nw_proto=17,ct_tp_dst=53"]);
        let node_port =
            Stale { address: None, port: 30053, endpoint: Some("[fd00::5]:5353".parse().unwrap()) };
        assert_eq!(
            texts(node_port),
            ["ct_nw_proto=17,ct_tp_dst=30053", "ct_ipv6_src=fd00::5,ct_nw_proto=17,ct_tp_src=5353"]
        );
    }
}
