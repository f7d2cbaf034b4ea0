//! A machine on the nodes' layer 2: the world's router, which sends any frame on their wire.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Node,
    frame::{BROADCAST, Stations, arp, geneve, octets, syn, udp},
    traffic::End,
    world::Machine,
};

use crate::tenants::{
    bystander::PORT,
    site::{Body, Site},
};

pub(crate) const ROWS: &[(u8, Body)] = &[
    (36, a_route_to_a_closed_pod),
    (37, a_route_to_anothers_closed_pod),
    (38, from_a_pods_address),
    (39, a_tunnel_of_nobody),
    (40, a_tunnel_of_a_node),
    (41, addresses_inside),
    (42, every_port_of_a_node),
    (43, connections_without_number),
    (44, the_nodes_address),
];

const NEIGHBOUR: End<'_> = End::World(Machine::Router);
/// Its interface on the wire.
const WIRE: &str = "wire";
/// What its frames have somewhere.
const MARK: &[u8] = b"MARK-OF-NEIGHBOUR";
const TIMES: u32 = 5;

fn stations(site: &Site<'_>, node: &Node) -> Result<Stations> {
    let to = octets(&node.run(["cat", "/sys/class/net/breth0/address"])?)?;
    // The machine has no file system of its own that would show its interfaces.
    let link = site.lab.world().shell(Machine::Router, &format!("ip -o link show {WIRE}"))?;
    let mac = link.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
    let from = octets(mac.with_context(|| link.clone())?)?;
    Ok(Stations { from, to })
}

/// Its own address on the wire.
fn own() -> IpAddr {
    integration::world::ROUTER.parse().expect("an address")
}

/// Leads packets for an address to a node while the row goes on.
fn routed(site: &Site<'_>, to: IpAddr, node: &Node) -> Result<()> {
    site.lab.world().announce(to, node)
}

fn closed_by(site: &Site<'_>, via: &Node) -> Result<String> {
    let shut = site.bystander().shut();
    routed(site, shut.ip(), via)?;
    site.is_closed(&NEIGHBOUR, &[shut])?;
    Ok(format!("0 of 2 questions answered over {}", via.name))
}

pub(crate) fn a_route_to_a_closed_pod(site: &Site<'_>) -> Result<String> {
    closed_by(site, site.first())
}

fn a_route_to_anothers_closed_pod(site: &Site<'_>) -> Result<String> {
    closed_by(site, site.second())
}

/// Counts frames with the mark at the bystander's pods while these are sent.
fn at_pods(site: &Site<'_>, frames: &[Vec<u8>]) -> Result<(u64, Vec<u64>)> {
    let bystander = site.bystander();
    let pods = [&bystander.here, &bystander.there, &bystander.closed];
    let counters = pods.map(|pod| site.lab.sniffing(&End::Pod(pod), "eth0", MARK));
    let counters = counters.into_iter().collect::<Result<Vec<_>>>()?;
    let sent = site.lab.send_frames(&NEIGHBOUR, WIRE, frames, TIMES)?;
    site.lab.ping(&bystander.here, bystander.there.address())?;
    let got = counters
        .into_iter()
        .map(integration::traffic::Counter::end)
        .collect::<Result<Vec<u64>>>()?;
    Ok((sent, got))
}

fn none(sent: u64, got: &[u64]) -> Result<String> {
    ensure!(sent > 0 && got.iter().all(|got| *got == 0), "of {sent} frames {got:?} arrived");
    Ok(format!("0 of {sent} frames arrived"))
}

fn from_a_pods_address(site: &Site<'_>) -> Result<String> {
    let bystander = site.bystander();
    let management = integration::subnet::host(&bystander.here.addresses[0].trunc(), 2).addr();
    let froms = [
        bystander.here.address(),
        bystander.there.address(),
        management,
        site.lab.world().of_node(site.second())[0],
    ];
    let stations = stations(site, site.first())?;
    let frames: Vec<Vec<u8>> = froms
        .into_iter()
        .map(|from| udp(stations, (from, 4000), (bystander.closed.address(), PORT), MARK))
        .collect();
    let (sent, got) = at_pods(site, &frames)?;
    none(sent, &got)
}

/// A datagram for the closed pod, in a frame of OVN's router, in a tunnel to the first node.
fn tunnelled(site: &Site<'_>, from: IpAddr) -> Result<Vec<Vec<u8>>> {
    let (closed, here) = (&site.bystander().closed, &site.bystander().here);
    let gateway =
        integration::subnet::mac(integration::subnet::gateway(&closed.addresses[0].trunc()).addr());
    let inside = Stations { from: octets(&gateway)?, to: octets(&closed.mac)? };
    let inner = udp(inside, (here.address(), 4000), (closed.address(), PORT), MARK);
    let outside = stations(site, site.first())?;
    let node = site.lab.world().of_node(site.first())[0];
    // Numbers of networks and ports are small.
    let of_network =
        |network: u32| udp(outside, (from, 50_000), (node, 6081), &geneve(network, &inner));
    Ok((1..=16).map(of_network).collect())
}

