use std::{fs, path::Path};

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kubeapi::Cluster;
use prometheus::Registry;
use serde_json::{Value, json};

use super::{
    authority::{certificate, certificate_for, moment},
    *,
};
use crate::scripted::{Asked, Scripted, WatchStream};

const USER: &str = "system:ovn-node:n1";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A keeper, the API server that its own certificate leads to, and the one of the bootstrap
/// kubeconfig.
struct Kept {
    own: Scripted,
    bootstrap: Scripted,
    directory: tempfile::TempDir,
    metrics: Registry,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Kept {
    /// `before`: what the file has; its age in seconds.
    async fn start(before: Option<((String, String), i64)>) -> Self {
        let (own, bootstrap) = (Scripted::start().await, Scripted::start().await);
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("bootstrap");
        fs::write(&kubeconfig, kubeconfig_text(&bootstrap.url)).unwrap();
        if let Some(((chain, key), age)) = before {
            let file = store::path(directory.path());
            fs::write(&file, format!("{chain}{key}")).unwrap();
            let file = fs::File::options().append(true).open(file).unwrap();
            file.set_modified(moment(-age)).unwrap();
        }
        let config = CertificateConfig {
            bootstrap: ApiServer { cluster: Cluster::Kubeconfig(kubeconfig), credential: None },
            directory: directory.path().to_owned(),
            duration: Duration::from_secs(1200),
        };
        let cluster = Cluster::Url { url: own.url.clone(), authority: None };
        // Without TLS the certificate is not shown; which of the two servers is asked shows the
        // credential.
        let connection = Connection::open(ApiServer { cluster, credential: None });
        let metrics = Registry::new();
        let register = Arc::new(Metrics::register(&metrics).unwrap());
        let task = tokio::spawn(keep(config, "n1".to_owned(), connection, register));
        Self { own, bootstrap, directory, metrics, task }
    }

    /// Seconds until the certificate expires and is renewed, by the metrics.
    fn seconds_until(&self) -> [f64; 2] {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
        let families = self.metrics.gather();
        ["expiry", "renewal"].map(|what| {
            let name = format!("ovnkube_node_certificate_{what}_seconds");
            let family = families.iter().find(|family| family.name() == name).unwrap();
            family.get_metric()[0].get_gauge().get_value() - now
        })
    }

    fn file(&self) -> Result<String, std::io::Error> {
        fs::read_to_string(store::path(self.directory.path()))
    }

    /// Waits until the file has `text`.
    async fn stored(&self, text: &str) {
        let path = store::path(self.directory.path());
        let has = |path: &Path| fs::read_to_string(path).is_ok_and(|found| found.contains(text));
        timeout(Duration::from_secs(60), async {
            while !has(&path) {
                sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("{:?}", self.file()));
    }
}

fn kubeconfig_text(url: &str) -> String {
    json!({
        "clusters": [{"name": "k", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "bootstrap-token"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "current-context": "c",
    })
    .to_string()
}

fn object(version: &str, status: Value) -> Value {
    json!({
        "kind": "CertificateSigningRequest", "apiVersion": "certificates.k8s.io/v1",
        "metadata": {"name": "csr-1", "uid": "u1", "resourceVersion": version},
        "spec": {"request": "", "signerName": "kubernetes.io/kube-apiserver-client"},
        "status": status,
    })
}

/// Reads a request for a certificate, and accepts it. Returns the PKCS #10 in it.
async fn created(asked: Asked) -> Vec<u8> {
    assert_eq!((asked.method.as_str(), asked.path.split('?').next()), ("POST", Some(REQUESTS)));
    let request: CertificateSigningRequest = serde_json::from_slice(&asked.body).unwrap();
    let spec = request.spec;
    assert_eq!(request.metadata.generate_name.as_deref(), Some("csr-ovn-node-"));
    assert_eq!(spec.signer_name, "kubernetes.io/kube-apiserver-client");
    assert_eq!(spec.usages.unwrap(), ["digital signature", "client auth"]);
    assert_eq!(spec.expiration_seconds, Some(1200));
    asked
        .answer(
            "201 Created",
            "Content-Type: application/json\r\n",
            &object("1", json!({})).to_string(),
        )
        .await;
    spec.request.0
}

/// Answers the list of that one request, without a decision; returns the watch on it.
async fn watched(api: &mut Scripted) -> WatchStream {
    let asked = api.asked().await;
    assert_eq!(asked.parameter("fieldSelector"), Some("metadata.name%3Dcsr-1"));
    assert!(!asked.is_watch(), "{}", asked.path);
    asked.list("2", &[object("2", json!({}))]).await;
    api.asked().await.begin().await
}

/// The object once it is approved and signed.
fn signed(chain: &str) -> Value {
    use k8s_openapi::ByteString;
    let approved = json!({"type": "Approved", "status": "True"});
    object(
        "4",
        json!({"conditions": [approved], "certificate": ByteString(chain.as_bytes().to_vec())}),
    )
}

#[tokio::test(start_paused = true)]
async fn the_first_certificate_is_requested_with_the_bootstrap_credential_and_stored_once_it_is_signed()
 {
    let mut kept = Kept::start(None).await;
    let asked = kept.bootstrap.asked().await;
    assert_eq!(asked.header("authorization"), Some("Bearer bootstrap-token"));
    let request = created(asked).await;
    let mut watch = watched(&mut kept.bootstrap).await;
    // Approved, but not signed yet.
    watch
        .send(
            "MODIFIED",
            &object("3", json!({"conditions": [{"type": "Approved", "status": "True"}]})),
        )
        .await;
    let chain = certificate_for(&request, USER, 1200);
    watch.send("MODIFIED", &signed(&chain)).await;
    kept.stored(chain.trim()).await;
    assert!(kept.file().unwrap().contains("PRIVATE KEY"));
    kept.own.nothing_within(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_renewed_with_itself_once_two_thirds_of_its_lifetime_are_over() {
    let young = certificate(USER, 300, 600);
    let mut kept = Kept::start(Some((young, 100))).await;
    kept.own.nothing_within(Duration::from_secs(10)).await;
    kept.bootstrap.nothing_within(Duration::from_secs(1)).await;

    let old = certificate(USER, 900, 200);
    let mut kept = Kept::start(Some((old.clone(), 900))).await;
    let request = created(kept.own.asked().await).await;
    let mut watch = watched(&mut kept.own).await;
    assert!(
        kept.file().unwrap().contains(old.0.trim()),
        "the old one stays until there is a new one"
    );
    let chain = certificate_for(&request, USER, 1200);
    watch.send("MODIFIED", &signed(&chain)).await;
    kept.stored(chain.trim()).await;
    kept.bootstrap.nothing_within(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn metrics_say_when_the_certificate_expires_and_since_when_its_renewal_is_overdue() {
    let mut kept = Kept::start(Some((certificate(USER, 900, 200), 900))).await;
    let request = created(kept.own.asked().await).await;
    // Two thirds of 1100 s were over 167 s ago, or a twentieth more or less.
    let [expires, renewal] = kept.seconds_until();
    assert!((190.0..=200.0).contains(&expires), "expires in {expires} s");
    assert!((-240.0..=-100.0).contains(&renewal), "renewal in {renewal} s");
    let mut watch = watched(&mut kept.own).await;
    let chain = certificate_for(&request, USER, 1200);
    watch.send("MODIFIED", &signed(&chain)).await;
    kept.stored(chain.trim()).await;
    timeout(Duration::from_secs(60), async {
        while kept.seconds_until()[0] <= 200.0 {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("the metric follows the new certificate");
    let [expires, renewal] = kept.seconds_until();
    assert!((1180.0..=1200.0).contains(&expires), "expires in {expires} s");
    assert!((730.0..=870.0).contains(&renewal), "renewal in {renewal} s");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_asked_again_and_the_certificate_stays() {
    let old = certificate(USER, 900, 200);
    let mut kept = Kept::start(Some((old.clone(), 900))).await;
    for _ in 0..5 {
        kept.own.asked().await.status(503, "etcd is away").await;
    }
    assert!(kept.file().unwrap().contains(old.0.trim()));
    let request = created(kept.own.asked().await).await;
    let mut watch = watched(&mut kept.own).await;
    let chain = certificate_for(&request, USER, 1200);
    watch.send("MODIFIED", &signed(&chain)).await;
    kept.stored(chain.trim()).await;
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_the_api_server_does_not_accept_expired_or_is_another_nodes_leads_back_to_the_bootstrap_credential()
 {
    let mut kept = Kept::start(Some((certificate(USER, 900, 200), 900))).await;
    kept.own.asked().await.status(401, "Unauthorized").await;
    // The connection looks for a newer certificate first.
    created(kept.bootstrap.asked().await).await;

    for unusable in [certificate(USER, 900, -1), certificate("system:ovn-node:n2", 300, 600)] {
        let mut kept = Kept::start(Some((unusable, 10))).await;
        created(kept.bootstrap.asked().await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_is_lost_while_the_server_runs_is_requested_again() {
    let mut kept = Kept::start(Some((certificate(USER, 300, 100_000), 10))).await;
    kept.bootstrap.nothing_within(Duration::from_secs(1)).await;
    fs::remove_file(store::path(kept.directory.path())).unwrap();
    created(kept.bootstrap.asked().await).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_denied_deleted_or_failed_is_followed_by_another_one() {
    let mut kept = Kept::start(None).await;
    let denied =
        json!({"conditions": [{"type": "Denied", "status": "True", "message": "not you"}]});
    let failed = json!({"conditions": [{"type": "Failed", "status": "True", "message": "no key"}]});
    for (kind, status) in [("MODIFIED", denied), ("MODIFIED", failed), ("DELETED", json!({}))] {
        created(kept.bootstrap.asked().await).await;
        watched(&mut kept.bootstrap).await.send(kind, &object("3", status)).await;
        // Not at once.
        kept.bootstrap.nothing_within(Duration::from_millis(300)).await;
    }
    // A certificate for another user, as a signer with other rules may give it.
    let request = created(kept.bootstrap.asked().await).await;
    let chain = certificate_for(&request, "system:ovn-node:n2", 1200);
    watched(&mut kept.bootstrap).await.send("MODIFIED", &signed(&chain)).await;
    created(kept.bootstrap.asked().await).await;
    assert!(kept.file().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_approves_gives_way_to_another_one_after_a_quarter_of_an_hour() {
    let mut kept = Kept::start(None).await;
    created(kept.bootstrap.asked().await).await;
    let _watch = watched(&mut kept.bootstrap).await;
    let asked = loop {
        let asked = kept.bootstrap.asked().await;
        // A silent watch is opened again meanwhile.
        if asked.method == "POST" {
            break asked;
        }
    };
    created(asked).await;
}
