//! The source of pods: a directory, or the API server, with its address and the credentials for it.

use super::super::{
    kind::Kind,
    spec::{Group, OldKey, Part, Spec},
    values,
};

const SECTION: &str = "kubernetes";
const URL: Kind =
    Kind::Checked { value_name: "URL", check: |text| values::server_url(text).map(drop) };

const CERT_LIFETIME: Kind = Kind::Checked {
    value_name: "TIME",
    check: |text| values::certificate_duration(text).map(drop),
};

options! { Group::Kubernetes;
    POD_MANIFESTS = Spec::new("pod-manifests", Kind::Path).value("DIR").key(SECTION, "pod-manifests")
        .help("Know the pods from the Pod manifests (*.yaml, *.yml, *.json) in this directory, not from the \
               API server");
    KUBECONFIG = Spec::new("k8s-kubeconfig", Kind::Path).key(SECTION, "kubeconfig").environment("KUBECONFIG")
        .help("Reach the API server as this kubeconfig file says");
    API_SERVER = Spec::new("k8s-apiserver", URL).key(SECTION, "apiserver").environment("K8S_APISERVER")
        .external_id("k8s-api-server")
        .default("http://localhost:8443")
        .help("The API server's address; the default counts only where a credential for it is given");
    CA_CERT = Spec::new("k8s-cacert", Kind::Path).key(SECTION, "cacert").environment("K8S_CACERT")
        .external_id("k8s-ca-certificate")
        .old_keys(&[OldKey::python("k8s-ca-certificate")])
        .help("PEM bundle of the CAs that sign the API server's certificate; the system's by default");
    CA_CERT_DATA = Spec::new("k8s-cacert-data", Kind::Text).value("BASE64").key(SECTION, "cacert-data")
        .environment("K8S_CACERT_DATA")
        .help("These certificates themselves, as base64 of PEM; --k8s-cacert from the same place wins");
    TOKEN = Spec::new("k8s-token", Kind::Secret).key(SECTION, "token").environment("K8S_TOKEN")
        .external_id("k8s-api-token")
        .help("Token for the API server. Other users can see it in the list of processes: prefer \
               --k8s-token-file");
    TOKEN_FILE = Spec::new("k8s-token-file", Kind::Path).key(SECTION, "tokenfile")
        .environment("K8S_TOKEN_FILE")
        .old_keys(&[OldKey::same(SECTION, "token-file")])
        .external_id("k8s-api-token-file")
        .help("File with the token, read again when it changes; wins over --k8s-token from the same place");
    CLIENT_CERT = Spec::new("k8s-client-cert", Kind::Path).key(SECTION, "client-cert")
        .environment("K8S_CLIENT_CERT")
        .help("Certificate (PEM) for the API server instead of a token, read again when it changes");
    CLIENT_PRIVKEY = Spec::new("k8s-client-privkey", Kind::Path).aliases(&["k8s-client-key"])
        .key(SECTION, "client-privkey")
        .environment("K8S_CLIENT_PRIVKEY").old_keys(&[OldKey::same(SECTION, "client-key")])
        .help("Private key (PEM) of --k8s-client-cert; without it, the certificate's file has both");
    BOOTSTRAP_KUBECONFIG = Spec::new("bootstrap-kubeconfig", Kind::Path).key(SECTION, "bootstrap-kubeconfig")
        .environment("BOOTSTRAP_KUBECONFIG")
        .help("Kubeconfig where --k8s-kubeconfig is not given, usually the kubelet's. With --cert-dir, a node's \
               server only requests its certificate with it; otherwise its user is used as it is");
    CERT_DIR = Spec::new("cert-dir", Kind::Path).value("DIR").key(SECTION, "cert-dir").environment("CERT_DIR")
        .help("Reach the API server as user system:ovn-node:NODE, by a certificate that a node's server requests \
               with --bootstrap-kubeconfig, keeps in this directory and renews");
    CERT_DURATION = Spec::new("cert-duration", CERT_LIFETIME).key(SECTION, "cert-duration").default("10m")
        .help("How long that certificate is requested to be valid, from 10m to 8760h; the signer may give less");
    HOST_NETWORK_NAMESPACE = Spec::new("host-network-namespace", Kind::Text).value("NAMESPACE")
        .key(SECTION, "host-network-namespace")
        .environment("OVN_HOST_NETWORK_NAMESPACE").later(Part::Policies)
        .help("Namespace that stands for the nodes' own network in policies");
    PLATFORM_TYPE = Spec::new("platform-type", Kind::Text).key(SECTION, "platform-type").later(Part::Egress)
        .help("The provider of the machines");
    DNS_SERVICE_NAMESPACE = Spec::new("dns-service-namespace", Kind::Text).value("NAMESPACE")
        .key(SECTION, "dns-service-namespace")
        .default("kube-system").later(Part::Policies).help("Namespace of the cluster's DNS service");
    DNS_SERVICE_NAME = Spec::new("dns-service-name", Kind::Text).value("NAME")
        .key(SECTION, "dns-service-name")
        .default("kube-dns").later(Part::Policies).help("Name of the cluster's DNS service");
    OVN_EMPTY_LB_EVENTS = Spec::new("ovn-empty-lb-events", Kind::Switch).key(SECTION, "ovn-empty-lb-events")
        .default("false")
        .help("Report connections to idled services (k8s.ovn.org/idled-at) by the event NeedPods instead of \
               refusing them (unidling); for it the controller follows the southbound database");
    POD_IP = Spec::new("pod-ip", Kind::Text).value("IP").key(SECTION, "pod-ip")
        .help("Address of this process's own pod")
        .never("is not needed by any part");
}
