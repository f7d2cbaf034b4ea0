//! A user's Services and EndpointSlices.

use super::{Party, Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        6,
        Party::User,
        "a Service of 300 externalIPs and 300 ports",
        "the northbound database answers, and node's servers keep below 200 MB",
    )
    .fails("before OVN 24.03, ovn-northd makes the flows of all addresses and ports of the Service again for each new pod"),
    row(
        7,
        Party::User,
        "externalIPs with the ClusterIP of another namespace's Service, whose endpoint then changes",
        "pods and nodes reach the other Service's endpoint",
    ),
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
    .beside("kube-proxy leads nodes to the Service"),
    row(
        10,
        Party::User,
        "a NodePort Service whose EndpointSlice names another namespace's closed pod",
        "the pod stays closed to the world, at each node",
    )
    .beside("kube-proxy and upstream's local gateways deliver with the node's own address, which policies let in"),
    row(
        72,
        Party::User,
        "a Service of 1,000 externalIPs and 1,000 ports of UDP",
        "the northbound database answers, and node's servers keep below 200 MB",
    )
    .fails("before OVN 24.03, ovn-northd makes the flows of all addresses and ports of the Service again for each new pod"),
    row(
        73,
        Party::User,
        "externalIPs and status with the load balancer's address of another namespace's older Service",
        "pods and nodes reach the other Service",
    ),
    row(
        74,
        Party::User,
        "externalIPs with a node's address and a port of its host",
        "the world, nodes and pods reach the host",
    )
    .beside("kube-proxy leads the node's port to the Service; the admission plugin DenyServiceExternalIPs of Kubernetes refuses the field"),
    row(
        75,
        Party::User,
        "externalIPs with a node's address and the NodePort of another namespace's Service",
        "the world and nodes reach the other Service",
    )
    .beside("kube-proxy looks at externalIPs before node ports"),
    row(
        76,
        Party::User,
        "externalIPs with the address of another tenant's pod",
        "pods and nodes reach the pod",
    )
    .beside("kube-proxy leads to the Service"),
    row(
        77,
        Party::User,
        "externalIPs with the management port's address, the router's, masquerading, loopback, multicast, broadcast",
        "pods reach the host and the router",
    ),
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
    ),
    row(
        83,
        Party::User,
        "a Service with 10,000 source ranges",
        "others stay out, no other pod waits",
    ),
    row(
        84,
        Party::User,
        "a Service of UDP with 5,000 externalIPs whose endpoint changes 20 times",
        "no other pod waits",
    )
    .fails("each change of an endpoint is one of 5,000 addresses, the limit, on every node"),
    row(
        85,
        Party::User,
        "1,000 node ports",
        "no other pod waits",
    ),
    row(
        94,
        Party::User,
        "a Service whose EndpointSlice names another node's tunnel port, and a tunnel's packets (Geneve) of a pod for it",
        "no pod gets the frame inside",
    ),
    row(
        99,
        Party::User,
        "row 10 with local gateways",
        "the pod stays closed to the world, at each node",
    ),
    row(
        101,
        Party::User,
        "3,000 changes of an EndpointSlice in a burst",
        "no other pod waits",
    ),
];
