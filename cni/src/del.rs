//! DEL: removes the interface of this sandbox. Needs no server, no namespace, no `prevResult`, and
//! no ovs-vswitchd. Succeeds if there is nothing left to do.

use std::net::IpAddr;

use contract::net_conf::NetConf;
use podnet::{
    detach::{Connections, Detacher, FLUSH, PartialCleanup, Removed},
    interface_lock::InterfaceLock,
    plan::Identity,
    settings::{SHORT_TIMEOUT, Settings},
};

use crate::{failpoint, invocation::Subject, result::PrevResult};

/// Removes the interface, after an ADD of it that is under way has given up.
///
/// # Errors
/// [`PartialCleanup`] if something could not be removed or looked for. Everything else was removed.
pub async fn del(
    subject: &Subject,
    conf: &NetConf,
    settings: &Settings,
) -> Result<Removed, PartialCleanup> {
    let identity = Identity {
        sandbox: subject.sandbox.clone(),
        if_name: subject.if_name.clone(),
        network: conf.network.clone(),
    };
    // The lock comes first: an ADD that is under way could create what this DEL has already looked
    // for.
    let _fence = InterfaceLock::take_over(&settings.calls, &identity).await;
    let detacher =
        Detacher::open(settings, SHORT_TIMEOUT).await.flushing_for(failpoint::patience(FLUSH));
    detacher.detach(&identity, Connections::Of(&addresses(conf, &identity))).await
}

/// The interface's addresses in the result that the runtime stored, which may be missing or
/// malformed.
fn addresses(conf: &NetConf, identity: &Identity) -> Vec<IpAddr> {
    let prev: Option<PrevResult> =
        conf.prev_result.clone().and_then(|value| serde_json::from_value(value).ok());
    let prev = prev.unwrap_or_default();
    prev.addresses_of(identity.if_name.as_str()).map(|ip| ip.address.addr()).collect()
}
