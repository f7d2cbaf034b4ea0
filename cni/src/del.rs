//! DEL: the interface of this sandbox goes. Needs no server, no namespace, no `prevResult`, and no ovs-vswitchd; succeeds when there
//! is nothing left to do.

use std::net::IpAddr;

use contract::net_conf::NetConf;
use podnet::{
    detach::{Connections, Detacher, Leftover, Removed},
    fence::Fence,
    plan::Identity,
    settings::{SHORT_TIMEOUT, Settings},
};

use crate::{invocation::Subject, result::PrevResult};

/// Takes the interface away.
pub async fn del(subject: &Subject, conf: &NetConf, settings: &Settings) -> Result<Removed, Leftover> {
    let identity = Identity { sandbox: subject.sandbox.clone(), if_name: subject.if_name.clone(), network: conf.network.clone() };
    let _fence = Fence::take_over(&settings.calls, &identity).await;
    let detacher = Detacher::open(settings, SHORT_TIMEOUT).await;
    detacher.detach(&identity, Connections::Of(&addresses(conf, &identity))).await
}

/// The interface's addresses as the runtime remembers them; what it hands back may be missing or garbage.
fn addresses(conf: &NetConf, identity: &Identity) -> Vec<IpAddr> {
    let prev: Option<PrevResult> = conf.prev_result.clone().and_then(|value| serde_json::from_value(value).ok());
    let prev = prev.unwrap_or_default();
    prev.addresses_of(identity.if_name.as_str()).map(|ip| ip.address.addr()).collect()
}
