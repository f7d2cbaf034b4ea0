//! A pod with NET_RAW, which sends any frame.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Pod,
    frame::{
        BROADCAST, Follows, Stations, UDP, arp, datagram, ethernet, fragment, geneve, neighbour,
        octets, router, syn, udp,
    },
    tenants::long_forms,
    traffic::End,
    world::Machine,
};
use serde_json::json;

use crate::tenants::{
    policies::{about, policy},
    site::{Body, EVIL, Site},
};

pub(crate) const ROWS: &[(u8, Body)] = &[
    (11, false_addresses),
    (12, false_neighbours),
    (13, false_routers),
    (14, to_the_hosts_end),
    (15, to_everybody),
    (16, who_has_the_management_port),
    (86, through_the_hosts_end),
    (87, false_addresses_to_the_world),
    (88, fragments_to_a_closed_pod),
    (89, other_kinds_of_frames),
    (90, a_tunnel_to_another_node),
    (91, connections_without_number),
    (92, addresses_of_nobody),
    (93, floods_of_broadcasts),
];

/// What frames of a row have somewhere.
const MARK: &[u8] = b"MARK-OF-THE-ROW";
/// How often each frame is sent.
const TIMES: u32 = 5;

/// The attacker's pod, and what it knows of its network.
pub(crate) struct Raw {
    pub(crate) pod: Pod,
    pub(crate) mac: [u8; 6],
    pub(crate) address: IpAddr,
    pub(crate) v6: IpAddr,
    /// OVN's router.
    pub(crate) gateway: IpAddr,
    pub(crate) gateway_mac: [u8; 6],
}

impl Raw {
    /// On the first node.
    pub(crate) fn start(site: &Site<'_>) -> Result<Self> {
        let pod = site.attached(EVIL, "raw", 0)?;
        let (address, v6) = (pod.addresses[0].addr(), pod.addresses[1].addr());
        let gateway = integration::subnet::gateway(&pod.addresses[0].trunc()).addr();
        let gateway_mac = octets(&integration::subnet::mac(gateway))?;
        Ok(Self { mac: octets(&pod.mac)?, address, v6, gateway, gateway_mac, pod })
    }

    pub(crate) fn send(&self, site: &Site<'_>, frames: &[Vec<u8>]) -> Result<u64> {
        site.lab.send_frames(&End::Pod(&self.pod), "eth0", frames, TIMES)
    }

    /// A datagram for the bystander's pod on the second node, in a frame of OVN's router, in a
    /// tunnel's packets: numbers of networks and ports are small.
    pub(crate) fn tunnelled(
        &self,
        site: &Site<'_>,
        from: (IpAddr, u16),
        to: (IpAddr, u16),
    ) -> Result<Vec<Vec<u8>>> {
        let there = &site.bystander().there;
        let gateway = integration::subnet::mac(
            integration::subnet::gateway(&there.addresses[0].trunc()).addr(),
        );
        let inside = Stations { from: octets(&gateway)?, to: octets(&there.mac)? };
        let inner =
            udp(inside, (site.bystander().closed.address(), 4000), (there.address(), 8080), MARK);
        let of_network =
            |network| udp(self.to(self.gateway_mac), from, to, &geneve(network, &inner));
        Ok((1..=16).map(of_network).collect())
    }

    /// From itself to that station.
    pub(crate) fn to(&self, to: [u8; 6]) -> Stations {
        Stations { from: self.mac, to }
    }
}

/// Counts what each of the bystander's pods gets with the mark while `act` sends.
pub(crate) fn at_bystanders(
    site: &Site<'_>,
    act: impl FnOnce() -> Result<u64>,
) -> Result<(u64, [u64; 3])> {
    let bystander = site.bystander();
    let pods = [&bystander.here, &bystander.there, &bystander.closed];
    let counters = pods.map(|pod| site.lab.sniffing(&End::Pod(pod), "eth0", MARK));
    let counters = counters.into_iter().collect::<Result<Vec<_>>>()?;
    let sent = act()?;
    site.lab.ping(&bystander.here, bystander.there.address())?;
    let mut got = [0; 3];
    for (got, counter) in got.iter_mut().zip(counters) {
        *got = counter.end()?;
    }
    Ok((sent, got))
}

pub(crate) fn none(sent: u64, got: &[u64]) -> Result<String> {
    ensure!(sent > 0, "nothing was sent");
    ensure!(got.iter().all(|got| *got == 0), "of {sent} frames {got:?} arrived");
    Ok(format!("0 of {sent} frames arrived"))
}

