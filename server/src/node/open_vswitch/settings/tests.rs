use super::*;

pub(crate) fn chassis() -> Chassis {
    Chassis {
        southbound: "tcp:172.17.42.1:6642".to_owned(),
        tls: None,
        encap_type: "geneve".to_owned(),
        encap_ip: None,
        interconnect: false,
        inactivity_probe: Duration::from_millis(100_000),
        openflow_probe: Duration::from_secs(180),
        ofctrl_wait_before_clear: None,
        monitor_all: true,
        lflow_cache: true,
        lflow_cache_limit: None,
        lflow_cache_limit_kb: None,
    }
}

fn settings(chassis: &Chassis) -> Settings {
    Settings::new(chassis, "node1", Some("172.17.42.31".to_owned()), "node1".to_owned())
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn seen(pairs: &[(&str, &str)]) -> ChassisRecord {
    ChassisRecord { external_ids: map(pairs), ..ChassisRecord::default() }
}

const ALL: [(&str, &str); 8] = [
    ("hostname", "node1"),
    ("ovn-enable-lflow-cache", "true"),
    ("ovn-encap-ip", "172.17.42.31"),
    ("ovn-encap-type", "geneve"),
    ("ovn-monitor-all", "true"),
    ("ovn-openflow-probe-interval", "180"),
    ("ovn-remote", "tcp:172.17.42.1:6642"),
    ("ovn-remote-probe-interval", "100000"),
];

#[test]
fn keys_and_units_are_those_of_ovn_controller() {
    assert_eq!(settings(&chassis()).differing(&seen(&[])).external_ids, map(&ALL));
    let all = Chassis {
        ofctrl_wait_before_clear: Some(Duration::from_millis(8000)),
        lflow_cache: false,
        lflow_cache_limit: Some(1000),
        lflow_cache_limit_kb: Some(100_000),
        monitor_all: false,
        openflow_probe: Duration::ZERO,
        ..chassis()
    };
    let written = settings(&all).differing(&seen(&ALL)).external_ids;
    let expected = map(&[
        ("ovn-enable-lflow-cache", "false"),
        ("ovn-limit-lflow-cache", "1000"),
        ("ovn-memlimit-lflow-cache-kb", "100000"),
        ("ovn-monitor-all", "false"),
        ("ovn-ofctrl-wait-before-clear", "8000"),
        ("ovn-openflow-probe-interval", "0"),
    ]);
    assert_eq!(written, expected);
}

#[test]
fn nothing_is_written_where_nothing_differs() {
    let mut there = seen(&ALL);
    there.external_ids.insert("system-id".to_owned(), "a".to_owned());
    there.external_ids.insert("ovn-bridge-mappings".to_owned(), "physnet:br-ex".to_owned());
    assert!(settings(&chassis()).differing(&there).is_empty());
    assert!(settings(&chassis()).missing(&there).is_empty());
}

#[test]
fn later_only_what_is_missing_is_put_back() {
    let there = seen(&[("ovn-remote", "tcp:10.0.0.1:6642"), ("ovn-monitor-all", "false")]);
    let missing = settings(&chassis()).missing(&there).external_ids;
    assert_eq!(missing.get("ovn-remote"), None, "somebody else's value");
    assert_eq!(missing.get("ovn-monitor-all"), None, "somebody else's value");
    assert_eq!(
        (missing["ovn-encap-type"].as_str(), missing["system-id"].as_str()),
        ("geneve", "node1")
    );
}

#[test]
fn a_chassis_name_is_never_replaced_nor_written_at_the_start() {
    let settings =
        Settings::new(&chassis(), "node1", Some("172.17.42.31".to_owned()), "another".to_owned());
    assert_eq!(settings.differing(&seen(&[])).external_ids.get(SYSTEM_ID), None);
    assert_eq!(settings.missing(&seen(&[("system-id", "uuid")])).external_ids.get(SYSTEM_ID), None);
}

#[test]
fn files_for_ssl_are_written_where_they_differ_and_put_back_where_they_are_gone() {
    let files = |name: &str| SouthboundTls {
        private_key: name.into(),
        certificate: "c".into(),
        authority: "a".into(),
    };
    let ours = settings(&Chassis { tls: Some(files("k")), ..chassis() });
    let with = |ssl: Option<SouthboundTls>| ChassisRecord {
        ssl: ssl.map(|files| (Uuid::default(), files)),
        ..seen(&ALL)
    };
    assert_eq!(ours.differing(&with(None)).tls, Some(files("k")));
    assert_eq!(ours.differing(&with(Some(files("other")))).tls, Some(files("k")));
    assert_eq!(ours.differing(&with(Some(files("k")))).tls, None);
    assert_eq!(ours.missing(&with(Some(files("other")))).tls, None, "somebody else's files");
    assert_eq!(ours.missing(&with(None)).tls, Some(files("k")));
    assert_eq!(
        settings(&chassis()).differing(&with(Some(files("other")))).tls,
        None,
        "without an option the administrator's stay"
    );
}

#[test]
fn what_was_written_is_remembered_with_what_was_written_before() {
    let seen = seen(&[
        ("ovnkube-wrote", "hostname ovn-remote"),
        ("hostname", "node1"),
        ("ovn-remote", "old"),
    ]);
    let change = settings(&chassis()).differing(&seen);
    let text = format!("{:?}", change.transaction(&seen));
    let all = "hostname ovn-enable-lflow-cache ovn-encap-ip ovn-encap-type ovn-monitor-all \
               ovn-openflow-probe-interval ovn-remote ovn-remote-probe-interval";
    assert!(text.contains(all), "{text}");
    assert_eq!(written(&seen.external_ids).collect::<Vec<_>>(), ["hostname", "ovn-remote"]);
}

#[test]
fn what_this_program_wrote_says_nothing_of_what_an_administrator_wants() {
    let given = map(&[
        ("ovnkube-wrote", "hostname ovn-encap-ip ovn-remote"),
        (
            "ovnkube-wrote-values",
            r#"{"ovn-encap-ip":"10.1.1.1","ovn-remote":"tcp:192.0.2.1:6642"}"#,
        ),
        ("ovn-encap-ip", "10.1.1.1"),
        ("ovn-remote", "tcp:192.0.2.9:6642"),
        ("ovn-monitor-all", "false"),
    ]);
    let theirs = of_administrator(&given);
    assert!(!theirs.contains_key("ovn-encap-ip"));
    assert_eq!(theirs["ovn-remote"], "tcp:192.0.2.9:6642", "changed by hand");
    assert_eq!(theirs["ovn-monitor-all"], "false");
    assert_eq!(own(&given, ENCAP_IP), Some("10.1.1.1"));
    // An earlier version recorded the keys alone.
    let earlier = map(&[("ovnkube-wrote", "ovn-encap-ip"), ("ovn-encap-ip", "10.1.1.1")]);
    assert!(!of_administrator(&earlier).contains_key("ovn-encap-ip"));
}

#[test]
fn tunnels_move_only_where_the_address_is_this_programs() {
    let mut settings = settings(&chassis());
    settings.set_encap_ip("10.1.1.2".to_owned());
    let moved = |pairs: &[(&str, &str)]| settings.moved(&seen(pairs)).external_ids;
    let ours = [
        ("ovnkube-wrote", "ovn-encap-ip"),
        ("ovnkube-wrote-values", r#"{"ovn-encap-ip":"10.1.1.1"}"#),
    ];
    let expected = map(&[("ovn-encap-ip", "10.1.1.2")]);
    assert_eq!(moved(&[&ours[..], &[("ovn-encap-ip", "10.1.1.1")]].concat()), expected);
    assert_eq!(moved(&[]), expected);
    assert!(
        moved(&[&ours[..], &[("ovn-encap-ip", "10.9.9.9")]].concat()).is_empty(),
        "an administrator's"
    );
    assert!(moved(&[("ovn-encap-ip", "10.1.1.2")]).is_empty());
}
