//! DEL: the plugin's own work. The answer says so in upstream's words, so that upstream's plugin does it, too.

use hyper::StatusCode;

use super::{Body, Reply};

/// What upstream's server answers in its unprivileged mode.
const CARRY_IT_OUT: &str = concat!(
    r#"{"Result":null,"PodIFInfo":{"IPs":null,"MAC":null,"Gateways":null,"Routes":null,"TunnelID":0,"Role":"","mtu":0,"routable-mtu":0,"#,
    r#""ingress":0,"egress":0,"is-dpu-host-mode":false,"skip-ip-config":false,"pod-uid":"","vf-netdev-name":"","#,
    r#""enable-udp-aggregation":false,"netName":"","nadName":"","nadKey":""},"KubeAuth":null}"#
);

/// Nothing that a caller sends can make a DEL fail here.
pub(super) fn carried_out_by_the_plugin() -> Reply {
    tracing::info!("the plugin carries it out");
    Reply { status: StatusCode::OK, body: Body::Whole(CARRY_IT_OUT.into()) }
}
