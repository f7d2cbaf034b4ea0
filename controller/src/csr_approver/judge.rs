//! What is approved: the certificate of a node's server, for the kubelet of the node, for the
//! server itself, or for a user that the administrator names. Pure.

use std::collections::BTreeSet;

use contract::{
    names::check_node_name,
    node_identity::{
        GROUP, KUBELET_PREFIX, KUBELETS, LONGEST_SECONDS, SHORTEST_SECONDS, USAGES, USER_PREFIX,
    },
};

use crate::{
    csr_approver::request::{Request, Subject},
    key::NodeName,
};

/// Why a request is denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "subject of common name {0:?}: it has to be O={GROUP} and CN={USER_PREFIX}NODE, and nothing else"
    )]
    Subject(String),
    #[error("the request for {0:?} has extensions: the certificate of a node has no further names")]
    Extensions(String),
    #[error("{0:?} in the common name is not the name of a node")]
    NodeName(String),
    #[error("usages {0:?}: they have to be {USAGES:?}")]
    Usages(Vec<String>),
    #[error(
        "expirationSeconds are missing: they have to be from {SHORTEST_SECONDS} to {LONGEST_SECONDS}"
    )]
    NoExpiration,
    #[error("expirationSeconds {0}: they have to be from {SHORTEST_SECONDS} to {LONGEST_SECONDS}")]
    Expiration(i32),
    #[error(
        "user {user:?} may not request the certificate of node {node:?}: its kubelet may, the server of the \
         node, and users of --node-bootstrap-users"
    )]
    User { user: String, node: String },
    #[error("user {user:?} is not in group {group:?}")]
    NotInGroup { user: String, group: &'static str },
    #[error("the token of user {user:?} is that of a pod on node {of:?}, not of node {node:?}")]
    OtherNodesToken { user: String, of: Vec<String>, node: String },
}

/// The node whose server gets the certificate.
///
/// # Errors
///
/// The first thing that does not fit.
pub(super) fn judge(
    request: &Request,
    bootstrap_users: &BTreeSet<String>,
) -> Result<NodeName, Refusal> {
    let common_name = match &request.subject {
        Subject::Plain { organization, common_name } if organization == GROUP => common_name,
        Subject::Plain { common_name, .. } | Subject::Other { common_name } => {
            return Err(Refusal::Subject(common_name.clone()));
        }
        Subject::WithExtensions { common_name } => {
            return Err(Refusal::Extensions(common_name.clone()));
        }
    };
    let node = common_name.strip_prefix(USER_PREFIX).unwrap_or_default();
    if check_node_name(node).is_err() {
        return Err(Refusal::NodeName(node.to_owned()));
    }
    let usages: BTreeSet<&str> = request.usages.iter().map(String::as_str).collect();
    if usages != BTreeSet::from(USAGES) || request.usages.len() != USAGES.len() {
        return Err(Refusal::Usages(request.usages.clone()));
    }
    let seconds = request.expiration_seconds.ok_or(Refusal::NoExpiration)?;
    if !u64::try_from(seconds)
        .is_ok_and(|seconds| (SHORTEST_SECONDS..=LONGEST_SECONDS).contains(&seconds))
    {
        return Err(Refusal::Expiration(seconds));
    }
    requester(request, node, bootstrap_users)?;
    Ok(node.into())
}

/// Whether the user may have the certificate of this node.
fn requester(
    request: &Request,
    node: &str,
    bootstrap_users: &BTreeSet<String>,
) -> Result<(), Refusal> {
    let user = &request.user;
    let in_group = |group: &'static str| {
        let is_in = request.groups.iter().any(|other| other == group);
        if is_in { Ok(()) } else { Err(Refusal::NotInGroup { user: user.clone(), group }) }
    };
    if user.strip_prefix(USER_PREFIX) == Some(node) {
        return in_group(GROUP);
    }
    if user.strip_prefix(KUBELET_PREFIX) == Some(node) {
        return in_group(KUBELETS);
    }
    // The name alone does not make a user of another node one of the administrator's.
    if request.own_node().is_some() || !bootstrap_users.contains(user) {
        return Err(Refusal::User { user: user.clone(), node: node.to_owned() });
    }
    // The token of a pod belongs to the node of the pod, which the API server vouches for.
    if request.nodes_of_token.iter().any(|of| of != node) {
        let of = request.nodes_of_token.clone();
        return Err(Refusal::OtherNodesToken { user: user.clone(), of, node: node.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