fn a_tunnel_of_nobody(site: &Site<'_>) -> Result<String> {
    let (sent, got) = at_pods(site, &tunnelled(site, own())?)?;
    none(sent, &got)
}

fn a_tunnel_of_a_node(site: &Site<'_>) -> Result<String> {
    let second = site.lab.world().of_node(site.second())[0];
    let (sent, got) = at_pods(site, &tunnelled(site, second)?)?;
    // Nothing in the frame tells it from a member's.
    Ok(format!("{got:?} of {sent} frames arrived"))
}

fn addresses_inside(site: &Site<'_>) -> Result<String> {
    let here = &site.bystander().here;
    let management = integration::subnet::host(&here.addresses[0].trunc(), 2).addr();
    let inside: [IpAddr; 5] = [
        [169, 254, 169, 1].into(),
        [169, 254, 169, 2].into(),
        [169, 254, 169, 3].into(),
        [100, 64, 0, 1].into(),
        management,
    ];
    let stations = stations(site, site.first())?;
    let mut seen = Vec::new();
    let mut wrong = 0;
    for (port, to) in (9990..).zip(inside) {
        let any = SocketAddr::new([0_u16; 8].into(), port);
        let counter = site.lab.hearing(&End::Node(site.first()), any, MARK)?;
        site.lab.send_frames(
            &NEIGHBOUR,
            WIRE,
            &[udp(stations, (own(), 4000), (to, port), MARK)],
            TIMES,
        )?;
        site.lab.ping(here, site.bystander().there.address())?;
        let heard = counter.end()?;
        wrong += if to == management { 0 } else { heard };
        seen.push(format!("{to} {heard}"));
    }
    ensure!(wrong == 0, "heard of {TIMES} each: {}", seen.join(", "));
    Ok(format!("heard of {TIMES} each: {}", seen.join(", ")))
}

fn every_port_of_a_node(site: &Site<'_>) -> Result<String> {
    let node = site.lab.world().of_node(site.first())[0];
    let mut open = Vec::new();
    let ports: Vec<u16> =
        (1..2048).chain(6000..7000).chain(9000..11_000).chain(30_000..32_768).collect();
    for some in ports.chunks(500) {
        let to: Vec<SocketAddr> = some.iter().map(|port| SocketAddr::new(node, *port)).collect();
        let [replies, _] = site.lab.ask(&NEIGHBOUR, &to, &[])?;
        let answered = to.iter().zip(replies).filter(|(_, reply)| {
            matches!(reply, integration::peer::Reply::By(_) | integration::peer::Reply::Silence)
        });
        open.extend(answered.map(|(to, _)| to.port()));
    }
    // Metrics, if an administrator has them served.
    ensure!(open.iter().all(|port| *port == crate::tenants::site::METRICS), "open: {open:?}");
    Ok(format!("of {} ports of TCP open: {open:?}", ports.len()))
}

fn connections_without_number(site: &Site<'_>) -> Result<String> {
    let node = site.lab.world().of_node(site.first())[0];
    let stations = stations(site, site.first())?;
    let number = if integration::tenants::long_forms() { 50_000_u32 } else { 10_000 };
    let frame = |number: u32| {
        let port = u16::try_from(1024 + number % 60_000).expect("a port");
        let from: IpAddr = [
            198,
            18,
            u8::try_from(number / 250 % 250).expect("below 250"),
            u8::try_from(1 + number % 250).expect("an octet"),
        ]
        .into();
        syn(stations, (from, port), (node, 30_999))
    };
    let frames: Vec<Vec<u8>> = (0..number).map(frame).collect();
    let sent = site.lab.send_frames(&NEIGHBOUR, WIRE, &frames, 1)?;
    Ok(format!("{sent} first packets of connections from as many addresses"))
}

fn the_nodes_address(site: &Site<'_>) -> Result<String> {
    let (first, second) = (site.first(), site.second());
    let victim = site.lab.world().of_node(first)[0];
    let (IpAddr::V4(claimed), IpAddr::V4(asked)) = (victim, site.lab.world().of_node(second)[0])
    else {
        anyhow::bail!("the wire has IPv4");
    };
    let here = stations(site, second)?;
    let claims = [here, Stations { from: here.from, to: BROADCAST }]
        .map(|to| arp(to, 2, (here.from, claimed), asked));
    site.suffers();
    let sent = site.lab.send_frames(&NEIGHBOUR, WIRE, &claims, TIMES)?;
    let rows = |text: &str| site.lab.central.nbctl(["show", text]);
    let gateway = rows(&format!("GR_{}", first.name)).context("the gateway")?;
    ensure!(gateway.contains(&victim.to_string()), "{gateway}");
    // The true owner answers when it is asked again.
    second.shell("ip neigh flush dev breth0; ovs-appctl tnl/neigh/flush")?;
    site.lab
        .ping(&site.bystander().here, site.bystander().there.address())
        .context("once the claim is forgotten")?;
    Ok(format!(
        "{sent} claims; gateway's rows as before; traffic is back once the neighbour is asked again"
    ))
}
