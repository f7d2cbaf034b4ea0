//! Which of several values of an option counts.

use std::collections::BTreeMap;

use kubeapi::{ApiServer, Authority, Cluster, Credential};
use secrecy::ExposeSecret;
use server::node::{Chassis, PodsFrom};

use super::Place;

const NODE: &str = "--init-node n1";

fn ids<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn api(place: &Place, line: &str, external_ids: &BTreeMap<String, String>) -> ApiServer {
    let config = place
        .node(&format!("{NODE} {line}"))
        .and_then(|node| node.config(external_ids).map_err(|error| error.to_string()));
    match config.expect(line).pods {
        PodsFrom::ApiServer(api) => api,
        PodsFrom::Manifests(directory) => panic!("{directory:?}"),
    }
}

fn url(api: &ApiServer) -> &str {
    match &api.cluster {
        Cluster::Url { url, .. } => url,
        Cluster::Kubeconfig(path) => path.to_str().unwrap(),
    }
}

fn token(api: &ApiServer) -> String {
    match &api.credential {
        Some(Credential::Token(token)) => token.expose_secret().to_owned(),
        Some(Credential::TokenFile(path)) => path.file_name().unwrap().to_str().unwrap().to_owned(),
        Some(Credential::Certificate { certificate, key }) => format!("{certificate:?} {key:?}"),
        None => String::new(),
    }
}

fn chassis(place: &Place, line: &str, external_ids: &BTreeMap<String, String>) -> Chassis {
    place
        .node(&format!("{NODE} --pod-manifests /m {line}"))
        .unwrap()
        .config(external_ids)
        .unwrap()
        .open_vswitch
        .chassis
}

#[test]
fn a_value_on_the_command_line_wins_even_where_it_is_the_default() {
    let place = Place::new();
    place.file("ovn_k8s.conf", "[default]\nmtu=1234\n");
    for (line, mtu) in [("", 1234), ("--mtu=1400", 1400), ("-mtu 900", 900), ("--mtu=", 1234)] {
        let config = place
            .node(&format!("{NODE} --pod-manifests /m {line}"))
            .unwrap()
            .config(&BTreeMap::new())
            .unwrap();
        assert_eq!(config.add.mtu.bytes(), mtu, "{line}");
    }
}

#[test]
fn each_source_gives_way_to_the_one_before() {
    let ids = ids([("k8s-api-server", "10.0.0.5:8080"), ("k8s-api-token", "of-ids")]);
    let mut place = Place::new();
    assert_eq!(
        (url(&api(&place, "", &ids)), token(&api(&place, "", &ids))),
        ("http://10.0.0.5:8080", "of-ids".to_owned())
    );
    place = place.service_account();
    place.variable("KUBERNETES_SERVICE_HOST", "fd00::1");
    place.variable("KUBERNETES_SERVICE_PORT", "443");
    assert_eq!(
        (url(&api(&place, "", &ids)), token(&api(&place, "", &ids))),
        ("https://[fd00::1]:443", "token".to_owned())
    );
    place.variable("K8S_APISERVER", "https://of-environment");
    place.variable("K8S_TOKEN", "of-environment");
    assert_eq!(
        (url(&api(&place, "", &ids)), token(&api(&place, "", &ids))),
        ("https://of-environment", "of-environment".to_owned())
    );
    place.file("ovn_k8s.conf", "[kubernetes]\napiserver=https://of-file/\ntoken=of-file\n");
    assert_eq!(
        (url(&api(&place, "", &ids)), token(&api(&place, "", &ids))),
        ("https://of-file", "of-file".to_owned())
    );
    let api = api(&place, "--k8s-apiserver http://of-line -k8s-token of-line", &ids);
    assert_eq!((url(&api), token(&api)), ("http://of-line", "of-line".to_owned()));
}

#[test]
fn of_token_and_tokens_file_the_better_place_wins_and_in_one_place_the_file() {
    let place = Place::new();
    let file = place.file("my-token", "x");
    place.file("ovn_k8s.conf", "[kubernetes]\napiserver=https://a\ntoken=of-file\n");
    let both = format!("--k8s-token of-line --k8s-token-file {}", file.display());
    let none = BTreeMap::new();
    assert_eq!(token(&api(&place, &both, &none)), "my-token");
    assert_eq!(token(&api(&place, "--k8s-token of-line", &none)), "of-line");
    assert_eq!(
        token(&api(&place, &format!("--k8s-token-file {}", file.display()), &none)),
        "my-token"
    );
    assert_eq!(token(&api(&place, "", &none)), "of-file");
}

#[test]
fn a_kubeconfig_keeps_its_own_user_unless_another_is_given_as_plainly() {
    let place = Place::new().service_account();
    let kubeconfig = place.file("kubeconfig", "");
    let (none, line) = (BTreeMap::new(), format!("--k8s-kubeconfig {}", kubeconfig.display()));
    assert!(api(&place, &line, &none).credential.is_none());
    assert_eq!(token(&api(&place, &format!("{line} --k8s-token t"), &none)), "t");
    let mut place = Place::new();
    let kubeconfig = place.file("kubeconfig", "");
    place.variable("KUBECONFIG", kubeconfig.to_str().unwrap());
    assert_eq!(url(&api(&place, "", &none)), kubeconfig.to_str().unwrap());
    assert_eq!(url(&api(&place, "--k8s-apiserver https://a", &none)), "https://a");
}

