//! The world outside of the cluster: what hosts of the cluster reach there, and what a client there
//! reaches.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;
use integration::{Families, Lab, eventually, peer::Reply, traffic::End, world::Machine};

/// For the first packets, which wait for neighbours.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_node_reaches_the_world_and_the_world_a_node_under_their_own_addresses() {
    Lab::of_nodes(2).families(Families::Dual).world().test(|lab| {
        let world = lab.world();
        let at = |address, port| SocketAddr::new(address, port);
        let (_web, web) = lab.mirroring_outside(Machine::Web, 80)?;
        let (_names, names) = lab.mirroring_outside(Machine::Resolver, 53)?;
        for node in &lab.nodes {
            let own = world.of_node(node);
            eventually("the world sees the node's own addresses", SOON, || {
                let [tcp, udp] = lab.ask(&End::Node(node), &web, &names)?;
                for replies in [tcp, udp] {
                    let seen: Vec<_> = replies.iter().map(Reply::address).collect();
                    ensure!(
                        seen == own.iter().copied().map(Some).collect::<Vec<_>>(),
                        "{replies:?}"
                    );
                }
                Ok(())
            })?;
            let ssh: Vec<SocketAddr> = own.iter().map(|ip| at(*ip, 22)).collect();
            let _ssh = lab.mirroring(&End::Node(node), &ssh)?;
            let [tcp, _] = lab.ask(&End::World(Machine::Client), &ssh, &[])?;
            let seen: Vec<_> = tcp.iter().map(Reply::address).collect();
            let client: Vec<_> = world.addresses(Machine::Client).into_iter().map(Some).collect();
            ensure!(seen == client, "{tcp:?}");
        }
        Ok(())
    });
}

/// A path that is 9,000 bytes wide, and a router in the middle that says so when it is not.
#[test]
fn large_packets_pass_where_the_wire_is_wide_and_senders_learn_where_it_is_not() {
    Lab::of_nodes(1).families(Families::Dual).wire_mtu(9000).world().test(|lab| {
        let (node, world) = (&lab.nodes[0], lab.world());
        for (address, headers) in world.addresses(Machine::Web).into_iter().zip([28, 48]) {
            let ping = |size: u32| {
                let size = (size - headers).to_string();
                node.run([
                    "ping",
                    "-n",
                    "-M",
                    "do",
                    "-c",
                    "1",
                    "-W",
                    "1",
                    "-s",
                    &size,
                    &address.to_string(),
                ])
            };
            eventually("9,000 bytes pass", SOON, || ping(9000).map(drop))?;
            ensure!(ping(9001).is_err(), "9,001 bytes pass to {address}");
        }
        world.narrow(1300)?;
        for address in world.addresses(Machine::Web) {
            lab.tcp_between(&End::Node(node), &End::World(Machine::Web), address, 1 << 20)?;
            let route = node.run(["ip", "route", "get", &address.to_string()])?;
            ensure!(
                route.contains("mtu 1300"),
                "the node has not learned of the narrow path: {route}"
            );
        }
        Ok(())
    });
}

#[test]
fn a_connection_with_a_byte_now_and_then_lives_through_a_restart_of_the_switch() {
    Lab::of_nodes(1).world().test(|lab| {
        let node = &lab.nodes[0];
        let ssh = SocketAddr::new(lab.world().of_node(node)[0], 22);
        let _ssh = lab.tcp_echo(&End::Node(node), ssh)?;
        let drip = lab.drip(&End::World(Machine::Client), ssh, Duration::from_millis(100))?;
        node.vswitchd.kill()?;
        node.start_vswitchd()?;
        let back = lab.drip(&End::World(Machine::Client), ssh, Duration::from_millis(100))?;
        let [new, old] = [back.stop()?, drip.stop()?];
        ensure!(old.bytes > 1 && new.bytes > 0, "{old:?}, {new:?}");
        Ok(())
    });
}
