//! DEL: the plugin carries it out alone. The answer says so in upstream's format, so that
//! upstream's plugin does, too.

use hyper::StatusCode;

use super::{ApiResponse, Body};

/// What upstream's server answers in its unprivileged mode.
const CARRY_IT_OUT: &str = concat!(
    r#"{"Result":null,"PodIFInfo":{"IPs":null,"MAC":null,"Gateways":null,"Routes":null,"TunnelID":0,"Role":"","mtu":0,"routable-mtu":0,"#,
    r#""ingress":0,"egress":0,"is-dpu-host-mode":false,"skip-ip-config":false,"pod-uid":"","vf-netdev-name":"","#,
    r#""enable-udp-aggregation":false,"netName":"","nadName":"","nadKey":""},"KubeAuth":null}"#
);

/// Always succeeds, whatever the caller sends.
pub(super) fn carried_out_by_the_plugin() -> ApiResponse {
    tracing::info!("the plugin carries it out");
    ApiResponse { status: StatusCode::OK, body: Body::Whole(CARRY_IT_OUT.into()) }
}
