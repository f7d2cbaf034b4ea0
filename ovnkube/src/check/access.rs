//! Rights at the API server: those of the control plane and of a node's server, asked for the user
//! of this command.

use kube::core::Request;
use kubeapi::{ApiServer, Connection};
use serde_json::{Value, json};

use super::machine::RIGHTS;
use crate::{
    findings::{Finding, State},
    status::{PATIENCE, Reach},
};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// Verb, group, resource and subresource of what the programs do in a cluster.
const NEEDED: [(&str, &str, &str, &str); 9] = [
    ("list", "", "nodes", ""),
    ("list", "", "pods", ""),
    ("list", "", "namespaces", ""),
    ("list", "", "services", ""),
    ("list", "discovery.k8s.io", "endpointslices", ""),
    ("list", "networking.k8s.io", "networkpolicies", ""),
    ("patch", "", "nodes", "status"),
    ("patch", "", "pods", "status"),
    ("create", "events.k8s.io", "events", ""),
];

pub(super) async fn findings(reach: &Reach<ApiServer>) -> Vec<Finding> {
    let one = |state, said: &str| vec![Finding::new(RIGHTS, "API server", state, said)];
    let api_server = match reach {
        Reach::Known(api_server) => api_server,
        Reach::NotGiven => {
            return one(
                State::Skipped,
                "not asked: no kubeconfig is given (--k8s-kubeconfig FILE)",
            );
        }
        Reach::Unusable(why) => return one(State::Unknown, why),
    };
    let api = Connection::open(api_server.clone());
    let answers = NEEDED.into_iter().map(|right| may(&api, right));
    let answers = futures_util::future::join_all(answers).await;
    let mut missing = Vec::new();
    for ((verb, group, resource, subresource), answer) in NEEDED.into_iter().zip(answers) {
        let separator = |text: &str, sign: &str| {
            if text.is_empty() { String::new() } else { format!("{sign}{text}") }
        };
        let name =
            format!("{verb} {resource}{}{}", separator(group, "."), separator(subresource, "/"));
        match answer {
            Ok(true) => {}
            Ok(false) => missing.push(name),
            // One reason is the same for all.
            Err(why) => return one(State::Unknown, &why),
        }
    }
    match missing.is_empty() {
        true => one(
            State::Ok,
            &format!("this user has the {} rights that the programs need", NEEDED.len()),
        ),
        false => {
            let why =
                format!("this user lacks rights that the programs need: {}", missing.join(", "));
            let warning = Finding::new(RIGHTS, "API server", State::Warning, &why);
            vec![warning.next("the roles of conf/helm, if this is the user of the programs")]
        }
    }
}

async fn may(
    api: &Connection,
    (verb, group, resource, subresource): (&str, &str, &str, &str),
) -> Result<bool, String> {
    let attributes =
        json!({"verb": verb, "group": group, "resource": resource, "subresource": subresource});
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let request = Request::new(REVIEWS)
        .create(&kube::api::PostParams::default(), review.to_string().into_bytes());
    let request = request.map_err(|error| error.to_string())?;
    let answer = api.ask(PATIENCE, api.client().request::<Value>(request)).await;
    answer.map(|answer| answer["status"]["allowed"] == true).map_err(|trouble| trouble.to_string())
}
