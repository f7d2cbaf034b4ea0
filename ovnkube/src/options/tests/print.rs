//! `--print-config`

use super::{super::Program, Place};

async fn printed(place: &Place, line: &str) -> (String, bool) {
    let Program::PrintConfig(options) = place.options(line).program().unwrap() else {
        panic!("it is to be printed")
    };
    let printed = options.print().await;
    (printed.text, printed.usable)
}

/// The line of an option without its name, with single spaces.
fn row(text: &str, name: &str) -> String {
    let line = text
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name))
        .unwrap_or_else(|| panic!("{name}\n{text}"));
    line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn each_value_stands_with_where_it_comes_from() {
    let mut place = Place::new().service_account();
    place.variable("K8S_APISERVER", "https://a:6443");
    let file = place.file(
        "ovn_k8s.conf",
        "[default]\nmtu=1300\n[gateway]\nsingle-node=true\n[logging]\nloglevel=5\nwhat=ever\n",
    );
    let (text, usable) =
        printed(&place, "--print-config --init-node n1 --mtu 1200 -k8s-token SECRET --ovsdb-endpoint unix:/nonexistent/db.sock").await;
    let row = |name: &str| row(&text, name);
    assert!(usable, "{text}");
    let file = file.display();
    assert_eq!(row("mtu"), format!("1200 command line, over {file}:2"));
    assert_eq!(row("loglevel"), format!("5 (dbg) {file}:6"));
    assert_eq!(row("k8s-apiserver"), "https://a:6443 environment K8S_APISERVER");
    assert_eq!(row("k8s-token"), "(hidden) command line");
    assert!(row("k8s-token-file").ends_with("/token service account"), "{text}");
    assert_eq!(
        row("single-node"),
        format!("true {file}:4 [no effect yet: for the node's gateway]")
    );
    assert_eq!(row("encap-type"), "geneve default");
    assert!(
        text.contains(
            "external_ids of Open vSwitch are not shown (unix:/nonexistent/db.sock: No such file"
        ),
        "{text}"
    );
    assert!(text.contains(&format!("{file}:7: what is ignored")), "{text}");
    assert!(!text.contains("SECRET"), "{text}");
}

#[tokio::test]
async fn the_variables_of_the_config_map_are_read() {
    let mut place = Place::new();
    let variables = [
        ("OVN_NORTH", "tcp:10.19.188.22:6641", "nb-address"),
        ("OVN_SOUTH", "tcp:10.19.188.22:6642", "sb-address"),
        ("OVN_NET_CIDR", "10.128.0.0/14", "cluster-subnets"),
        ("OVN_SVC_CIDR", "172.30.0.0/16", "k8s-service-cidrs"),
        ("K8S_APISERVER", "https://a:8443", "k8s-apiserver"),
    ];
    for (name, value, _) in variables {
        place.variable(name, value);
    }
    let line =
        "--print-config --init-master m -k8s-token t --ovsdb-endpoint unix:/nonexistent/db.sock";
    let (text, usable) = printed(&place, line).await;
    assert!(usable, "{text}");
    for (name, value, option) in variables {
        assert_eq!(row(&text, option), format!("{value} environment {name}"));
    }
    // As all variables, they give way to the command line.
    let (text, _) = printed(&place, &format!("{line} --cluster-subnets 10.1.0.0/16")).await;
    assert_eq!(
        row(&text, "cluster-subnets"),
        "10.1.0.0/16 command line, over environment OVN_NET_CIDR"
    );
}

#[tokio::test]
async fn problems_are_printed_behind_the_values() {
    let (text, usable) =
        printed(&Place::new(), "--print-config --mtu 1 --ovsdb-endpoint unix:/nonexistent/db.sock")
            .await;
    assert!(!usable && text.contains("PROBLEM: --mtu: MTU 1 is not between"), "{text}");
}

/// `--print-config` accepted what the process then refused.
#[tokio::test]
async fn roles_that_do_not_go_together_are_a_problem() {
    let api =
        "--k8s-apiserver https://a:6443 --k8s-token t --ovsdb-endpoint unix:/nonexistent/db.sock";
    for (roles, problem) in [
        (
            "--init-cluster-manager m --init-node m",
            Some("a cluster manager beside a node's server"),
        ),
        ("--init-node a --remove-node b", Some("give one of them")),
        ("--init-master m --init-node m", None),
        ("", None),
    ] {
        let (text, usable) = printed(&Place::new(), &format!("--print-config {roles} {api}")).await;
        assert_eq!(usable, problem.is_none(), "{roles}: {text}");
        assert!(problem.is_none_or(|problem| text.contains(problem)), "{roles}: {text}");
    }
}

#[tokio::test]
async fn what_has_no_effect_for_the_role_is_marked() {
    let place = Place::new();
    let kubeconfig = place.file("kubeconfig", "");
    let line = format!(
        "--print-config --k8s-kubeconfig {} --k8s-apiserver https://a --nb-address tcp:10.0.0.1:6641 --mtu \
         1300 --encap-port 6082 --ovsdb-endpoint unix:/nonexistent/db.sock",
        kubeconfig.display()
    );
    for (role, expected) in [
        (
            "--init-node a",
            [
                "https://a command line [no effect beside --k8s-kubeconfig]",
                "tcp:10.0.0.1:6641 command line [no effect with --init-node]",
                "1300 command line",
                "6082 command line [no effect: the southbound database has the port]",
            ],
        ),
        (
            "--init-master a",
            [
                "https://a command line [no effect beside --k8s-kubeconfig]",
                "tcp:10.0.0.1:6641 command line",
                // Of gateway routers.
                "1300 command line",
                "6082 command line [no effect with --init-master]",
            ],
        ),
    ] {
        let (text, usable) = printed(&place, &format!("{line} {role}")).await;
        assert!(usable, "{text}");
        for (name, expected) in
            ["k8s-apiserver", "nb-address", "mtu", "encap-port"].into_iter().zip(expected)
        {
            assert_eq!(row(&text, name), expected, "{role}: {name}\n{text}");
        }
        assert!(
            text.contains(&format!("without effect with {role}: ").replace(" a:", ":")),
            "{text}"
        );
    }
}
