//! The pod's own network namespace, as the server of its node sees it, beside what ADD has
//! configured.

use std::net::IpAddr;

use contract::names::{IfaceId, Network};
use ipnet::IpNet;
use podnet::pod_look::wire::{
    INSIDE_PATH, InsideAnswer, InsideInterface, InsideLink, InsideRequest,
};

use super::PodQuestion;
use crate::{
    findings::{Finding, State},
    node_server,
    status::Machine,
};

pub(super) const INSIDE: &str = "inside the pod";

/// Asks this node's server. The pod's gateways, too.
pub(super) async fn findings(
    machine: &Machine,
    question: &PodQuestion,
) -> (Vec<Finding>, Vec<IpAddr>) {
    let pod = &question.pod;
    if let Some(recorded) = &machine.recorded {
        let port = IfaceId::new(pod, &Network::Default).to_string();
        return (recorded.inside.get(&port).map(of_answer).unwrap_or_default(), Vec::new());
    }
    let request =
        InsideRequest { namespace: pod.namespace().to_owned(), name: pod.name().to_owned() };
    let body = serde_json::to_vec(&request).unwrap_or_default();
    match node_server::ask::<InsideAnswer>(&machine.socket, INSIDE_PATH, body).await {
        Ok(answer) => {
            let tables = answer.interfaces.iter().filter_map(|it| it.inside.as_ref());
            let gateways = tables.flat_map(|tables| defaults(&tables.routes)).collect();
            (of_answer(&answer), gateways)
        }
        Err(silence) => {
            let why = format!("not looked at: the server {}", silence.why(&machine.socket));
            let finding = Finding::new(INSIDE, "namespace", State::Unknown, &why);
            (vec![finding.next("ovnkube status")], Vec::new())
        }
    }
}

fn of_answer(answer: &InsideAnswer) -> Vec<Finding> {
    if let Some(problem) = &answer.problem {
        return vec![Finding::new(INSIDE, "namespace", State::Unknown, problem)];
    }
    answer.interfaces.iter().flat_map(of_interface).collect()
}

fn of_interface(interface: &InsideInterface) -> Vec<Finding> {
    let InsideInterface { host_link, if_name, committed, found, is_up, inside, unseen, .. } =
        interface;
    let Some(found) = found else {
        let why = unseen.as_deref().unwrap_or("the pod's end is gone");
        let finding = Finding::new(INSIDE, if_name, State::Failed, why);
        return vec![finding.next(&format!("ip -d link show {host_link}; delete the pod"))];
    };
    let mut findings = vec![link(if_name, committed, found, *is_up)];
    findings.push(mtu(if_name, committed.mtu, found.mtu));
    findings.push(addresses(if_name, &committed.addresses, &found.addresses));
    match inside {
        Some(tables) => {
            let routes = &tables.routes;
            findings.push(default_routes(&committed.addresses, routes));
            findings.push(gateways(routes, &tables.silent_neighbours));
            findings.extend(checksums(interface, tables.tx_checksum));
        }
        None => {
            let why = unseen.as_deref().unwrap_or("not looked at");
            let why = format!("routes and neighbours are not seen: {why}");
            findings.push(
                Finding::new(INSIDE, "namespace", State::Skipped, &why)
                    .next("nsenter --net=NAMESPACE ip route, as root on the node"),
            );
        }
    }
    findings
}

fn link(if_name: &str, committed: &InsideLink, found: &InsideLink, is_up: bool) -> Finding {
    let failed = |why: &str| Finding::new(INSIDE, if_name, State::Failed, why);
    let replaced = "the link was changed after ADD: delete the pod";
    if !is_up {
        return failed("the link is down in the pod").next("ip link set it up, or delete the pod");
    }
    if !committed.mac.is_empty() && !committed.mac.eq_ignore_ascii_case(&found.mac) {
        let why = format!(
            "has the MAC address {} instead of {}: OVN drops what it sends",
            found.mac, committed.mac
        );
        return failed(&why).next(replaced);
    }
    Finding::new(INSIDE, if_name, State::Ok, &format!("up, {}", found.mac))
}

fn mtu(if_name: &str, committed: u32, found: u32) -> Finding {
    let said = |state, why: &str| {
        Finding::new(INSIDE, "MTU", state, why).with("committed", committed).with("found", found)
    };
    let next = format!("ip link set {if_name} mtu {committed} in the pod, or delete the pod");
    match found.cmp(&committed) {
        std::cmp::Ordering::Equal => said(State::Ok, &found.to_string()),
        std::cmp::Ordering::Greater => {
            let why = format!(
                "{found} in the pod, and new pods get {committed}: its large packets may be lost"
            );
            said(State::Failed, &why).next(&next)
        }
        std::cmp::Ordering::Less => {
            let why = format!("{found} in the pod, and new pods get {committed}");
            said(State::Warning, &why).next(&next)
        }
    }
}

fn addresses(if_name: &str, committed: &[IpNet], found: &[IpNet]) -> Finding {
    let missing: Vec<&IpNet> = committed.iter().filter(|net| !found.contains(net)).collect();
    if missing.is_empty() {
        return Finding::new(INSIDE, "addresses", State::Ok, &list(found));
    }
    let missing = missing.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let why = format!("{if_name} lacks {missing}, which ADD has given it; it has {}", list(found));
    Finding::new(INSIDE, "addresses", State::Failed, &why)
        .next("a program in the pod has changed them: delete the pod")
}

