//! The certificate that a node's server requests, and who approves it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kubeapi::{ApiServer, Cluster, Credential};
use server::node::{NodeConfig, PodsFrom};

use super::{super::Program, Place};

fn node(place: &Place, line: &str) -> Result<NodeConfig, String> {
    let options = place.node(&format!("--init-node n1 {line}"))?;
    options.config(&BTreeMap::new()).map_err(|error| error.to_string())
}

fn api(config: NodeConfig) -> ApiServer {
    match config.pods {
        PodsFrom::ApiServer(api) => api,
        PodsFrom::Manifests(directory) => panic!("{directory:?}"),
    }
}

/// The directory of the certificate with which the API server is reached.
fn shown(api: &ApiServer) -> Option<String> {
    match &api.credential {
        Some(Credential::Certificate { certificate, key }) if certificate == key => {
            Some(certificate.display().to_string())
        }
        _ => None,
    }
}

const FILE: &str = "/certs/ovnkube-client-current.pem";

#[test]
fn the_bootstrap_kubeconfig_only_requests_the_certificate_and_gives_the_address_where_no_other_does()
 {
    let place = Place::new().service_account();
    let bootstrap = place.file("kubelet.conf", "");
    let line = format!("--bootstrap-kubeconfig {} --cert-dir /certs", bootstrap.display());
    let is_bootstrap = |cluster: &Cluster| *cluster == Cluster::Kubeconfig(bootstrap.clone());

    let config = node(&place, &line).unwrap();
    let certificate = config.certificate.clone().unwrap();
    assert_eq!(
        (certificate.directory.to_str(), certificate.duration),
        (Some("/certs"), Duration::from_secs(600))
    );
    assert!(
        is_bootstrap(&certificate.bootstrap.cluster) && certificate.bootstrap.credential.is_none()
    );
    let api_server = api(config);
    assert!(is_bootstrap(&api_server.cluster), "{api_server:?}");
    assert_eq!(shown(&api_server).as_deref(), Some(FILE));

    let config =
        node(&place, &format!("{line} --k8s-apiserver https://a:6443 --cert-duration 24h"))
            .unwrap();
    let certificate = config.certificate.clone().unwrap();
    assert!(is_bootstrap(&certificate.bootstrap.cluster));
    assert_eq!(certificate.duration, Duration::from_secs(24 * 3600));
    let api_server = api(config);
    assert!(matches!(&api_server.cluster, Cluster::Url { url, .. } if url == "https://a:6443"));
    // The pod's service account has a token, too.
    assert_eq!(shown(&api_server).as_deref(), Some(FILE));

    // Upstream's kind: from the environment.
    let mut place = Place::new().service_account();
    place.variable("BOOTSTRAP_KUBECONFIG", &bootstrap.display().to_string());
    place.variable("CERT_DIR", "/certs");
    place.variable("K8S_APISERVER", "https://a:6443");
    assert_eq!(shown(&api(node(&place, "").unwrap())).as_deref(), Some(FILE));
}

#[test]
fn a_kubeconfig_without_a_directory_is_used_as_it_is() {
    let place = Place::new();
    let bootstrap = place.file("kubelet.conf", "");
    let config = node(&place, &format!("--bootstrap-kubeconfig {}", bootstrap.display())).unwrap();
    assert!(config.certificate.is_none());
    let api_server = api(config);
    assert_eq!(
        (api_server.cluster, api_server.credential.is_none()),
        (Cluster::Kubeconfig(bootstrap), true)
    );
}

#[test]
fn a_credential_from_a_better_source_counts_and_then_no_certificate_is_requested() {
    let mut place = Place::new();
    let bootstrap = place.file("kubelet.conf", "").display().to_string();
    let kubeconfig = place.file("own.conf", "").display().to_string();
    place.variable("BOOTSTRAP_KUBECONFIG", &bootstrap);
    place.variable("CERT_DIR", "/certs");
    for line in [
        "--k8s-apiserver https://a --k8s-token t".to_owned(),
        format!("--k8s-kubeconfig {kubeconfig}"),
    ] {
        let config = node(&place, &line).unwrap();
        assert!(config.certificate.is_none(), "{line}");
        assert_eq!(shown(&api(config)), None, "{line}");
    }
    // From the same source, the certificate is what the kubeconfig is reached with.
    let line = format!(
        "--k8s-kubeconfig {kubeconfig} --bootstrap-kubeconfig {bootstrap} --cert-dir /certs"
    );
    let api_server = api(node(&place, &line).unwrap());
    assert_eq!(shown(&api_server).as_deref(), Some(FILE));
}

#[test]
fn what_does_not_go_together_is_said() {
    let place = Place::new();
    let bootstrap = place.file("kubelet.conf", "").display().to_string();
    let both =
        format!("--bootstrap-kubeconfig {bootstrap} --cert-dir /certs --k8s-apiserver https://a");
    for (line, problem) in [
        (
            "--k8s-apiserver https://a --cert-dir /certs".to_owned(),
            "--cert-dir \"/certs\" needs --bootstrap-kubeconfig FILE",
        ),
        (
            format!("{both} --k8s-token t"),
            "--k8s-token and --cert-dir: give a token or a certificate, not both",
        ),
        (
            format!("{both} --k8s-client-cert {bootstrap}"),
            "--k8s-client-cert and --cert-dir: give one certificate, not both",
        ),
        (format!("{both} --cert-duration 9m"), "--cert-duration \"9m\" is not from 10m to 8760h"),
        (format!("{both} --cert-duration 8761h"), "is not from 10m to 8760h"),
        (format!("{both} --cert-duration soon"), "--cert-duration"),
    ] {
        let text = node(&place, &line).unwrap_err();
        assert!(text.contains(problem), "{text}");
    }
}

#[test]
fn a_cluster_manager_approves_certificates_only_where_it_is_told_to() {
    let place = Place::new();
    let bootstrap_users = |line: &str| match place.options(line).program() {
        Ok(Program::ControlPlane(config, _)) => config.bootstrap_users,
        other => panic!("{line}: {other:?}"),
    };
    let api = "--k8s-apiserver https://a";
    let manager = format!("--init-cluster-manager m {api} --cluster-subnets 10.128.0.0/14/23");
    assert_eq!(bootstrap_users(&manager), None);
    let approves = format!("{manager} --approve-node-certificates");
    assert_eq!(bootstrap_users(&approves), Some(BTreeSet::new()));
    let users =
        bootstrap_users(&format!("{approves} --node-bootstrap-users system:bootstrap:a,boot,"));
    assert_eq!(users, Some(["boot", "system:bootstrap:a"].map(str::to_owned).into()));
    let controller = format!("--init-ovnkube-controller m {api} --approve-node-certificates");
    assert_eq!(bootstrap_users(&controller), None);
}
