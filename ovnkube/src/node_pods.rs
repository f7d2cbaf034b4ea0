//! The servers of nodes: that of this machine is asked over its socket, those of others in their
//! pods, as `kubectl exec` would, if the user may.
//!
//! Must not know what an answer means. What a pod prints is as trustworthy as who may create pods
//! in the network's own namespace.

use std::{path::Path, time::Duration};

use contract::wire::{NODE_PATH, NodeAnswer};
use kubeapi::{
    Connection,
    exec::{Container, Printed},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::{
    api_query::list,
    findings::ReportedFinding,
    node_server::{self, ASK, LONGEST, Silence},
};

/// The label of the pods of nodes, in the manifests and the chart.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "ovn-kubernetes-node");
/// The container with the server, and the program in it.
const OVNKUBE: &str = "ovnkube";
/// How long a pod may take: a start of a process takes some 100 ms, and what it asks may not
/// answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where servers of nodes can be asked.
#[derive(Debug)]
pub(crate) struct NodeServers<'a> {
    /// Of the server of this machine.
    socket: &'a Path,
    /// The namespace of the pods.
    namespace: &'a str,
    /// `None`: it is not known, or does not answer.
    api: Option<Connection>,
    /// What this machine's server says of itself.
    here: OnceCell<Result<NodeAnswer, Silence>>,
}

/// Why a server has not answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// It was not asked.
    Unasked(String),
    Failed(String),
}

impl<'a> NodeServers<'a> {
    pub(crate) fn new(socket: &'a Path, namespace: &'a str, api: Option<Connection>) -> Self {
        Self { socket, namespace, api, here: OnceCell::new() }
    }

    /// Whether this machine is the node.
    pub(crate) async fn is_here(&self, node: &str) -> bool {
        self.here().await.as_ref().is_ok_and(|answer| answer.node == node)
    }

    async fn here(&self) -> &Result<NodeAnswer, Silence> {
        let ask = || node_server::ask(self.socket, NODE_PATH, Vec::new());
        self.here.get_or_init(ask).await
    }

    /// Asks the server of the node.
    ///
    /// # Errors
    ///
    /// It cannot be asked from here, or does not answer the question.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        node: &str,
        path: &'static str,
        question: &impl Serialize,
    ) -> Result<T, NoAnswer> {
        let failed = |why: &str| NoAnswer::Failed(format!("the node's server {why}"));
        let body = serde_json::to_string(question).map_err(|error| failed(&error.to_string()))?;
        let not_here = match self.here().await {
            Ok(answer) if answer.node == node => {
                let answer = node_server::ask(self.socket, path, body.into_bytes()).await;
                return answer.map_err(|silence| failed(&silence.why(self.socket)));
            }
            Ok(answer) => format!("this is node {}", answer.node),
            Err(Silence::NoServer) => {
                "not asked: this machine is no node, or its server does not run".to_owned()
            }
            Err(silence) => {
                format!("not asked: the server of this node {}", silence.why(self.socket))
            }
        };
        if self.api.is_none() {
            return Err(NoAnswer::Unasked(not_here));
        }
        let (pod, printed) = self
            .in_pod(node, &[ASK, path, &body])
            .await
            .map_err(|why| NoAnswer::Unasked(format!("{not_here}, and {why}")))?;
        let answer = serde_json::from_slice(&printed.output);
        answer.map_err(|_| NoAnswer::Failed(why(&printed, &pod)))
    }

    /// What `ovnkube` with these arguments finds out in the pod of the node. It should ask no other
    /// pod.
    ///
    /// # Errors
    ///
    /// There is no such pod, or this user may not run anything in it.
    pub(crate) async fn found(
        &self,
        node: &str,
        arguments: &[&str],
    ) -> Result<Vec<ReportedFinding>, String> {
        let (pod, printed) = self.in_pod(node, &[arguments, &["--output=json"]].concat()).await?;
        // Its exit status says how bad it is.
        let report = serde_json::from_slice::<Reported>(&printed.output);
        report.map(|report| report.findings).map_err(|_| why(&printed, &pod))
    }

    /// The pod of the node, and what `ovnkube` with these arguments prints in it.
    async fn in_pod(&self, node: &str, arguments: &[&str]) -> Result<(String, Printed), String> {
        let (api, namespace) = (self.api.as_ref().ok_or("no API server is asked")?, self.namespace);
        let collection = format!("/api/v1/namespaces/{namespace}/pods");
        let pods = list(api, &collection, &format!("spec.nodeName={node}")).await;
        let pods = pods.map_err(|trouble| format!("the node's pod is not found: {trouble}"))?;
        let Some(pod) = pods.items.iter().find(|pod| is_of_server(pod)) else {
            let (key, value) = LABEL;
            return Err(format!("no pod with the label {key}={value} runs there in {namespace}"));
        };
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let container = Container { namespace, pod: name, name: OVNKUBE };
        let command = [&[OVNKUBE], arguments].concat();
        let pod = format!("pod {namespace}/{name}");
        match api.exec(container, &command, LONGEST as u64, PATIENCE).await {
            Ok(printed) => Ok((pod, printed)),
            Err(trouble) => Err(format!("{pod} is not asked: {trouble}")),
        }
    }
}

/// A report that another process has written.
#[derive(Debug, Deserialize)]
struct Reported {
    findings: Vec<ReportedFinding>,
}

/// Whether it is the running pod of a node's server.
fn is_of_server(pod: &Value) -> bool {
    let (key, value) = LABEL;
    pod["metadata"]["labels"][key] == value && pod["status"]["phase"] == "Running"
}

/// Why what a pod has printed is no answer.
fn why(printed: &Printed, pod: &str) -> String {
    let failure = printed.failure.as_deref().unwrap_or("it prints something else");
    format!("{pod} does not answer: {}", printed.errors.lines().next().unwrap_or(failure))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_running_pod_of_the_server_is_asked() {
        let pod = |name: &str, phase: &str| {
            json!({
                "metadata": {"labels": {"app.kubernetes.io/name": name}},
                "status": {"phase": phase},
            })
        };
        for (name, phase, is_asked) in [
            ("ovn-kubernetes-node", "Running", true),
            ("ovn-kubernetes-node", "Pending", false),
            ("ovn-kubernetes-controller", "Running", false),
        ] {
            assert_eq!(is_of_server(&pod(name, phase)), is_asked, "{name} {phase}");
        }
    }

    #[test]
    fn an_older_program_in_the_pod_is_told_in_its_own_words() {
        let printed = |errors: &str, failure: Option<&str>| Printed {
            output: Vec::new(),
            errors: errors.to_owned(),
            failure: failure.map(str::to_owned),
        };
        let older = printed("ovnkube: there is no command \"ask-server\"\nCommands: …\n", None);
        assert_eq!(
            why(&older, "pod a/b"),
            "pod a/b does not answer: ovnkube: there is no command \"ask-server\""
        );
        let killed = printed("", Some("command terminated with exit code 137"));
        assert!(why(&killed, "pod a/b").ends_with("exit code 137"));
    }
}
