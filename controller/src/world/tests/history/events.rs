//! What may happen to a small cluster, at random. Must not know what follows from it.

use proptest::{collection::vec, prelude::*};

use super::*;

/// An event, by number of pod, node and address.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Appear {
        pod: u8,
        node: u8,
    },
    /// A pod that is not scheduled yet.
    Pending(u8),
    Schedule {
        pod: u8,
        node: u8,
    },
    /// A pod with an annotation that its creator has preset.
    Claim {
        pod: u8,
        node: u8,
        last: u8,
        families: Families,
    },
    Unusable {
        pod: u8,
        node: u8,
    },
    /// Another program removes the annotation.
    Strip(u8),
    /// Another program replaces it with unreadable text.
    Garble(u8),
    End(u8),
    Delete(u8),
    Settle(u8),
    Node {
        node: u8,
        is: NodeIs,
    },
    /// The annotations to write arrive on the pods.
    Write,
    /// The watch is lost. Meanwhile these pods are created anew on a node, or removed; then
    /// everything is listed.
    Listed(Vec<(u8, Option<u8>)>),
    /// The process starts again, with the existing ports.
    Restart,
    Service {
        service: u8,
        is: ServiceIs,
    },
    Slice {
        slice: u8,
        is: SliceIs,
    },
    /// The nodes with these numbers have gateway routers.
    Routers(Vec<u8>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ServiceIs {
    Gone,
    Headless,
    /// With these policies, inside and outside.
    With(Traffic, Traffic),
    WithNodePort(Traffic),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum SliceIs {
    Gone,
    /// An endpoint on a node: its pod, or the host itself.
    Of {
        service: u8,
        node: u8,
        is_host: bool,
        is_ready: bool,
        hints: bool,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Families {
    V4,
    V6,
    Both,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum NodeIs {
    Gone,
    WithoutSubnet,
    With(Families),
    WithOtherSubnet,
    OfAnotherZone,
}

fn families() -> impl Strategy<Value = Families> {
    prop_oneof![3 => Just(Families::V4), 1 => Just(Families::V6), 3 => Just(Families::Both)]
}

fn service_is() -> impl Strategy<Value = ServiceIs> {
    let traffic = || prop_oneof![2 => Just(Traffic::Cluster), 1 => Just(Traffic::Local)];
    prop_oneof![
        1 => Just(ServiceIs::Gone),
        1 => Just(ServiceIs::Headless),
        4 => (traffic(), traffic()).prop_map(|(inside, outside)| ServiceIs::With(inside, outside)),
        2 => traffic().prop_map(ServiceIs::WithNodePort),
    ]
}

fn slice_is() -> impl Strategy<Value = SliceIs> {
    let of = (0_u8..2, 1_u8..3, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(service, node, is_host, is_ready, hints)| SliceIs::Of {
            service,
            node,
            is_host,
            is_ready,
            hints,
        },
    );
    prop_oneof![1 => Just(SliceIs::Gone), 4 => of]
}

pub(crate) fn events() -> impl Strategy<Value = Vec<Event>> {
    let (pods, nodes) = (0_u8..8, 1_u8..3);
    let node_is = prop_oneof![
        1 => Just(NodeIs::Gone),
        1 => Just(NodeIs::WithoutSubnet),
        5 => families().prop_map(NodeIs::With),
        1 => Just(NodeIs::WithOtherSubnet),
        1 => Just(NodeIs::OfAnotherZone),
    ];
    vec(
        prop_oneof![
            6 => (pods.clone(), nodes.clone()).prop_map(|(pod, node)| Event::Appear { pod, node }),
            1 => pods.clone().prop_map(Event::Pending),
            2 => (pods.clone(), nodes.clone()).prop_map(|(pod, node)| Event::Schedule { pod, node }),
            3 => (pods.clone(), nodes.clone(), 0_u8..8, families())
                .prop_map(|(pod, node, last, families)| Event::Claim { pod, node, last, families }),
            1 => (pods.clone(), nodes.clone()).prop_map(|(pod, node)| Event::Unusable { pod, node }),
            1 => pods.clone().prop_map(Event::Strip),
            1 => pods.clone().prop_map(Event::Garble),
            2 => pods.clone().prop_map(Event::End),
            4 => pods.clone().prop_map(Event::Delete),
            6 => pods.clone().prop_map(Event::Settle),
            3 => (nodes.clone(), node_is).prop_map(|(node, is)| Event::Node { node, is }),
            4 => Just(Event::Write),
            1 => vec((pods, proptest::option::of(nodes)), 0..4).prop_map(Event::Listed),
            1 => Just(Event::Restart),
            3 => (0_u8..2, service_is()).prop_map(|(service, is)| Event::Service { service, is }),
            4 => (0_u8..3, slice_is()).prop_map(|(slice, is)| Event::Slice { slice, is }),
            1 => vec(1_u8..3, 0..3).prop_map(Event::Routers),
        ],
        0..120,
    )
}
