//! GC: removes the interfaces of this network that the runtime no longer knows. Everything of other networks, and everything that
//! carries no mark of ours, stays. An error with one does not keep the others.

use std::collections::BTreeSet;

use contract::{
    external_ids,
    names::{IfName, SandboxId},
    net_conf::{NetConf, ValidAttachment},
};
use podnet::{
    detach::{Connections, DetachError, Detacher, Leftover},
    fence::{self, Fence},
    link,
    mark::Mark,
    plan::Identity,
    rows::{InterfaceRow, sandbox_of},
    settings::{SHORT_TIMEOUT, Settings},
};

/// Why not all that should go is gone.
#[derive(Debug, thiserror::Error)]
pub enum GcError {
    #[error("look for interfaces")]
    Look(#[from] DetachError),
    #[error("{0} of the stale interfaces")]
    Leftover(usize, #[source] Leftover),
}

/// Removes what is not in the configuration's list; says what that was.
pub async fn gc(conf: &NetConf, settings: &Settings) -> Result<Vec<Identity>, GcError> {
    let Some(valid) = conf.valid_attachments.as_deref() else {
        // cnitool sends none, after a DEL of every attachment that it knows. Better nothing removed than everything.
        tracing::warn!("nothing removed: the configuration does not say which attachments are valid (cni.dev/valid-attachments)");
        return Ok(Vec::new());
    };
    let detacher = Detacher::open(settings, SHORT_TIMEOUT).await;
    let rows = detacher.bridge()?.of_all_sandboxes().await.map_err(DetachError::Ports)?;
    let links = link::list().await.map_err(DetachError::from)?;

    let of_rows = rows.iter().filter(|row| row.is_of(&conf.network)).filter_map(|row| identity_of(row, conf));
    let of_links = links.iter().filter_map(|link| {
        let Identity { sandbox, if_name, network } = Mark::read(&link.alias)?.identity;
        (network.annotation_key() == conf.network.annotation_key()).then_some((sandbox, if_name))
    });
    let found: BTreeSet<(SandboxId, IfName)> = of_rows.chain(of_links).collect();

    let mut removed = Vec::new();
    let mut failures = Vec::new();
    for (sandbox, if_name) in found {
        if valid.contains(&ValidAttachment { sandbox: sandbox.clone(), if_name: if_name.clone() }) {
            continue;
        }
        let identity = Identity { sandbox, if_name, network: conf.network.clone() };
        let Ok(_fence) = Fence::take(&settings.calls, &identity) else {
            tracing::info!(sandbox = %identity.sandbox, ifname = %identity.if_name, "left alone: a call for it is under way");
            continue;
        };
        match detacher.detach(&identity, Connections::Of(&[])).await {
            Ok(_) => {
                tracing::info!(sandbox = %identity.sandbox, ifname = %identity.if_name, "removed a stale interface");
                removed.push(identity);
            }
            Err(leftover) => failures.push(leftover),
        }
    }
    if let Err(error) = fence::remove_stale(&settings.calls, fence::STALE) {
        tracing::debug!(%error, "files of calls that were killed are left");
    }
    let count = failures.len();
    let joined = failures.into_iter().reduce(|mut all, one| {
        all.errors.extend(one.errors);
        all
    });
    match joined {
        None => Ok(removed),
        Some(leftover) => Err(GcError::Leftover(count, leftover)),
    }
}

/// Whose a row is. Rows of upstream before 2026 do not name the pod's interface: then it is the one that the runtime says this
/// sandbox has, or else the usual name.
fn identity_of(row: &InterfaceRow, conf: &NetConf) -> Option<(SandboxId, IfName)> {
    let sandbox = sandbox_of(row)?;
    let known = || {
        let valid = conf.valid_attachments.as_deref().unwrap_or_default();
        valid.iter().find(|valid| valid.sandbox == sandbox).map(|valid| valid.if_name.clone())
    };
    let if_name = match row.id(external_ids::POD_IF_NAME) {
        Some(name) => name.parse().ok()?,
        None => known().unwrap_or("eth0".parse().ok()?),
    };
    Some((sandbox, if_name))
}
