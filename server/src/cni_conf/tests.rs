use std::{fs, os::unix::fs::PermissionsExt};

use super::*;

pub(crate) fn conf(directory: &Path, file: &str) -> CniConf {
    CniConf {
        directory: directory.to_owned(),
        file: file.parse().unwrap(),
        plugin: "ovn-k8s-cni-overlay".to_owned(),
        plugin_directory: directory.join("bin"),
        log_file: "/l".to_owned(),
        log_level: "4".to_owned(),
        server_socket: None,
        ovsdb_endpoint: None,
        ovn_run_dir: None,
        netns_link: false,
        chain: None,
    }
}

fn files(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

const LIST: &str = concat!(
    r#"{"cniVersion":"1.0.0","cniVersions":["0.4.0","1.0.0","1.1.0"],"name":"ovn-kubernetes","#,
    r#""plugins":[{"type":"ovn-k8s-cni-overlay","logFile":"/l","logLevel":"4"}]}"#,
    "\n"
);

#[test]
fn both_forms_are_what_runtimes_load() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("cni/net.d");
    conf(&directory, "10-ovn-kubernetes.conflist").install().unwrap();
    let path = directory.join("10-ovn-kubernetes.conflist");
    assert_eq!(fs::read_to_string(&path).unwrap(), LIST);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);

    conf(&directory, "10-ovn-kubernetes.conf").install().unwrap();
    let single = fs::read(directory.join("10-ovn-kubernetes.conf")).unwrap();
    assert_eq!(
        contract::net_conf::NetConf::parse(&single).unwrap().log.file.as_deref(),
        Some("/l")
    );
    assert_eq!(
        files(&directory),
        ["10-ovn-kubernetes.conf"],
        "our other form is gone, and so is the temporary file"
    );
}

#[test]
fn a_file_that_is_as_it_should_be_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), "10-ovn-kubernetes.conflist");
    let inode = || {
        std::os::unix::fs::MetadataExt::ino(
            &fs::metadata(dir.path().join(conf.file.name())).unwrap(),
        )
    };
    conf.install().unwrap();
    let first = inode();
    conf.install().unwrap();
    assert_eq!(inode(), first);
    CniConf { log_level: "5".to_owned(), ..conf.clone() }.install().unwrap();
    assert_ne!(inode(), first);
}

