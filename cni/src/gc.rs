//! GC: removes the interfaces of this network that the runtime no longer knows. Everything of other
//! networks, and everything without an ownership tag of this project, stays. An error with one
//! interface does not stop the removal of the others.

use std::collections::BTreeSet;

use contract::{
    error::chain,
    external_ids,
    names::{IfName, SandboxId},
    net_conf::{NetConf, ValidAttachment},
};
use podnet::{
    detach::{Connections, DetachError, Detacher, PartialCleanup, flush_left},
    interface_lock::{self, InterfaceLock},
    link,
    ownership_tag::OwnershipTag,
    plan::Identity,
    rows::{InterfaceRow, sandbox_of},
    settings::{SHORT_TIMEOUT, Settings},
};

/// Why stale interfaces are left.
#[derive(Debug, thiserror::Error)]
pub enum GcError {
    #[error("look for interfaces")]
    Look(#[from] DetachError),
    #[error("{0} of the stale interfaces")]
    PartialCleanup(usize, #[source] PartialCleanup),
}

/// Removes the interfaces that are not in the configuration's list of valid attachments, and
/// returns them. Without a list, removes nothing.
///
/// # Errors
/// [`GcError::Look`] if the interfaces cannot be listed, and nothing was removed;
/// [`GcError::PartialCleanup`] if some of them could not be removed completely.
pub async fn gc(conf: &NetConf, settings: &Settings) -> Result<Vec<Identity>, GcError> {
    let Some(valid) = conf.valid_attachments.as_deref() else {
        // cnitool sends no list, after a DEL of each attachment that it knows. Removing nothing is
        // better than removing everything.
        tracing::warn!(
            "nothing removed: the configuration does not say which attachments are valid \
             (cni.dev/valid-attachments)"
        );
        return Ok(Vec::new());
    };
    let detacher = Detacher::open(settings, SHORT_TIMEOUT).await;
    let rows = detacher.bridge()?.of_all_sandboxes().await.map_err(DetachError::Ports)?;
    let links = link::list().await.map_err(DetachError::from)?;

    // Rows and links: a plugin that was killed between the two has left a link without a row. An
    // alias has the key of the network, not its name.
    let of_rows =
        rows.iter().filter(|row| row.is_of(&conf.network)).filter_map(|row| identity_of(row, conf));
    let of_links = links.iter().filter_map(|link| {
        let Identity { sandbox, if_name, network } = OwnershipTag::read(&link.alias)?.identity;
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
        // An ADD that is under way may not be in the runtime's list yet.
        let Ok(_fence) = InterfaceLock::take(&settings.calls, &identity) else {
            tracing::info!(
                sandbox = %identity.sandbox,
                ifname = %identity.if_name,
                "left alone: a call for it is under way"
            );
            continue;
        };
        match detacher.detach(&identity, Connections::Of(&[])).await {
            Ok(_) => {
                tracing::info!(
                    sandbox = %identity.sandbox,
                    ifname = %identity.if_name,
                    "removed a stale interface"
                );
                removed.push(identity);
            }
            Err(leftover) => failures.push(leftover),
        }
    }
    // What removals had no time for, in case that there is no server.
    match flush_left(settings).await {
        Ok(addresses) if addresses.is_empty() => {}
        Ok(addresses) => {
            tracing::info!(?addresses, "removed tracked connections that a DEL had left")
        }
        Err(error) => {
            tracing::warn!(
                error = chain(&error),
                "tracked connections that a DEL had left are not removed"
            )
        }
    }
    if let Err(error) = interface_lock::remove_stale(&settings.calls, interface_lock::STALE) {
        tracing::debug!(%error, "cannot remove the lock files of killed calls");
    }
    let count = failures.len();
    let joined = failures.into_iter().reduce(|mut all, one| {
        all.errors.extend(one.errors);
        all
    });
    match joined {
        None => Ok(removed),
        Some(leftover) => Err(GcError::PartialCleanup(count, leftover)),
    }
}

/// The interface that a row belongs to. Rows of upstream before 2026 do not name the pod's
/// interface: then it is the one that the runtime lists for this sandbox, or else `eth0`.
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
