use std::fs;

use super::*;

/// A root with these files.
fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn states(findings: &[Finding]) -> Vec<(&str, State)> {
    findings.iter().map(|finding| (finding.name.as_str(), finding.state)).collect()
}

#[test]
fn a_module_is_there_if_it_is_loaded_built_in_or_can_be_loaded() {
    let root = root(&[
        ("proc/sys/kernel/osrelease", "6.1.0\n"),
        ("sys/module/openvswitch/refcnt", "1"),
        ("lib/modules/6.1.0/modules.builtin", "kernel/net/netfilter/nf_conntrack.ko\n"),
        (
            "lib/modules/6.1.0/modules.dep",
            "kernel/drivers/net/geneve.ko.xz: kernel/net/ipv4/udp_tunnel.ko\n",
        ),
    ]);
    let findings = kernel::findings(root.path());
    let expected = [
        ("openvswitch", State::Ok),
        ("geneve", State::Ok),
        ("nf_conntrack", State::Ok),
        ("nf_tables", State::Warning),
    ];
    assert_eq!(states(&findings), expected);
    fs::write(root.path().join("lib/modules/6.1.0/modules.dep"), "").unwrap();
    assert_eq!(kernel::findings(root.path())[1].state, State::Failed);
    // A container has not the host's modules: nothing is known.
    let findings = kernel::findings(tempfile::tempdir().unwrap().path());
    assert_eq!(findings[0].state, State::Unknown);
}

#[test]
fn a_port_that_another_program_has_is_named_with_the_program() {
    let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
    let socket = |port: u16, state: &str, inode: u64| {
        format!(
            "   0: 00000000:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1\n"
        )
    };
    let tcp = format!("{head}{}{}", socket(6641, "0A", 7), socket(6642, "01", 8));
    let root = root(&[
        ("proc/net/tcp", &tcp),
        ("proc/net/udp", &format!("{head}{}", socket(6081, "07", 0))),
        ("proc/42/comm", "memcached\n"),
    ]);
    fs::create_dir_all(root.path().join("proc/42/fd")).unwrap();
    std::os::unix::fs::symlink("socket:[7]", root.path().join("proc/42/fd/3")).unwrap();
    let findings = ports::findings(root.path());
    // A connection to the port is no listener, and the kernel's tunnel is another network's.
    let expected =
        [("TCP 6641", State::Failed), ("TCP 6642", State::Ok), ("UDP 6081", State::Failed)];
    assert_eq!(states(&findings), expected);
    assert!(findings[0].summary.contains("memcached"), "{findings:?}");
    fs::write(root.path().join("proc/42/comm"), "ovsdb-server\n").unwrap();
    fs::create_dir_all(root.path().join("sys/class/net/genev_sys_6081")).unwrap();
    assert!(ports::findings(root.path()).iter().all(|finding| finding.state == State::Ok));
}

#[test]
fn configurations_devices_and_proxies_of_other_networks_are_found_and_own_ones_are_not() {
    let root = root(&[
        (
            "etc/cni/net.d/10-ovn-kubernetes.conflist",
            r#"{"plugins":[{"type":"ovn-k8s-cni-overlay"}]}"#,
        ),
        ("sys/class/net/ovn-k8s-mp0/mtu", "1400"),
        ("proc/1/comm", "systemd\n"),
    ]);
    assert_eq!(states(&networks::findings(root.path())), [("none", State::Ok)]);
    for file in
        ["sys/class/net/cali1/mtu", "sys/class/net/cali2/mtu", "etc/cni/net.d/10-calico.conflist"]
    {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "{}").unwrap();
    }
    fs::write(root.path().join("proc/1/comm"), "kube-proxy\n").unwrap();
    let findings = networks::findings(root.path());
    let found: Vec<State> = findings.iter().map(|finding| finding.state).collect();
    assert_eq!(found, [State::Failed, State::Warning, State::Failed], "{findings:?}");
}

#[test]
fn the_exit_status_is_that_of_the_first_class_that_fails() {
    let finding = |class, state| Finding::new(class, "x", state, "x");
    let status = |findings| exit_status(&Report::new("Check", findings));
    assert_eq!(
        status(vec![finding(kernel::KERNEL, State::Ok), finding(nic::NIC, State::Warning)]),
        4
    );
    for (class, expected) in CLASSES {
        assert_eq!(
            status(vec![finding(kernel::KERNEL, State::Ok), finding(class, State::Failed)]),
            expected
        );
    }
    assert_eq!(
        status(vec![finding(machine::DISK, State::Failed), finding(ports::PORTS, State::Failed)]),
        11
    );
}

#[test]
fn the_reference_page_has_the_exit_status_of_each_class() {
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/report.md"))
            .unwrap();
    for (class, status) in CLASSES {
        assert!(page.contains(&format!("{class} {status}")), "{class}");
    }
}
