//! The start of a node without a gateway that had one of this program: it is removed, as by
//! `--cleanup-node`. That of another program stays.

use std::{collections::BTreeMap, time::Duration};

use contract::{backoff::Backoff, error::chain};
use ovsdb::Event;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    Published, Ties,
    bridge::{self, Seen},
    cleanup::remove,
    plan::{annotation_disabled, annotation_without},
};
use crate::{
    conditions::Part,
    node::{changed, object::NodeView},
};

/// How long one attempt may wait for the database and for ovs-vswitchd, which answer at once if
/// they work.
const PATIENCE: Duration = Duration::from_secs(5);

/// Removes the gateway of an earlier configuration, if there is one. Ends when it is gone.
pub(in crate::node) async fn retire(ties: Ties) {
    let Ties { client, conditions, endpoint, ovs_run_dir, published, view, .. } = ties;
    let mut updates = client.replicate(bridge::monitor());
    while !matches!(updates.next().await, Event::Connected) {}
    let marked = Seen::look(&updates).marked();
    if marked.is_empty() {
        return conditions.met(Part::GATEWAY);
    }
    // All before the bridge: its mark tells a later start that there is something to remove.
    if let Some(mut view) = view {
        conditions.missing(Part::GATEWAY, "the node's annotation still has an earlier gateway");
        published.send_replace(Published::Disabled);
        follow(&mut view, |annotations| annotation_disabled(annotations).is_none()).await;
        // ovn-controller removes the patch port once the controller has removed the rows of the
        // gateway.
        conditions.missing(
            Part::GATEWAY,
            "the control plane has not removed the rows of an earlier gateway yet",
        );
        while marked
            .iter()
            .any(|name| bridge::patch_ports(&updates).iter().any(|port| port.is_of(name)))
        {
            updates.next().await;
        }
        // Without a gateway router, a missing annotation means no gateway: pods leave by the
        // management port.
        published.send_replace(Published::Gone);
        follow(&mut view, |annotations| annotation_without(annotations).is_none()).await;
    }
    let mut backoff = Backoff::default();
    loop {
        let why = match timeout(PATIENCE, remove(&endpoint, &ovs_run_dir)).await {
            Ok(Ok(removed)) => {
                removed.log();
                return conditions.met(Part::GATEWAY);
            }
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        conditions.missing(Part::GATEWAY, format!("an earlier gateway cannot be removed: {why}"));
        sleep(backoff.next(None)).await;
    }
}

/// Waits until the annotations of the node's object, if there is one, are as wanted.
async fn follow(
    view: &mut watch::Receiver<NodeView>,
    is_wanted: impl Fn(&BTreeMap<String, String>) -> bool,
) {
    loop {
        match &*view.borrow_and_update() {
            NodeView::There(seen) if is_wanted(&seen.annotations) => return,
            NodeView::Absent => return,
            NodeView::There(_) | NodeView::Unknown(_) => {}
        }
        changed(view).await;
    }
}
