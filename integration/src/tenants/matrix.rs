//! The rows of the matrix of tenants: who tries what, and what has to hold. Pure.
//!
//! A number is never given to another attack, and an expectation never changes with the code: a row that does not
//! hold says so (`Row::fails`).

/// Somebody who is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// All rights in one namespace, in every field of every object.
    User,
    /// A pod with NET_RAW: any frame.
    Pod,
    /// One kubelet's credential.
    Kubelet,
    /// The service account of a node's server.
    Server,
    /// A machine on the node's layer 2.
    Neighbour,
    /// Whoever runs a DNS zone.
    Zone,
    /// Whoever probes health checks.
    Prober,
}

impl Party {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::User, Self::Pod, Self::Kubelet, Self::Server, Self::Neighbour, Self::Zone, Self::Prober];

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Pod => "pod",
            Self::Kubelet => "kubelet",
            Self::Server => "node's server",
            Self::Neighbour => "neighbour",
            Self::Zone => "DNS zone",
            Self::Prober => "prober",
        }
    }

    /// As the title of its part of the table.
    pub fn title(self) -> &'static str {
        match self {
            Self::User => "A user with all rights in one namespace",
            Self::Pod => "A pod with a raw socket (NET_RAW)",
            Self::Kubelet => "One kubelet's credential",
            Self::Server => "The service account of a compromised node's server",
            Self::Neighbour => "A machine on the nodes' layer 2",
            Self::Zone => "Whoever runs a DNS zone",
            Self::Prober => "A prober of health checks and metrics",
        }
    }
}

/// One attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// From 1.
    pub number: u8,
    /// Who.
    pub party: Party,
    /// What it does.
    pub attack: &'static str,
    /// What has to hold, besides what the bystander must not notice.
    pub expected: &'static str,
    /// What OVN or Kubernetes itself cannot prevent, with upstream's and kube-proxy's behaviour beside it.
    pub beside: Option<&'static str>,
    /// Why it does not hold today.
    pub fails: Option<&'static str>,
}

const fn row(number: u8, party: Party, attack: &'static str, expected: &'static str) -> Row {
    Row { number, party, attack, expected, beside: None, fails: None }
}

impl Row {
    /// The expectation stays as it is; beside it, what cannot be prevented here.
    const fn beside(self, beside: &'static str) -> Self {
        Self { beside: Some(beside), ..self }
    }

    /// The expectation stays as it is, and is not met.
    const fn fails(self, reason: &'static str) -> Self {
        Self { fails: Some(reason), ..self }
    }
}

