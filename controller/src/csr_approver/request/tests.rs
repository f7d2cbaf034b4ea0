use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
use serde_json::{Value, json};

use super::*;

/// A request in the form of PKCS #10.
pub(crate) fn pem(subject: &[(DnType, DnValue)], names: &[&str]) -> String {
    let mut params =
        CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
            .unwrap();
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), value.clone());
    }
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

pub(crate) fn utf8(kind: DnType, text: &str) -> (DnType, DnValue) {
    (kind, DnValue::Utf8String(text.to_owned()))
}

/// The subject of the server of `node`.
pub(crate) fn of_node(node: &str) -> String {
    let user = utf8(DnType::CommonName, &format!("system:ovn-node:{node}"));
    pem(&[utf8(DnType::OrganizationName, "system:ovn-nodes"), user], &[])
}

/// An object of the kubelet of node n1 with this request.
pub(crate) fn object(name: &str, pem: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "7"},
        "spec": {
            "request": k8s_openapi::ByteString(pem.as_bytes().to_vec()),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["digital signature", "client auth"],
            "username": "system:node:n1",
            "groups": ["system:nodes", "system:authenticated"],
            "expirationSeconds": 600,
        },
        "status": {},
    })
}

fn value(object: Value) -> Option<Request> {
    serde_json::from_value::<SigningRequest>(object).unwrap().value().unwrap()
}

#[test]
fn a_request_for_a_nodes_server_is_read_with_what_the_api_server_vouches_for() {
    let mut object = object("csr-1", &of_node("n1"));
    object["spec"]["extra"] =
        json!({"authentication.kubernetes.io/node-name": ["n1"], "other": ["x"]});
    let request = value(object).unwrap();
    assert_eq!(
        (&*request.name, request.uid.as_str(), request.version.as_str()),
        ("csr-1", "uid-csr-1", "7")
    );
    assert_eq!(request.user, "system:node:n1");
    assert_eq!(request.own_node().as_deref(), Some("n1"));
    assert_eq!(request.nodes_of_token, ["n1"]);
    assert!(request.is_open);
    let plain = Subject::Plain {
        organization: "system:ovn-nodes".to_owned(),
        common_name: "system:ovn-node:n1".to_owned(),
    };
    assert_eq!(request.subject, plain);
}

#[test]
fn requests_of_other_programs_are_left_alone() {
    let kubelet = utf8(DnType::CommonName, "system:node:n1");
    let of_kubelet = pem(&[utf8(DnType::OrganizationName, "system:nodes"), kubelet], &[]);
    assert_eq!(value(object("csr", &of_kubelet)), None);
    let mut other_signer = object("csr", &of_node("n1"));
    other_signer["spec"]["signerName"] = json!("example.org/signer");
    assert_eq!(value(other_signer), None);
    for text in [
        "",
        "no PEM",
        "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----",
    ] {
        assert_eq!(value(object("csr", text)), None);
    }
    // Padded beyond what is read.
    assert_eq!(value(object("csr", &format!("{}{}", " ".repeat(LONGEST), of_node("n1")))), None);
}

#[test]
fn a_request_is_open_until_anybody_decides() {
    for (status, is_open) in [
        (json!({}), true),
        (json!({"conditions": [{"type": "Failed"}]}), true),
        (json!({"conditions": [{"type": "Approved"}]}), false),
        (json!({"conditions": [{"type": "Denied"}]}), false),
        (json!({"certificate": "eA=="}), false),
    ] {
        let mut object = object("csr", &of_node("n1"));
        object["status"] = status.clone();
        assert_eq!(value(object).unwrap().is_open, is_open, "{status}");
    }
}

#[test]
fn a_subject_with_more_than_group_and_user_is_told_apart() {
    let group = || utf8(DnType::OrganizationName, "system:ovn-nodes");
    let user = || utf8(DnType::CommonName, "system:ovn-node:n1");
    let subject = |pem: &str| value(object("csr", pem)).unwrap().subject;
    assert!(matches!(subject(&pem(&[user()], &[])), Subject::Other { .. }));
    let unit = utf8(DnType::OrganizationalUnitName, "x");
    assert!(matches!(subject(&pem(&[group(), user(), unit], &[])), Subject::Other { .. }));
    assert!(matches!(subject(&pem(&[group(), user()], &["n1"])), Subject::WithExtensions { .. }));
    // Two organizations: openssl req -subj
    // /O=system:ovn-nodes/O=system:masters/CN=system:ovn-node:n1
    let two = include_str!("two-organizations.pem");
    assert!(matches!(subject(two), Subject::Other { .. }), "{:?}", subject(two));
    // UTF-16 reads as other characters than its bytes.
    let utf16 =
        (DnType::OrganizationName, DnValue::BmpString("system:ovn-nodes".try_into().unwrap()));
    assert!(matches!(subject(&pem(&[utf16, user()], &[])), Subject::Other { .. }));
}