fn false_addresses(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    let bystander = site.bystander();
    let here = octets(&bystander.here.mac)?;
    let (own, victim) = ((raw.address, 4000), (bystander.here.address(), 8080));
    // True ones arrive: the rest says something.
    let (_, control) =
        at_bystanders(site, || raw.send(site, &[udp(raw.to(here), own, victim, MARK)]))?;
    ensure!(control[0] > 0, "not even true frames arrive");
    let from = |mac| Stations { from: mac, to: here };
    let there = bystander.there.address();
    let of_nobody: IpAddr = [8, 8, 8, 8].into();
    let by_router = |address| udp(raw.to(raw.gateway_mac), (address, 4000), (there, 8080), MARK);
    let v6 = |mac, address| {
        udp(from(mac), (address, 4000), (bystander.here.addresses[1].addr(), 8080), MARK)
    };
    let frames = [
        udp(from(octets(&bystander.closed.mac)?), own, victim, MARK),
        udp(from([2, 0, 0, 0, 0, 9]), own, victim, MARK),
        udp(from(raw.mac), (bystander.closed.address(), 4000), victim, MARK),
        udp(from(raw.mac), (raw.gateway, 4000), victim, MARK),
        udp(from(raw.mac), (of_nobody, 4000), victim, MARK),
        by_router(bystander.here.address()),
        by_router(of_nobody),
        v6(raw.mac, bystander.closed.addresses[1].addr()),
        v6(octets(&bystander.closed.mac)?, raw.v6),
    ];
    let (sent, got) = at_bystanders(site, || raw.send(site, &frames))?;
    none(sent, &got)
}

fn false_neighbours(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    let bystander = site.bystander();
    let (here, closed) = (&bystander.here, &bystander.closed);
    // It knows its neighbours first.
    site.lab.ping(here, raw.gateway)?;
    let mut frames = Vec::new();
    for address in [closed.address(), bystander.there.address(), raw.gateway] {
        let (v4, to) = (v4(address)?, v4(here.address())?);
        for station in [BROADCAST, octets(&here.mac)?] {
            frames.push(arp(raw.to(station), 2, (raw.mac, v4), to));
            frames.push(arp(raw.to(station), 1, (raw.mac, v4), v4));
        }
    }
    for claimed in [
        closed.addresses[1].addr(),
        integration::subnet::gateway(&here.addresses[1].trunc()).addr(),
    ] {
        if let (IpAddr::V6(claimed), IpAddr::V6(to)) = (claimed, here.addresses[1].addr()) {
            frames.push(neighbour(raw.to(octets(&here.mac)?), claimed, to, claimed, raw.mac));
            let all = "ff02::1".parse()?;
            frames.push(neighbour(
                raw.to([0x33, 0x33, 0, 0, 0, 1]),
                claimed,
                all,
                claimed,
                raw.mac,
            ));
        }
    }
    let sent = raw.send(site, &frames)?;
    let known = site.first().run_in_pod(here, ["ip", "neigh"])?;
    let wrong = known
        .lines()
        .filter(|line| line.contains(&raw.pod.mac) && !line.contains(&raw.address.to_string()))
        .count();
    ensure!(wrong == 0, "{known}");
    site.lab.ping(here, raw.gateway)?;
    Ok(format!("{sent} frames sent, 0 entries of neighbours changed"))
}

fn v4(address: IpAddr) -> Result<Ipv4Addr> {
    match address {
        IpAddr::V4(v4) => Ok(v4),
        IpAddr::V6(v6) => anyhow::bail!("{v6} is not of IPv4"),
    }
}

fn false_routers(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    let here = &site.bystander().here;
    let before = routes(site, here)?;
    let link_local = raw.pod.mac.parse::<contract::mac::Mac>()?.link_local();
    let prefix = "2001:db8:bad::".parse()?;
    let offer = [&[2, 1, 6, 0][..], &[0; 232], &[99, 130, 83, 99, 53, 1, 2, 255], MARK].concat();
    let everybody: IpAddr = [255; 4].into();
    let frames = [
        router(raw.to([0x33, 0x33, 0, 0, 0, 1]), link_local, "ff02::1".parse()?, prefix),
        router(raw.to(octets(&here.mac)?), link_local, "ff02::1".parse()?, prefix),
        udp(raw.to(BROADCAST), (raw.address, 67), (everybody, 68), &offer),
        udp(raw.to(octets(&here.mac)?), (raw.gateway, 67), (everybody, 68), &offer),
    ];
    let (sent, got) = at_bystanders(site, || raw.send(site, &frames))?;
    let after = routes(site, here)?;
    ensure!(before == after, "before:\n{before}\nafter:\n{after}");
    // A broadcast of its own address is its right, and heard in its own network at most.
    Ok(format!(
        "{sent} frames sent, no route or address changed, DHCP offers at bystanders {got:?}"
    ))
}

