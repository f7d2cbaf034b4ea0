//! Options of `ovnkube`, as an administrator uses them.

use std::{
    fs,
    process::{Command, Output},
};

use testkit::{executable, node::Node, program};

fn ovnkube(arguments: &[&str]) -> Output {
    let mut command: Command = program::unprivileged(executable::path(executable::SERVER));
    command.env_remove("KUBECONFIG").args(arguments).output().expect("ovnkube runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The words of an option's line after its name.
fn row(printed: &str, name: &str) -> String {
    let words = printed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words.first() == Some(&name));
    words.map_or_else(|| panic!("{name} is not in\n{printed}"), |words| words[1..].join(" "))
}

#[test]
fn print_config_shows_what_an_administrator_wrote_into_open_vswitch() {
    let node = Node::new();
    let database = node.start_database();
    let ids = [
        "external_ids:ovn-encap-ip=10.0.0.7",
        "external_ids:ovn-encap-type=vxlan",
        "external_ids:k8s-api-token=SECRET",
    ];
    database.vsctl(&[&["set", "Open_vSwitch", "."][..], &ids[..]].concat());
    let conf = node.path("options.conf");
    fs::write(&conf, "[default]\nencap-type=geneve\nencap-prot=1\n")
        .expect("a file in our directory can be made");
    let endpoint = format!("--ovsdb-endpoint={}", database.endpoint());
    let config = format!("-config-file={}", conf.display());
    let output = ovnkube(&["--print-config", &endpoint, &config, "--disable-pkt-mtu-check"]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    assert_eq!(row(&printed, "encap-ip"), "10.0.0.7 external_ids:ovn-encap-ip");
    assert_eq!(
        row(&printed, "encap-type"),
        format!("geneve {}:2, over external_ids:ovn-encap-type", conf.display())
    );
    assert_eq!(row(&printed, "k8s-token"), "(hidden) external_ids:k8s-api-token");
    assert_eq!(
        row(&printed, "disable-pkt-mtu-check"),
        "true command line [no effect yet: for the node's gateway]"
    );
    assert!(
        printed.contains(&format!("{}:3: encap-prot is ignored", conf.display()))
            && printed.contains("(is it encap-port?)"),
        "{printed}"
    );
    assert!(!printed.contains("SECRET"), "{printed}");
}

#[test]
fn options_that_cannot_be_used_end_with_2_and_all_that_is_wrong() {
    let output = ovnkube(&["--init-node", "N1", "--mtu=1", "--config-file", "/nonexistent/x.conf"]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()), "{said}");
    for problem in [
        "--init-node \"N1\" is no node's name",
        "--mtu: MTU 1",
        "/nonexistent/x.conf: No such file",
    ] {
        assert!(said.contains(problem), "{problem}: {said}");
    }
    for arguments in [
        &["--no-such-option"][..],
        &["--init-master", "m1"],
        &[],
        &["--init-node", "n1", "--init-ovnkube-controller", "n1"],
    ] {
        let output = ovnkube(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
    let nowhere = format!("--ovsdb-endpoint=unix:{}", Node::new().path("none.sock").display());
    assert_eq!(ovnkube(&["--print-config", "--mtu=1", &nowhere]).status.code(), Some(2));
}

#[test]
fn help_and_version_are_printed() {
    for arguments in [["-h"], ["-help"], ["--version"], ["-V"]] {
        let output = ovnkube(&arguments);
        assert!(
            output.status.success() && text(&output.stdout).contains("ovnkube"),
            "{arguments:?}: {output:?}"
        );
    }
}