#[test]
fn a_certificate_may_have_its_key_in_the_same_file() {
    let place = Place::new();
    let (certificate, key) = (place.file("c.pem", ""), place.file("k.pem", ""));
    let line = format!("--k8s-apiserver https://a --k8s-client-cert {}", certificate.display());
    let none = BTreeMap::new();
    let expect = |key: &std::path::Path, api: ApiServer| match api.credential {
        Some(Credential::Certificate { certificate: of, key: with }) => {
            assert_eq!((of, with), (certificate.clone(), key.to_owned()))
        }
        other => panic!("{other:?}"),
    };
    expect(&certificate, api(&place, &line, &none));
    expect(&key, api(&place, &format!("{line} --k8s-client-key {}", key.display()), &none));
}

#[test]
fn the_authority_is_a_path_a_text_or_base64() {
    let place = Place::new();
    let file = place.file("ca.crt", "");
    let authority = |api: ApiServer| match api.cluster {
        Cluster::Url { authority, .. } => authority,
        Cluster::Kubeconfig(path) => panic!("{path:?}"),
    };
    let pem = "-----BEGIN CERTIFICATE-----\\nAA\\n-----END CERTIFICATE-----";
    let of_ids = authority(api(
        &place,
        "",
        &ids([("k8s-api-server", "https://a"), ("k8s-ca-certificate", pem)]),
    ));
    assert_eq!(of_ids, Some(Authority::Pem(pem.replace("\\n", "\n"))));
    let path = file.to_str().unwrap();
    let of_ids = authority(api(
        &place,
        "",
        &ids([("k8s-api-server", "https://a"), ("k8s-ca-certificate", path)]),
    ));
    assert_eq!(of_ids, Some(Authority::File(file.clone())));
    let data = "--k8s-apiserver https://a --k8s-cacert-data LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t";
    assert_eq!(
        authority(api(&place, data, &BTreeMap::new())),
        Some(Authority::Pem("-----BEGIN CERTIFICATE-----".to_owned()))
    );
    let both = authority(api(&place, &format!("{data} --k8s-cacert {path}"), &BTreeMap::new()));
    assert_eq!(both, Some(Authority::File(file)));
}

#[test]
fn what_an_administrator_wrote_for_ovn_controller_stays_unless_an_option_is_given() {
    let place = Place::new();
    let set = ids([
        ("ovn-remote", "ssl:10.0.0.1:6642,ssl:10.0.0.2:6642"),
        ("ovn-encap-type", "geneve,vxlan"),
        ("ovn-encap-ip", "10.0.0.7"),
        ("ovn-remote-probe-interval", "5000"),
        ("ovn-openflow-probe-interval", "7"),
        ("ovn-monitor-all", "false"),
        ("ovn-limit-lflow-cache", "9"),
    ]);
    let kept = chassis(&place, "", &set);
    assert_eq!(
        (kept.southbound.as_str(), kept.encap_type.as_str()),
        ("ssl:10.0.0.1:6642,ssl:10.0.0.2:6642", "geneve,vxlan")
    );
    assert_eq!(
        (kept.encap_ip.as_deref(), kept.inactivity_probe.as_secs(), kept.openflow_probe.as_secs()),
        (Some("10.0.0.7"), 5, 7)
    );
    assert_eq!((kept.monitor_all, kept.lflow_cache_limit, kept.tls), (false, Some(9), None));
    let given = chassis(
        &place,
        "--sb-address tcp://10.0.0.3:6642 --encap-ip 10.0.0.8 --monitor-all --inactivity-probe 100000",
        &set,
    );
    assert_eq!(
        (given.southbound.as_str(), given.encap_ip.as_deref()),
        ("tcp:10.0.0.3:6642", Some("10.0.0.8"))
    );
    assert_eq!(
        (given.monitor_all, given.inactivity_probe.as_secs(), given.openflow_probe.as_secs()),
        (true, 100, 7)
    );
    let bad = ids([("ovn-encap-type", "pigeon")]);
    let error = place
        .node("--init-node n1 --pod-manifests /m")
        .unwrap()
        .config(&bad)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("external_ids:ovn-encap-type in Open vSwitch \"pigeon\" is none of"),
        "{error}"
    );
}

#[test]
fn numbers_of_levels_are_those_of_the_first_go_programs_and_above_5_klogs() {
    use ovslog::Level;
    for (text, level) in [
        ("1", Level::Error),
        ("fatal", Level::Error),
        ("2", Level::Error),
        ("3", Level::Warn),
        ("4", Level::Info),
        ("5", Level::Debug),
        ("9", Level::Debug),
        ("0", Level::Info),
        ("err", Level::Error),
    ] {
        let node = Place::new()
            .node(&format!("--init-node n1 --pod-manifests /m --loglevel {text}"))
            .unwrap();
        assert_eq!(node.early().log.level, level, "{text}");
    }
}
