//! The approver of certificates with which the servers of nodes authenticate (upstream's
//! `OVNKubeCSRController`). It decides about CertificateSigningRequests for users
//! `system:ovn-node:NODE`, and about no others. The cluster's own signer signs what is approved.
//!
//! ```text
//! CertificateSigningRequests ─▶ Request ─▶ Queue (limits) ─▶ judge ─▶ is there a node? ─▶ approval
//! ```
//!
//! | module | noun |
//! |---|---|
//! | `request` | a request as it was read: who asks for which subject |
//! | `judge`(mod@judge) | what is approved, and each reason why not |
//! | `queue` | the open requests: how many may wait, and which is next |

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kubeapi::{
    Connection, Trouble,
    election::Leadership,
    events::{Event, EventReason, Recorder},
    metrics::Metrics,
    object::Object,
    patch::{self, Patch},
    watch::{Prompt, Seen, Watch, Watched},
};
use serde_json::json;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    csr_approver::{
        queue::{LONGEST_QUEUE, Next, OF_ONE_USER, Queue, Queued},
        request::{Request, SigningRequest},
    },
    key::NodeName,
};

mod judge;
mod queue;
mod request;

/// The timeout of one answer of the API server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two decisions: 20 a second at most. A cluster of 1,000 nodes that all start has its
/// certificates within a minute; a flood of requests costs the API server no more than the
/// heartbeats of 200 kubelets.
const PACE: Duration = Duration::from_millis(50);
/// When a request is looked at again whose node does not exist yet, or about which the API server
/// has not answered. A kubelet registers its node some seconds after it has started.
const AGAIN: Duration = Duration::from_secs(10);
/// How soon all requests are listed again after some have found no place.
const RELIST: Duration = Duration::from_secs(60);
/// `action` of the events.
const ACTION: &str = "ApproveCertificate";

/// The approver. It works while this process leads.
#[derive(Debug)]
pub struct CsrApprover {
    pub api: Connection,
    pub leadership: Leadership,
    pub recorder: Recorder,
    pub metrics: Metrics,
    /// Users that may request the first certificate of any node, besides the kubelet of that node.
    pub bootstrap_users: BTreeSet<String>,
}

/// What the watch and the decisions share.
#[derive(Debug, Default)]
struct Open {
    queue: Mutex<Queue>,
    changed: Notify,
}

impl CsrApprover {
    /// Works until it is dropped, or this process does not lead any more.
    pub async fn run(self) {
        let open = Arc::new(Open::default());
        let (of_watch, recorder) = (Arc::clone(&open), self.recorder.clone());
        let watch = Watch::start_leading::<SigningRequest, _>(
            self.api.clone(),
            self.leadership.clone(),
            self.metrics.clone(),
            || std::future::ready(()),
            |_| (),
            move |seen| of_watch.observe(seen, &recorder),
        );
        let prompt = watch.prompt();
        self.leadership.won().await;
        tokio::select! {
            () = self.leadership.lost() => {}
            () = self.decide(&open, &prompt) => {}
        }
    }

    async fn decide(&self, open: &Open, prompt: &Prompt) {
        let mut listed = Instant::now();
        loop {
            // In a statement of its own: the lock is not held while this waits.
            let next = open.queue().next(Instant::now());
            match next {
                Next::Ready(request) => {
                    self.decide_on(open, &request).await;
                    sleep(PACE).await;
                }
                Next::At(due) => {
                    tokio::select! {
                        () = sleep_until(due) => {}
                        () = open.changed.notified() => {}
                    }
                }
                Next::Empty { left_out: 0 } => open.changed.notified().await,
                // Some have found no place; there is room now.
                Next::Empty { left_out } => {
                    sleep_until(listed + RELIST).await;
                    tracing::info!(
                        left_out,
                        "listing certificate signing requests that had to wait"
                    );
                    listed = Instant::now();
                    open.queue().forgive();
                    prompt.everything();
                }
            }
        }
    }