fn routes(site: &Site<'_>, pod: &Pod) -> Result<String> {
    let text = site.first().run_in_pod(pod, ["sh", "-euc", "ip -6 route; ip -o -6 addr"])?;
    Ok(text
        .lines()
        .map(|line| line.split(" expires").next().unwrap_or(line).to_owned() + "\n")
        .collect())
}

/// Has a policy forbid the pod everything.
fn jailed(site: &Site<'_>, raw: &Raw) -> Result<()> {
    let spec = json!({"podSelector": about("raw"), "policyTypes": ["Ingress", "Egress"]});
    site.put(&policy(EVIL, "jail", &spec))?;
    site.is_closed(&End::Pod(&raw.pod), &[site.bystander().open()])
}

/// Counts datagrams with the mark that processes of the first node hear on a port of all addresses.
fn at_host(site: &Site<'_>, port: u16, act: impl FnOnce() -> Result<u64>) -> Result<(u64, u64)> {
    let any: SocketAddr = SocketAddr::new([0_u16; 8].into(), port);
    let counter = site.lab.hearing(&End::Node(site.first()), any, MARK)?;
    let sent = act()?;
    site.lab.ping(&site.bystander().here, site.bystander().there.address())?;
    Ok((sent, counter.end()?))
}

/// The host's addresses of the first node: on the wire, and in the pods' network.
fn of_host(site: &Site<'_>, raw: &Raw) -> Vec<IpAddr> {
    let management = |net: &ipnet::IpNet| integration::subnet::host(&net.trunc(), 2).addr();
    let own = raw.pod.addresses.iter().map(management);
    site.lab.world().of_node(site.first()).into_iter().chain(own).collect()
}

fn hosts_end(site: &Site<'_>, raw: &Raw) -> Result<[u8; 6]> {
    let file = format!("/sys/class/net/{}/address", raw.pod.host_interface());
    octets(&site.first().run(["cat", &file]).context("the host's end")?)
}

fn to_the_hosts_end(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    jailed(site, &raw)?;
    let station = raw.to(hosts_end(site, &raw)?);
    let frames: Vec<Vec<u8>> = of_host(site, &raw)
        .into_iter()
        .map(|host| {
            udp(
                station,
                (if host.is_ipv4() { raw.address } else { raw.v6 }, 4000),
                (host, 9999),
                MARK,
            )
        })
        .collect();
    let (sent, heard) = at_host(site, 9999, || raw.send(site, &frames))?;
    none(sent, &[heard])
}

fn to_everybody(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    jailed(site, &raw)?;
    let mut frames = Vec::new();
    let stations = [BROADCAST, [0x01, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]];
    for host in of_host(site, &raw) {
        let others = if host.is_ipv4() {
            vec![raw.address, site.bystander().here.address(), [8, 8, 8, 8].into(), host]
        } else {
            vec![raw.v6, site.bystander().here.addresses[1].addr(), "2001:db8::8".parse()?]
        };
        for from in others {
            frames.extend(stations.map(|to| udp(raw.to(to), (from, 4000), (host, 9998), MARK)));
        }
    }
    let everybody: IpAddr = [255; 4].into();
    let group: IpAddr = [224, 0, 0, 1].into();
    frames.push(udp(raw.to(BROADCAST), (raw.address, 4000), (everybody, 9998), MARK));
    frames.push(udp(raw.to(stations[1]), (raw.address, 4000), (group, 9998), MARK));
    frames.push(udp(raw.to(stations[2]), (raw.v6, 4000), ("ff02::1".parse()?, 9998), MARK));
    let (sent, heard) = at_host(site, 9998, || raw.send(site, &frames))?;
    none(sent, &[heard])
}

