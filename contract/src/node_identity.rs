//! The identity of a node's server at the API server: a client certificate for a user of its own,
//! as upstream's node identity has it. The server asks for it, the cluster manager approves it, and
//! the policy of admission in the manifests limits what the user may write.

/// The user of a node's server is this and the name of the node.
pub const USER_PREFIX: &str = "system:ovn-node:";
/// The group of all these users, to which the rights are bound.
pub const GROUP: &str = "system:ovn-nodes";
/// The signer of Kubernetes for client certificates of the API server.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// The usages of the certificate, exactly.
pub const USAGES: [&str; 2] = ["digital signature", "client auth"];

/// The user of a kubelet is this and the name of its node; the API server vouches for both.
pub const KUBELET_PREFIX: &str = "system:node:";
/// The group of all kubelets.
pub const KUBELETS: &str = "system:nodes";
/// Where the API server says in a user's `extra` which node a service account's token belongs to
/// (Kubernetes 1.30).
pub const NODE_OF_TOKEN: &str = "authentication.kubernetes.io/node-name";

/// The shortest validity that the API server lets a client ask for, in seconds
/// (`certificates.k8s.io/v1`, `expirationSeconds`).
pub const SHORTEST_SECONDS: u64 = 600;
/// The longest validity that is approved, in seconds: a year, as with upstream.
pub const LONGEST_SECONDS: u64 = 365 * 24 * 60 * 60;

/// The user of the server of `node`.
pub fn user(node: &str) -> String {
    format!("{USER_PREFIX}{node}")
}