    async fn decide_on(&self, open: &Open, request: &Arc<Request>) {
        let name = &*request.name;
        let again = || open.queue().again(request, Instant::now() + AGAIN);
        let verdict = match judge::judge(request, &self.bootstrap_users) {
            Err(refusal) => Err(refusal.to_string()),
            Ok(node) => match self.exists(&node).await {
                Ok(true) => Ok(node),
                Ok(false) => {
                    tracing::info!(name, %node, "a certificate is requested for a node that does not exist yet");
                    return again();
                }
                Err(trouble) => {
                    tracing::warn!(name, %node, problem = %trouble, "cannot find out whether a node exists");
                    return again();
                }
            },
        };
        if !self.leadership.is_leader() {
            return;
        }
        let condition = match &verdict {
            Ok(node) => json!({"type": "Approved", "status": "True", "reason": "AutoApproved",
                "message": format!("user {} may have the certificate of node {node}", request.user)}),
            Err(why) => {
                json!({"type": "Denied", "status": "True", "reason": "CSRDenied", "message": why})
            }
        };
        let user = &request.user;
        match self.write(request, condition).await {
            Ok(()) => match verdict {
                Ok(node) => {
                    tracing::info!(name, user, %node, "approved a certificate signing request")
                }
                Err(why) => {
                    tracing::warn!(
                        name,
                        user,
                        problem = why,
                        "denied a certificate signing request"
                    );
                }
            },
            // Somebody else has decided; the watch shows it.
            Err(trouble) if patch::is_gone(&trouble) || trouble.code == Some(409) => {}
            Err(trouble) => {
                tracing::warn!(name, user, problem = %trouble, "cannot decide on a certificate signing request");
                again();
            }
        }
    }

    async fn exists(&self, node: &str) -> Result<bool, Trouble> {
        let nodes = Api::<Node>::all(self.api.client().clone());
        let found = self.api.ask(PATIENCE, nodes.get_metadata_opt(node)).await?;
        Ok(found.is_some())
    }

    /// Writes the only condition that the request has. `resourceVersion`: nobody else has decided
    /// meanwhile.
    async fn write(&self, request: &Request, condition: serde_json::Value) -> Result<(), Trouble> {
        let change = json!({
            "metadata": {"uid": request.uid, "resourceVersion": request.version},
            "status": {"conditions": [condition]},
        });
        let (collection, patch) = (SigningRequest::PATH, Patch::Merge(change));
        patch::subresource(&self.api, PATIENCE, collection, &request.name, "approval", patch).await
    }
}

impl Open {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observe(&self, seen: Seen<Arc<str>, Option<Request>>, recorder: &Recorder) {
        let mut queue = self.queue();
        let put = |queue: &mut Queue, request: Request| {
            let (user, node) = (request.user.clone(), request.own_node());
            match queue.put(request, Instant::now()) {
                Queued::Waits => {}
                Queued::TooManyOfUser => tell_of_too_many(recorder, &user, node),
                Queued::TooMany => tracing::warn!(
                    limit = LONGEST_QUEUE,
                    "too many certificate signing requests wait; others are looked at after them"
                ),
            }
        };
        match seen {
            Seen::All(requests) => {
                queue.clear();
                for request in requests.into_iter().flatten() {
                    put(&mut queue, request);
                }
            }
            Seen::Applied(Some(request)) if request.is_open => put(&mut queue, request),
            Seen::Applied(Some(request)) => queue.remove(&request.name),
            Seen::Applied(None) | Seen::Unlisted(_) => {}
            Seen::Deleted(name) => queue.remove(&name),
        }
        drop(queue);
        self.changed.notify_one();
    }
}

/// A user has more open requests than one may have. On its node, if it is one's.
fn tell_of_too_many(recorder: &Recorder, user: &str, node: Option<NodeName>) {
    tracing::warn!(
        user,
        limit = OF_ONE_USER,
        "a user has too many open certificate signing requests; those beyond the limit have to wait"
    );
    let Some(node) = node else { return };
    let reason = EventReason::new(ACTION, "TooManyCertificateRequests");
    let note = format!(
        "user {user} has more than {OF_ONE_USER} open certificate signing requests: those beyond have to wait"
    );
    recorder.event(Event::new(Object::Node(node), "", reason, note));
}

#[cfg(test)]
mod tests;