fn who_has_the_management_port(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    let management = integration::subnet::host(&raw.pod.addresses[0].trunc(), 2).addr();
    let question = arp(raw.to(BROADCAST), 1, (raw.mac, v4(raw.address)?), v4(management)?);
    // In an answer the address that was asked for is that of the sender, and the target follows.
    let mark = [&v4(management)?.octets()[..], &raw.mac].concat();
    let answers = site.lab.sniffing(&End::Pod(&raw.pod), "eth0", &mark)?;
    site.lab.send_frames(&End::Pod(&raw.pod), "eth0", &[question], 1)?;
    site.lab.ping(&raw.pod, raw.gateway)?;
    let answers = answers.end()?;
    ensure!(answers == 1, "{answers} answers");
    Ok("1 answer".to_owned())
}

pub(crate) fn through_the_hosts_end(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    jailed(site, &raw)?;
    let station = raw.to(hosts_end(site, &raw)?);
    let world = site.lab.world();
    let web = world.addresses(Machine::Web)[0];
    let to = [
        site.bystander().here.address(),
        site.bystander().there.address(),
        web,
        world.of_node(site.second())[0],
    ];
    let frames: Vec<Vec<u8>> =
        to.into_iter().map(|to| udp(station, (raw.address, 4000), (to, 8080), MARK)).collect();
    let outside = site.lab.sniffing(&End::World(Machine::Web), "eth0", MARK)?;
    let other = site.lab.sniffing(&End::Node(site.second()), "eth0", MARK)?;
    let (sent, got) = at_bystanders(site, || raw.send(site, &frames))?;
    none(sent, &[&got[..], &[outside.end()?, other.end()?]].concat())
}

pub(crate) fn false_addresses_to_the_world(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    let web = site.lab.world().addresses(Machine::Web)[0];
    let station = raw.to(raw.gateway_mac);
    site.lab.ping(&raw.pod, web)?;
    let froms: [IpAddr; 4] = [
        site.bystander().here.address(),
        [8, 8, 8, 8].into(),
        site.lab.world().of_node(site.first())[0],
        [10, 96, 0, 1].into(),
    ];
    let frames: Vec<Vec<u8>> =
        froms.into_iter().map(|from| udp(station, (from, 4000), (web, 8080), MARK)).collect();
    let outside = site.lab.sniffing(&End::World(Machine::Web), "eth0", MARK)?;
    let sent = raw.send(site, &frames)?;
    site.lab.ping(&raw.pod, web)?;
    none(sent, &[outside.end()?])
}

fn fragments_to_a_closed_pod(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    let (closed, open) = (&site.bystander().closed, &site.bystander().here);
    let station = |pod: &Pod| anyhow::Ok(raw.to(octets(&pod.mac)?));
    let mut frames = Vec::new();
    let (from, to) = (v4(raw.address)?, v4(closed.address())?);
    let whole = datagram((raw.address, 4000), (closed.address(), 8080), &MARK.repeat(10));
    let tiny: Vec<&[u8]> = whole.chunks(8).collect();
    for (number, part) in tiny.iter().enumerate() {
        let offset = u16::try_from(8 * number)?;
        let follows = if number + 1 < tiny.len() { Follows::More } else { Follows::Nothing };
        frames.push(fragment(station(closed)?, (from, to), UDP, part, offset, follows));
    }
    // Later ones alone, and ones that overlap.
    frames.push(fragment(station(closed)?, (from, to), UDP, MARK, 64, Follows::Nothing));
    frames.push(fragment(station(closed)?, (from, to), UDP, &whole[..64], 0, Follows::More));
    frames.push(fragment(
        station(closed)?,
        (from, to),
        UDP,
        &[&MARK[..8], &MARK[..8]].concat(),
        0,
        Follows::More,
    ));
    site.lab.ping(open, raw.address)?;
    let (sent, got) = at_bystanders(site, || raw.send(site, &frames))?;
    none(sent, &got)
}

