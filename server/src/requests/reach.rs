//! Whether addresses answer this node, or a pod of it, for `ovnkube status` and `ovnkube diagnose`.

use std::{path::Path, time::Duration};

use contract::paths::NETNS_DIR;
use podnet::{
    pod_look::{netns_of, wire::InsideRequest},
    reach::{
        reach,
        wire::{ReachAnswer, ReachRequest, ReachTarget, Reached},
    },
};
use tokio::task::spawn_blocking;

use super::{ApiResponse, HandlerState, SwitchPlaces};
use crate::api_error::ApiError;

/// How long a target may take. A packet that is not lost needs a thousandth of it.
const PATIENCE: Duration = Duration::from_millis(1500);

impl HandlerState {
    pub(super) async fn reach(&self, request: ReachRequest) -> Result<ApiResponse, ApiError> {
        let ReachRequest { pod, targets } = request;
        let mtu = self.add.mtu.bytes();
        let answer = match self.switch.reach(pod.as_ref(), targets, mtu).await {
            Ok(replies) => ReachAnswer { replies, ..ReachAnswer::default() },
            Err(problem) => ReachAnswer { problem: Some(problem), ..ReachAnswer::default() },
        };
        ApiResponse::json(&ReachAnswer { node: self.node.clone(), ..answer })
    }
}

impl SwitchPlaces {
    async fn reach(
        &self,
        pod: Option<&InsideRequest>,
        targets: Vec<ReachTarget>,
        mtu: u32,
    ) -> Result<Vec<Reached>, String> {
        let host_link = match pod {
            Some(pod) => {
                let committed = self.committed_of(pod, mtu).await?;
                let first = committed.into_iter().next();
                Some(first.ok_or("the pod has no port on this node")?.host_link)
            }
            None => None,
        };
        let asked = spawn_blocking(move || {
            let netns = host_link.map(|link| netns_of(&link, Path::new(NETNS_DIR))).transpose()?;
            reach(netns.as_ref(), &targets, PATIENCE).map_err(|error| error.to_string())
        });
        asked.await.map_err(|error| error.to_string())?
    }
}