/// Every row, by ascending numbers.
pub const ROWS: &[Row] = &[
    row(
        1,
        Party::User,
        "a NetworkPolicy whose name hashes to the port group of another namespace's default-deny",
        "the other namespace's pod stays closed, and so it stays when the policy is deleted",
    ),
    row(
        2,
        Party::User,
        "a NetworkPolicy of 400,000 empty rules",
        "no other pod waits, and an event or a rule says what became of it",
    )
    .fails("a policy's rules have no bound"),
    row(
        3,
        Party::User,
        "a NetworkPolicy of 20,000 rules that differ",
        "it isolates and allows nothing, with an event",
    )
    .fails("a policy's rules have no bound"),
    row(
        4,
        Party::User,
        "a NetworkPolicy with 10,000 address blocks as peers",
        "no other pod waits",
    )
    .fails("a policy's rules have no bound"),
    row(
        5,
        Party::User,
        "a NetworkPolicy for everything but five networks",
        "it costs at most 500 flows on the node of its pod",
    )
    .fails("exceptions of a block are multiplied out"),
    row(
        6,
        Party::User,
        "a Service of 300 externalIPs and 300 ports",
        "the northbound database answers, and node's servers keep below 200 MB",
    )
    .fails("what a Service may cost has no bound"),
    row(
        7,
        Party::User,
        "externalIPs with the ClusterIP of another namespace's Service, whose endpoint then changes",
        "pods and nodes reach the other Service's endpoint",
    )
    .fails("which of two Services has an address is decided by chance or by name"),
    row(
        8,
        Party::User,
        "externalIPs with the nodes' addresses, UDP port 6081",
        "tunnels between nodes go on",
    )
    .beside("with kube-proxy an externalIP of a node takes the node's port; the admission plugin \
        DenyServiceExternalIPs of Kubernetes refuses the field"),
    row(
        9,
        Party::User,
        "externalIPs with the API server's address and port",
        "nodes reach the API server",
    )
    .beside("kube-proxy leads nodes to the Service")
    .fails("which of two Services has an address is decided by chance or by name"),
    row(
        10,
        Party::User,
        "a NodePort Service whose EndpointSlice names another namespace's closed pod",
        "the pod stays closed to the world, at each node",
    )
    .beside("kube-proxy and upstream's local gateways deliver with the node's own address, which policies let in"),
    row(
        11,
        Party::Pod,
        "frames with another pod's MAC, with another pod's address, and with an address of nobody",
        "no pod gets them",
    ),
    row(
        12,
        Party::Pod,
        "ARP replies and neighbour advertisements that claim another pod's address and the gateway's",
        "no pod believes them",
    ),
    row(
        13,
        Party::Pod,
        "router advertisements and DHCP offers",
        "no pod's routes or addresses change",
    )
    .beside("OVN delivers broadcasts from a pod's own address on its node, as with upstream: a pod that runs a DHCP client \
        has to know its server"
    ),
    row(
        14,
        Party::Pod,
        "UDP to the host's addresses by the MAC of the host's end, under a policy that forbids everything",
        "no process of the host hears it",
    )
    .beside("upstream attaches the same way: on a userspace datapath the host's stack sees the frames of each veth"),
    row(
        15,
        Party::Pod,
        "the same by broadcast and by multicast, with its own and with false addresses",
        "no process of the host hears it",
    ),
    row(
        16,
        Party::Pod,
        "a question of ARP for the management port's address",
        "one answer",
    ),
    row(
        17,
        Party::User,
        "a pod whose annotation claims the address of another tenant's pod",
        "it never has the address, the other one keeps it",
    ),
    row(
        18,
        Party::User,
        "a pod whose annotation claims the router's address, the management port's, the broadcast, or one of OVN's own networks",
        "it never has the address",
    ),
    row(
        19,
        Party::User,
        "a pod whose annotation claims an address of another node's subnet, of no node, of the world, or a host's",
        "it never has the address",
    ),
    row(
        20,
        Party::User,
        "a pod whose annotation claims the MAC of another tenant's pod, or the router's",
        "it never has the MAC",
    ),
    row(
        21,
        Party::User,
        "its pod's annotation patched after the start to another tenant's address and MAC",
        "the pod's port stays as it was",
    ),
    row(
        22,
        Party::User,
        "its pod's annotation patched after the start to text that cannot be read",
        "the pod's port stays as it was, and works",
    ),
    row(
        23,
        Party::User,
        "pods with annotations of garbage, of 200 kB, and 50,000 brackets deep",
        "no other pod waits",
    ),
    row(
        24,
        Party::User,
        "300 pods that never start, with 50 named ports each",
        "no other pod waits",
    ),
    row(
        25,
        Party::User,
        "300 changes of a pod's labels in a burst",
        "the last one counts, no other pod waits",
    ),
    row(
        26,
        Party::Kubelet,
        "a node's annotations with another node's chassis",
        "the other node's gateway, node ports and rows stay as they were",
    ),
    row(
        27,
        Party::Kubelet,
        "a gateway whose interface has the name of another tenant's port",
        "the pod keeps its port and its network",
    ),
    row(
        28,
        Party::Kubelet,
        "a gateway whose interface has the name of another node's",
        "the other node's rows stay as they were",
    ),
    row(
        29,
        Party::Kubelet,
        "another node's subnet, the whole cluster's, and everything",
        "the other node's rows stay as they were",
    ),
    row(
        30,
        Party::Kubelet,
        "another node's number and its addresses on the join network",
        "the other node's rows stay as they were",
    ),
    row(
        31,
        Party::Kubelet,
        "1,024 addresses of its host, beside 20 node ports",
        "the load balancers grow at most sixteen times",
    )
    .fails("each node port is written for as many addresses as any node has"),
    row(
        32,
        Party::Kubelet,
        "addresses of its host that are another node's, a pod's, a Service's, the world's, and everything",
        "they stay whose they are",
    ),
    row(
        33,
        Party::Kubelet,
        "a gateway with the MAC and the address of another node's",
        "the other node's rows stay as they were",
    ),
    row(
        34,
        Party::Kubelet,
        "garbage in every annotation that is read",
        "the other nodes' rows stay as they were",
    ),
    row(
        35,
        Party::Kubelet,
        "a management port with the MAC of another tenant's pod",
        "the other nodes' rows stay as they were",
    ),
    row(
        36,
        Party::Neighbour,
        "a route to a closed pod over its node",
        "the pod stays closed",
    )
    .beside("upstream forwards unless --disable-forwarding is set"),
    row(
        37,
        Party::Neighbour,
        "a route to a closed pod over another node",
        "the pod stays closed",
    )
    .beside("upstream forwards unless --disable-forwarding is set"),
    row(
        38,
        Party::Neighbour,
        "packets for a closed pod from addresses of pods, of the management port and of another node",
        "no pod gets them",
    ),
    row(
        39,
        Party::Neighbour,
        "a tunnel's packets (Geneve) for a closed pod, from its own address",
        "no pod gets them",
    ),
    row(
        40,
        Party::Neighbour,
        "the same from another node's address",
        "no other row of the bystander is worse for it",
    )
    .beside("Geneve has no authentication: a frame from a member's address is the member's. Upstream is the same; OVN's IPsec or a network of the nodes' own prevents it"),
    row(
        41,
        Party::Neighbour,
        "packets to the host's addresses inside: masquerading, join network, management port",
        "no process of the host hears those to OVN's own networks",
    )
    .beside("Linux takes packets for an address of its own from any link: the management port's reaches the host as its \
        address on the wire does, with upstream and kube-proxy, too"),
    row(
        42,
        Party::Neighbour,
        "questions to 7,800 ports of TCP of a node",
        "metrics are all that is open",
    ),
    row(
        43,
        Party::Neighbour,
        "first packets of connections to a node from 50,000 addresses",
        "nobody notices",
    ),
    row(
        44,
        Party::Neighbour,
        "ARP replies that claim a node's address",
        "the gateway's rows stay as they were, traffic is back once the neighbour is asked again",
    )
    .beside("ARP has no authentication; upstream and kube-proxy are the same. Switches prevent it (dynamic ARP inspection)"),
    row(
        45,
        Party::Prober,
        "100 idle connections to a health check of a Service",
        "a true prober has each answer within a second",
    )
    .fails("idle connections take all places of a health check"),
    row(
        46,
        Party::Prober,
        "100 connections to it that send a byte now and then",
        "a true prober has each answer within a second",
    )
    .fails("idle connections take all places of a health check"),
    row(
        47,
        Party::Prober,
        "300 idle connections of a pod to a node's metrics",
        "a true scraper has each answer within a second",
    ),
    row(
        48,
        Party::Prober,
        "300 connections to the control plane's metrics that send a byte now and then",
        "a true scraper has each answer within a second",
    ),
    row(
        49,
        Party::Prober,
        "requests of 50 MB without an end of the line, to node and control plane",
        "the connection ends, the next one is answered",
    ),
    row(
        50,
        Party::Zone,
        "an answer with addresses of nodes, for a name that an EgressFirewall allows",
        "the nodes stay closed to the pods",
    )
    .fails("an answer of the DNS may be any address"),
    row(
        51,
        Party::Zone,
        "an answer with the API server's address",
        "it stays closed to the pods",
    )
    .fails("an answer of the DNS may be any address"),
    row(
        52,
        Party::Zone,
        "an answer with link-local, loopback and masquerading addresses",
        "they stay closed to the pods",
    )
    .fails("an answer of the DNS may be any address"),
    row(
        53,
        Party::Zone,
        "an answer with another tenant's pod and a Service",
        "the other tenant's closed pod stays closed",
    ),
    row(
        54,
        Party::Zone,
        "silence about 500 names of one tenant",
        "another tenant's name has its first answer within 15 s",
    )
    .fails("names whose server is silent take all places"),
    row(
        55,
        Party::Zone,
        "other addresses with each answer",
        "a connection that had been let out goes on",
    )
    .fails("the last answer replaces the one before"),
    row(
        56,
        Party::Kubelet,
        "a kubelet's credential writes another node's annotations",
        "the API server refuses",
    ),
    row(
        57,
        Party::Kubelet,
        "a kubelet's credential makes a node of another name",
        "the API server refuses",
    ),
    row(
        58,
        Party::Kubelet,
        "a kubelet's credential writes or deletes pods of another node",
        "the API server refuses",
    ),
    row(
        59,
        Party::Server,
        "a node's server writes another node's annotations",
        "the API server refuses",
    )
    .beside("with upstream's manifests one node's account may write all nodes, unless the interconnect's admission policy is installed")
    .fails("Kubernetes' roles know no node; an admission policy is missing"),
    row(
        60,
        Party::Server,
        "a node's server writes annotations and status of pods, of its own node and another",
        "the API server refuses",
    ),
    row(
        61,
        Party::Server,
        "a node's server reads secrets, makes and deletes policies, deletes nodes, makes tokens",
        "the API server refuses",
    ),
    row(
        62,
        Party::User,
        "3,000 rules about all namespaces, in a cluster of 200",
        "no other pod waits, nor another namespace",
    )
    .fails("each namespace is a set in every rule that means it"),
    row(
        63,
        Party::User,
        "12,000 peers with selectors that differ, each of which selects all pods",
        "no other pod waits",
    )
    .fails("sets of a policy have no bound"),
    row(
        64,
        Party::User,
        "a pod that never starts, with 500 ports of a name that another tenant's policy uses",
        "the other tenant's rules stay as they were",
    )
    .fails("pods that were never scheduled count for the name of a port"),
    row(
        65,
        Party::User,
        "200 policies that come and go in a burst",
        "no other pod waits",
    ),
    row(
        66,
        Party::User,
        "600 policies that cannot be used",
        "another tenant's events are still told",
    ),
    row(
        67,
        Party::User,
        "logging of policies with garbage and with every level, and 1,200 packets that are refused",
        "the log of the node has at most 100 lines a second of it",
    ),
    row(
        68,
        Party::User,
        "multicast switched on for its namespace, and a group that others have joined",
        "no pod of another namespace hears it",
    ),
    row(
        69,
        Party::User,
        "an EgressFirewall of 8,000 rules about every node",
        "no other pod waits",
    ),
    row(
        70,
        Party::User,
        "an EgressFirewall whose selector of nodes reads like another tenant's (values `a,b` instead of `a` and `b`)",
        "the other tenant's rule denies",
    )
    .fails("selectors of custom resources are compared by their text"),
    row(
        71,
        Party::User,
        "an EgressFirewall of 20,000 rules",
        "no other pod waits",
    )
    .fails("the rules that one object may have cost the control plane 54 MB"),
    row(
        72,
        Party::User,
        "a Service of 1,000 externalIPs and 1,000 ports of UDP",
        "the northbound database answers, and node's servers keep below 200 MB",
    )
    .fails("what a Service may cost has no bound"),
    row(
        73,
        Party::User,
        "externalIPs and status with the load balancer's address of another namespace's older Service",
        "pods and nodes reach the other Service",
    )
    .fails("which of two Services has an address is decided by chance or by name"),
    row(
        74,
        Party::User,
        "externalIPs with a node's address and a port of its host",
        "the world, nodes and pods reach the host",
    )
    .beside("kube-proxy leads the node's port to the Service; the admission plugin DenyServiceExternalIPs of Kubernetes refuses the field")
    .fails("externalIPs of hosts, pods and node ports have an effect"),
    row(
        75,
        Party::User,
        "externalIPs with a node's address and the NodePort of another namespace's Service",
        "the world and nodes reach the other Service",
    )
    .beside("kube-proxy looks at externalIPs before node ports")
    .fails("externalIPs of hosts, pods and node ports have an effect"),
    row(
        76,
        Party::User,
        "externalIPs with the address of another tenant's pod",
        "pods and nodes reach the pod",
    )
    .beside("kube-proxy leads to the Service")
    .fails("externalIPs of hosts, pods and node ports have an effect"),
    row(
        77,
        Party::User,
        "externalIPs with the management port's address, the router's, masquerading, loopback, multicast, broadcast",
        "pods reach the host and the router",
    )
    .fails("externalIPs inside of the cluster's own ranges have an effect"),
    row(
        78,
        Party::User,
        "a Service whose EndpointSlice names a host, from a pod whose policy lets it reach pods alone",
        "the host stays closed",
    ),
    row(
        79,
        Party::User,
        "a Service whose EndpointSlice names an address that the EgressFirewall denies",
        "the address stays closed",
    ),
    row(
        80,
        Party::User,
        "a Service whose EndpointSlice names another tenant's closed pod",
        "the pod stays closed to pods and other nodes",
    ),
    row(
        81,
        Party::User,
        "EndpointSlices with loopback, link-local, masquerading and multicast addresses",
        "nothing answers",
    ),
    row(
        82,
        Party::User,
        "a Service of 100,000 endpoints",
        "no other pod waits, and node's servers keep below 200 MB",
    )
    .fails("what a Service may cost has no bound"),
    row(
        83,
        Party::User,
        "a Service with 10,000 source ranges",
        "others stay out, no other pod waits",
    )
    .fails("what a Service may cost has no bound"),
    row(
        84,
        Party::User,
        "a Service of UDP with 5,000 externalIPs whose endpoint changes 20 times",
        "no other pod waits",
    )
    .fails("what a Service may cost has no bound"),
    row(
        85,
        Party::User,
        "1,000 node ports",
        "no other pod waits",
    ),
    row(
        86,
        Party::Pod,
        "packets for other pods, nodes and the world by the MAC of the host's end, under a policy that forbids everything",
        "nobody gets them",
    )
    .beside("on a userspace datapath the host's stack sees the frames of each veth and forwards them"),
    row(
        87,
        Party::Pod,
        "packets to the world with another pod's address, a node's, a Service's, and one of nobody",
        "the world gets none of them",
    ),
    row(
        88,
        Party::Pod,
        "fragments to a closed pod: tiny ones, later ones alone, ones that overlap",
        "no pod gets them",
    ),
    row(
        89,
        Party::Pod,
        "frames with VLAN tags, MPLS, LLDP, spanning tree and pauses",
        "neither its neighbours nor the wire get them",
    ),
    row(
        90,
        Party::Pod,
        "a tunnel's packets (Geneve) to another node, with a frame for another tenant's pod",
        "no pod gets the frame inside",
    )
    .fails("a pod's datagrams to a node's tunnel port leave with its own node's address, which the other node takes for a member's"),
    row(
        91,
        Party::Pod,
        "first packets of 50,000 connections",
        "nobody notices",
    ),
    row(
        92,
        Party::Pod,
        "packets to 20,000 addresses that nobody has",
        "nobody notices",
    ),
    row(
        93,
        Party::Pod,
        "20,000 questions of ARP",
        "nobody notices",
    )
    .fails("on a userspace datapath the frames of all pods of a node wait in one line"),
];

/// The row with this number.
pub fn find(number: u8) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_numbered_from_1_without_a_gap() {
        let numbers: Vec<u8> = ROWS.iter().map(|row| row.number).collect();
        assert!(numbers.iter().copied().eq((1..=u8::MAX).take(numbers.len())), "{numbers:?}");
    }
}