fn other_kinds_of_frames(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    let here = octets(&site.bystander().here.mac)?;
    let inner =
        udp(raw.to(here), (raw.address, 4000), (site.bystander().here.address(), 8080), MARK);
    let tagged = |tag: u8| [&[0, tag, 0x08, 0x00][..], &inner[14..]].concat();
    let stations = [raw.to(here), raw.to(BROADCAST)];
    let mut frames = Vec::new();
    for station in stations {
        frames.push(ethernet(station, 0x8100, &tagged(0)));
        frames.push(ethernet(station, 0x8100, &tagged(7)));
        frames.push(ethernet(station, 0x88a8, &[&[0, 7, 0x81, 0x00][..], &tagged(8)].concat()));
        frames.push(ethernet(station, 0x8847, &[&[0, 0, 0x10, 0x40][..], &inner[14..]].concat()));
    }
    // LLDP, spanning tree, pauses, and a size instead of a kind.
    for to in [
        [0x01, 0x80, 0xc2, 0, 0, 0x0e],
        [0x01, 0x80, 0xc2, 0, 0, 0],
        [0x01, 0x80, 0xc2, 0, 0, 0x01],
    ] {
        frames.push(ethernet(raw.to(to), 0x88cc, MARK));
        frames.push(ethernet(raw.to(to), 0x0026, MARK));
    }
    let wire = site.lab.sniffing(&End::World(Machine::Router), "wire", MARK)?;
    let (sent, got) = at_bystanders(site, || raw.send(site, &frames))?;
    none(sent, &[&got[..2], &[wire.end()?]].concat())
}

pub(crate) fn a_tunnel_to_another_node(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    let [first, second] = [site.first(), site.second()].map(|node| site.lab.world().of_node(node));
    let own = |to: &IpAddr| if to.is_ipv4() { raw.address } else { raw.v6 };
    let mut frames = Vec::new();
    for to in second.iter().chain(&first) {
        frames.extend(raw.tunnelled(site, (own(to), 50_000), (*to, 6081))?);
    }
    // Not even on the wire: another node would have to know whose it is.
    let wire = site.lab.sniffing(&End::Node(site.second()), "eth0", MARK)?;
    let (sent, got) = at_bystanders(site, || raw.send(site, &frames))?;
    none(sent, &[&got[..], &[wire.end()?]].concat())?;
    // A later fragment has no port.
    let (from, to) = (v4(raw.address)?, v4(second[0])?);
    let stations = raw.to(raw.gateway_mac);
    let whole = &raw.tunnelled(site, (raw.address, 50_000), (second[0], 6081))?[0][34..];
    let (head, rest) = whole.split_at(24);
    let fragments = [
        fragment(stations, (from, to), UDP, head, 0, Follows::More),
        fragment(stations, (from, to), UDP, rest, 24, Follows::Nothing),
    ];
    let (in_fragments, got) = at_bystanders(site, || raw.send(site, &fragments))?;
    none(sent + in_fragments, &got)
}

fn first_packets(raw: &Raw, number: u32, to: impl Fn(u32) -> (IpAddr, u16)) -> Vec<Vec<u8>> {
    let port = |number: u32| u16::try_from(1024 + number % 60_000).expect("a port");
    (0..number)
        .map(|number| syn(raw.to(raw.gateway_mac), (raw.address, port(number)), to(number)))
        .collect()
}

fn connections_without_number(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    let number = if long_forms() { 50_000 } else { 5_000 };
    let there = site.bystander().there.address();
    let frames = first_packets(&raw, number, |number| {
        (there, u16::try_from(1 + number % 50_000).expect("a port"))
    });
    let sent = site.lab.send_frames(&End::Pod(&raw.pod), "eth0", &frames, 1)?;
    Ok(format!("{sent} first packets of connections"))
}

fn addresses_of_nobody(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    let number = if long_forms() { 20_000 } else { 3_000 };
    let frames = first_packets(&raw, number, |number| {
        let [_, _, third, fourth] = number.to_be_bytes();
        ([10, 244, 1 + third % 2, fourth].into(), 80)
    });
    let sent = site.lab.send_frames(&End::Pod(&raw.pod), "eth0", &frames, 1)?;
    Ok(format!("{sent} packets to addresses of two subnets, most of which nobody has"))
}

fn floods_of_broadcasts(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    let number = if long_forms() { 20_000 } else { 3_000 };
    let question = |number: u32| {
        let [_, _, third, fourth] = number.to_be_bytes();
        anyhow::Ok(arp(
            raw.to(BROADCAST),
            1,
            (raw.mac, v4(raw.address)?),
            [10, 244, third, fourth].into(),
        ))
    };
    let frames = (0..number).map(question).collect::<Result<Vec<_>>>()?;
    let sent = site.lab.send_frames(&End::Pod(&raw.pod), "eth0", &frames, 1)?;
    Ok(format!("{sent} questions of ARP"))
}
