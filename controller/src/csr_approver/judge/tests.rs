use super::*;

/// A renewal of node n1's server, which is approved.
fn renewal() -> Request {
    Request {
        name: "csr-1".into(),
        uid: "u1".to_owned(),
        version: "7".to_owned(),
        is_open: true,
        user: "system:ovn-node:n1".to_owned(),
        groups: ["system:ovn-nodes", "system:authenticated"].map(str::to_owned).to_vec(),
        nodes_of_token: Vec::new(),
        usages: ["digital signature", "client auth"].map(str::to_owned).to_vec(),
        expiration_seconds: Some(600),
        subject: subject("system:ovn-nodes", "system:ovn-node:n1"),
    }
}

fn subject(organization: &str, common_name: &str) -> Subject {
    Subject::Plain { organization: organization.to_owned(), common_name: common_name.to_owned() }
}

fn by(user: &str, groups: &[&str], nodes_of_token: &[&str]) -> Request {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Request {
        user: user.to_owned(),
        groups: owned(groups),
        nodes_of_token: owned(nodes_of_token),
        ..renewal()
    }
}

const BOOTSTRAP: &str = "system:serviceaccount:ovn-kubernetes:ovn-kubernetes-node";

fn judged(request: &Request) -> Result<NodeName, Refusal> {
    judge(request, &BTreeSet::from([BOOTSTRAP.to_owned(), "system:node:boot".to_owned()]))
}

#[test]
fn the_server_itself_the_nodes_kubelet_and_the_administrators_users_get_the_certificate() {
    for request in [
        renewal(),
        by("system:node:n1", &["system:nodes", "system:authenticated"], &[]),
        by(BOOTSTRAP, &["system:serviceaccounts"], &["n1"]),
        // No pod's token: it is of no node, and good for any.
        by(BOOTSTRAP, &["system:serviceaccounts"], &[]),
        Request {
            usages: vec!["client auth".to_owned(), "digital signature".to_owned()],
            ..renewal()
        },
        Request { expiration_seconds: Some(365 * 24 * 3600), ..renewal() },
    ] {
        assert_eq!(judged(&request).as_deref(), Ok("n1"), "{request:?}");
    }
}

#[test]
fn another_nodes_kubelet_or_server_and_any_other_user_are_refused() {
    let nodes = ["system:nodes", "system:ovn-nodes"];
    for user in [
        "system:node:n2",
        "system:ovn-node:n2",
        "system:node:n1x",
        "system:ovn-node:",
        "system:node:",
        "system:ovn-node:n1 ",
        "n1",
        "admin",
        "system:serviceaccount:other:ovn-kubernetes-node",
        // Whoever names a node is that node, whatever the options say.
        "system:node:boot",
    ] {
        let refusal = judged(&by(user, &nodes, &[])).unwrap_err();
        assert!(matches!(&refusal, Refusal::User { .. }), "{user}: {refusal}");
    }
}

#[test]
fn a_user_of_the_right_name_outside_of_its_group_is_refused() {
    for (user, groups, group) in [
        ("system:node:n1", &["system:authenticated"][..], "system:nodes"),
        ("system:node:n1", &["system:ovn-nodes"], "system:nodes"),
        ("system:ovn-node:n1", &["system:nodes"], "system:ovn-nodes"),
        ("system:ovn-node:n1", &[], "system:ovn-nodes"),
    ] {
        let expected = Refusal::NotInGroup { user: user.to_owned(), group };
        assert_eq!(judged(&by(user, groups, &[])), Err(expected));
    }
}

/// The account is that of the servers on all nodes: a pod's token stands for one of them alone.
#[test]
fn the_token_of_a_pod_on_another_node_is_refused() {
    for nodes in [&["n2"][..], &["n1", "n2"], &[""]] {
        let refusal = judged(&by(BOOTSTRAP, &[], nodes)).unwrap_err();
        assert!(matches!(refusal, Refusal::OtherNodesToken { .. }), "{refusal}");
    }
}

#[test]
fn a_subject_other_than_group_and_user_is_refused() {
    let name = "system:ovn-node:n1".to_owned();
    for (of, extensions) in [
        (subject("system:masters", &name), false),
        (subject("", &name), false),
        (Subject::Other { common_name: name.clone() }, false),
        (Subject::WithExtensions { common_name: name.clone() }, true),
    ] {
        let expected = if extensions {
            Refusal::Extensions(name.clone())
        } else {
            Refusal::Subject(name.clone())
        };
        assert_eq!(judged(&Request { subject: of, ..renewal() }), Err(expected));
    }
}

#[test]
fn a_common_name_without_a_nodes_name_is_refused() {
    for node in
        ["", ".", "n1.", "-n1", "N1", "n1:x", "n 1", "n1\n", "system:masters", &"n".repeat(254)]
    {
        let of = subject("system:ovn-nodes", &format!("system:ovn-node:{node}"));
        let request = Request { subject: of, user: format!("system:ovn-node:{node}"), ..renewal() };
        assert_eq!(judged(&request), Err(Refusal::NodeName(node.to_owned())));
    }
}

#[test]
fn usages_are_exactly_those_of_a_client() {
    for usages in [
        &[][..],
        &["client auth"],
        &["digital signature"],
        &["digital signature", "client auth", "server auth"],
        &["digital signature", "client auth", "client auth"],
        &["digital signature", "cert sign"],
    ] {
        let usages: Vec<String> = usages.iter().map(|usage| (*usage).to_owned()).collect();
        let request = Request { usages: usages.clone(), ..renewal() };
        assert_eq!(judged(&request), Err(Refusal::Usages(usages)));
    }
}

#[test]
fn the_lifetime_is_given_and_at_most_a_year() {
    assert_eq!(
        judged(&Request { expiration_seconds: None, ..renewal() }),
        Err(Refusal::NoExpiration)
    );
    for seconds in [i32::MIN, -1, 0, 599, 365 * 24 * 3600 + 1, i32::MAX] {
        let request = Request { expiration_seconds: Some(seconds), ..renewal() };
        assert_eq!(judged(&request), Err(Refusal::Expiration(seconds)));
    }
}
