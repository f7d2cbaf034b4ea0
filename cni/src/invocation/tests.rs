use super::*;

fn call(variables: &[(&str, &str)]) -> Result<Call, BadCall> {
    let all = [
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/run/netns/p"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
    ];
    let environment: Environment = all
        .iter()
        .chain(variables)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Call::parse(&environment)
}

#[test]
fn each_verb_needs_what_skel_says_it_needs() {
    let bare = |command: &str| {
        Call::parse(&[("CNI_COMMAND".to_owned(), command.to_owned())].into_iter().collect())
    };
    for (command, message) in [
        ("ADD", "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing"),
        ("CHECK", "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing"),
        ("DEL", "required env variables [CNI_CONTAINERID,CNI_IFNAME,CNI_PATH] missing"),
        ("GC", "required env variables [CNI_PATH] missing"),
        ("STATUS", "required env variables [CNI_PATH] missing"),
        ("UPDATE", "unknown CNI_COMMAND: UPDATE"),
        ("add", "unknown CNI_COMMAND: add"),
    ] {
        assert_eq!(bare(command).expect_err(command).to_string(), message);
    }
    assert_eq!(bare("VERSION").unwrap(), Call::Version);
    assert_eq!(bare("").unwrap(), Call::About);
}

#[test]
fn an_add_names_its_pod_and_a_del_need_not() {
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_UID=u1";
    let Ok(Call::Add(subject)) = call(&[("CNI_COMMAND", "ADD"), ("CNI_ARGS", args)]) else {
        panic!("an ADD")
    };
    assert_eq!(subject.pod.unwrap().pod.to_string(), "shop/cart-0");
    let Ok(Call::Del(subject)) =
        call(&[("CNI_COMMAND", "DEL"), ("CNI_ARGS", "garbage"), ("CNI_NETNS", "")])
    else {
        panic!("a DEL")
    };
    assert_eq!((subject.pod, subject.netns), (None, None));
}

#[test]
fn names_are_checked_before_anything_is_touched() {
    for (name, value) in [
        ("CNI_CONTAINERID", "../x"),
        ("CNI_IFNAME", "lo"),
        ("CNI_IFNAME", "a/b"),
        ("CNI_ARGS", "garbage"),
    ] {
        assert!(call(&[("CNI_COMMAND", "ADD"), (name, value)]).is_err(), "{name}={value}");
    }
}

#[test]
fn verbs_are_refused_to_configurations_older_than_they_are() {
    let conf = |version: &str| {
        NetConf::parse(format!(r#"{{"cniVersion":"{version}","name":"n","type":"t"}}"#).as_bytes())
            .unwrap()
    };
    for (command, version, allowed) in [
        ("CHECK", "0.3.1", false),
        ("CHECK", "0.4.0", true),
        ("GC", "1.0.0", false),
        ("STATUS", "1.1.0", true),
        ("DEL", "0.1.0", true),
    ] {
        assert_eq!(
            call(&[("CNI_COMMAND", command)]).unwrap().allowed_by(&conf(version)).is_ok(),
            allowed,
            "{command} {version}"
        );
    }
}