fn list(nets: &[IpNet]) -> String {
    match nets {
        [] => "none".to_owned(),
        nets => nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// A default route for each family of the pod's addresses.
fn default_routes(committed: &[IpNet], routes: &[(IpNet, Option<IpAddr>)]) -> Finding {
    let lacks = |is_ipv4: bool| {
        committed.iter().any(|net| net.addr().is_ipv4() == is_ipv4)
            && !defaults(routes).any(|gateway| gateway.is_ipv4() == is_ipv4)
    };
    let families = [(true, "IPv4"), (false, "IPv6")];
    let lacking = families.into_iter().filter(|(is_ipv4, _)| lacks(*is_ipv4));
    let lacking: Vec<&str> = lacking.map(|(_, name)| name).collect();
    if lacking.is_empty() {
        return Finding::new(INSIDE, "routes", State::Ok, &format!("{} routes", routes.len()));
    }
    let why = format!("no default route of {}: only its subnet is reached", lacking.join(" and "));
    Finding::new(INSIDE, "routes", State::Failed, &why)
        .next("a program in the pod has removed it: delete the pod")
}

/// The gateways of default routes.
fn defaults(routes: &[(IpNet, Option<IpAddr>)]) -> impl Iterator<Item = IpAddr> {
    let all = routes.iter().filter(|(destination, _)| destination.prefix_len() == 0);
    all.filter_map(|(_, gateway)| *gateway)
}

fn gateways(routes: &[(IpNet, Option<IpAddr>)], silent: &[IpAddr]) -> Finding {
    match defaults(routes).find(|gateway| silent.contains(gateway)) {
        None => Finding::new(INSIDE, "gateway", State::Ok, "does not fail to answer"),
        Some(gateway) => {
            let why = format!(
                "{gateway} does not answer to ARP or neighbour discovery, which OVN does on this \
                 node"
            );
            Finding::new(INSIDE, "gateway", State::Failed, &why)
                .next("ovn-appctl -t ovn-controller connection-status, and ovnkube trace")
        }
    }
}

fn checksums(interface: &InsideInterface, tx_checksum: Option<bool>) -> Option<Finding> {
    let is_on = tx_checksum?;
    if !interface.is_userspace {
        return None;
    }
    let finding = |state, said: &str| Some(Finding::new(INSIDE, "checksums", state, said));
    if !is_on {
        return finding(State::Ok, "offload is off, as the userspace datapath needs it");
    }
    let why = "transmit checksum offload is on, and Open vSwitch forwards in user space: \
               ping works, and TCP does not";
    let next = format!("ethtool -K {} tx off in the pod, or delete the pod", interface.if_name);
    Some(finding(State::Failed, why)?.next(&next))
}

#[cfg(test)]
mod tests {
    use podnet::pod_look::wire::InsideTables;

    use super::*;

    fn well() -> InsideInterface {
        let link = InsideLink {
            mac: "0a:58:0a:f4:01:03".to_owned(),
            mtu: 1400,
            addresses: vec!["10.244.1.3/24".parse().unwrap(), "fd00::3/64".parse().unwrap()],
        };
        let route = |net: &str, via: &str| (net.parse().unwrap(), Some(via.parse().unwrap()));
        InsideInterface {
            host_link: "abc".to_owned(),
            if_name: "eth0".to_owned(),
            committed: link.clone(),
            found: Some(link),
            is_up: true,
            is_userspace: true,
            inside: Some(InsideTables {
                routes: vec![route("0.0.0.0/0", "10.244.1.1"), route("::/0", "fd00::1")],
                silent_neighbours: vec!["10.244.1.9".parse().unwrap()],
                tx_checksum: Some(false),
            }),
            unseen: None,
        }
    }

    fn faults(change: impl FnOnce(&mut InsideInterface)) -> Vec<String> {
        let mut interface = well();
        change(&mut interface);
        let answer = InsideAnswer { interfaces: vec![interface], ..InsideAnswer::default() };
        let found = of_answer(&answer).into_iter().filter(|it| it.state > State::Skipped);
        found.map(|finding| finding.name).collect()
    }

    #[test]
    fn each_difference_from_what_was_committed_is_named_alone() {
        let tables = |interface: &mut InsideInterface| interface.inside.take().unwrap();
        assert_eq!(faults(|_| ()), [""; 0]);
        assert_eq!(faults(|it| it.found = None), ["eth0"]);
        assert_eq!(faults(|it| it.is_up = false), ["eth0"]);
        assert_eq!(faults(|it| it.committed.mac = "0a:58:0a:f4:01:04".to_owned()), ["eth0"]);
        assert_eq!(faults(|it| it.committed.mtu = 1300), ["MTU"]);
        assert_eq!(
            faults(|it| it.committed.addresses[0] = "10.244.1.4/24".parse().unwrap()),
            ["addresses"]
        );
        assert_eq!(faults(|it| it.inside = None), [""; 0]);
        let routeless = faults(|it| {
            it.inside = Some(InsideTables { routes: Vec::new(), ..tables(it) });
        });
        assert_eq!(routeless, ["routes"]);
        let silent = faults(|it| {
            let silent_neighbours = vec!["10.244.1.1".parse().unwrap()];
            it.inside = Some(InsideTables { silent_neighbours, ..tables(it) });
        });
        assert_eq!(silent, ["gateway"]);
        let offloaded = |it: &mut InsideInterface| {
            it.inside = Some(InsideTables { tx_checksum: Some(true), ..tables(it) });
        };
        assert_eq!(faults(offloaded), ["checksums"]);
        assert_eq!(
            faults(|it| {
                offloaded(it);
                it.is_userspace = false;
            }),
            [""; 0]
        );
    }
}