#[test]
fn upstreams_file_of_this_network_is_removed_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = dir.path().join("10-ovn-kubernetes.conf");
    fs::write(&upstream, r#"{"cniVersion":"0.4.0","name":"mine","type":"ovn-k8s-cni-overlay"}"#)
        .unwrap();
    fs::write(dir.path().join("99-loopback.conf"), r#"{"name":"ovn-kubernetes"}"#).unwrap();
    let conf = conf(dir.path(), "10-ovn-kubernetes.conflist");
    conf.install().unwrap();
    assert_eq!(files(dir.path()).len(), 3, "somebody else's network of that file name stays");

    fs::write(
        &upstream,
        r#"{"cniVersion":"0.4.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay"}"#,
    )
    .unwrap();
    conf.install().unwrap();
    assert_eq!(files(dir.path()), ["10-ovn-kubernetes.conflist", "99-loopback.conf"]);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let error = conf(&dir.path().join("file"), "10-ovn-kubernetes.conflist").install().unwrap_err();
    assert!(error.to_string().ends_with("file/10-ovn-kubernetes.conflist\""), "{error}");
}

#[test]
fn only_names_that_runtimes_load_are_accepted() {
    for good in ["10-ovn-kubernetes.conflist", "a.conf"] {
        assert!(good.parse::<ConfFile>().is_ok(), "{good}");
    }
    for bad in ["", "a", "a.json", "b/a.conf", ".conf", ".a.conflist", "a.conf~"] {
        assert!(bad.parse::<ConfFile>().is_err(), "{bad}");
    }
}

#[test]
fn the_plugin_is_told_where_an_unusual_socket_is() {
    let dir = tempfile::tempdir().unwrap();
    let (server_socket, ovsdb_endpoint) =
        (Some("/run/other.sock".into()), Some("unix:/run/other.db".to_owned()));
    let ovn_run_dir = Some("/var/run/ovn-ic".into());
    let elsewhere = CniConf {
        server_socket,
        ovsdb_endpoint,
        ovn_run_dir,
        ..conf(dir.path(), "10-ovn-kubernetes.conflist")
    };
    elsewhere.install().unwrap();
    let written = fs::read(dir.path().join("10-ovn-kubernetes.conflist")).unwrap();
    let read = contract::net_conf::NetConf::parse(&written).unwrap();
    assert_eq!(read.places.server_socket.as_deref(), Some("/run/other.sock"));
    assert_eq!(read.places.ovsdb_endpoint.as_deref(), Some("unix:/run/other.db"));
    assert_eq!(read.places, elsewhere.places());
}

/// The file of the Python programs comes first by name, and calls the plugin under a name that it
/// did not have: the node was never ready.
#[test]
fn a_configuration_of_2016_finds_the_plugin_under_its_old_name_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), "10-ovn-kubernetes.conflist");
    let link = conf.plugin_directory.join("ovn_cni");
    fs::create_dir(&conf.plugin_directory).unwrap();
    fs::write(dir.path().join("99-loopback.conf"), r#"{"name":"lo"}"#).unwrap();
    fs::write(dir.path().join("10-net.conf.bak"), "").unwrap();
    conf.install().unwrap();
    assert_eq!(conf.preferred(), None);
    assert!(!link.exists(), "nothing calls it");

    let old = dir.path().join("10-net.conf");
    let text =
        r#"{"name":"net","type":"ovn_cni","bridge":"br-int","isGateway":"true","ipMasq":"false"}"#;
    fs::write(&old, text).unwrap();
    // The Python plugin, as `minion-init` had put it there.
    std::os::unix::fs::symlink("/usr/bin/ovn-k8s-cni-overlay", &link).unwrap();
    for _ in 0..2 {
        conf.install().unwrap();
        assert_eq!(fs::read_link(&link).unwrap().to_str(), Some("ovn-k8s-cni-overlay"));
    }
    let preferred = conf.preferred().unwrap();
    assert!(preferred.is_ours && preferred.path == old, "{preferred:?}");
    assert_eq!(
        fs::read_to_string(&old).unwrap(),
        text,
        "runtimes remember pods under its network's name"
    );

    fs::write(&old, r#"{"name":"net","type":"bridge","bridge":"ovn_cni"}"#).unwrap();
    assert!(!conf.preferred().unwrap().is_ours, "another plugin is called");
}

#[test]
fn a_link_that_cannot_be_made_is_named_with_the_file_that_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), "10-ovn-kubernetes.conflist");
    fs::write(dir.path().join("10-net.conf"), r#"{"name":"net","type":"ovn_cni"}"#).unwrap();
    let error = crate::chain(&conf.install().unwrap_err());
    assert!(
        error.contains("bin/ovn_cni") && error.contains("10-net.conf calls: No such file"),
        "{error}"
    );
}

#[test]
fn the_plugin_is_told_to_name_namespaces_on_request_only() {
    let dir = tempfile::tempdir().unwrap();
    for netns_link in [false, true] {
        let conf = CniConf { netns_link, ..conf(dir.path(), "10-ovn-kubernetes.conflist") };
        conf.install().unwrap();
        let written = fs::read(conf.path()).unwrap();
        assert_eq!(String::from_utf8_lossy(&written).contains("netnsLink"), netns_link);
        assert_eq!(contract::net_conf::NetConf::parse(&written).unwrap().netns_link, netns_link);
    }
}

#[test]
fn our_own_file_alone_is_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), "10-ovn-kubernetes.conflist");
    assert!(!conf.uninstall().unwrap());
    conf.install().unwrap();
    assert!(conf.uninstall().unwrap());
    fs::write(dir.path().join(conf.file.name()), "not JSON").unwrap();
    let error = crate::chain(&conf.uninstall().unwrap_err());
    assert!(error.contains("it is not ours"), "{error}");
}
