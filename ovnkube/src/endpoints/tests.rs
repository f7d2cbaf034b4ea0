use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr, TcpListener},
    process::Command,
    time::Duration,
};

use server::conditions::Part;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::*;

/// A port that was free a moment ago.
fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn page() -> Arc<Page> {
    Arc::new(Page::of_node([]).unwrap())
}

fn on(address: SocketAddr) -> Endpoints {
    Endpoints { metrics: Some(address), ..Endpoints::default() }
}

/// Connects as soon as a server listens, sends a request, and returns everything until the end of
/// the connection.
async fn ask(address: SocketAddr, request: &str) -> String {
    let connect = async {
        loop {
            match TcpStream::connect(address).await {
                Ok(stream) => break stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let talk = async {
        let mut stream = connect.await;
        stream
            .write_all(format!("{request} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let mut answer = Vec::new();
        // A server without a certificate resets the connection.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    };
    tokio::time::timeout(Duration::from_secs(20), talk).await.expect("an answer in time")
}

fn ready() -> Conditions {
    let conditions = Conditions::default();
    Part::NODE.into_iter().for_each(|part| conditions.met(part));
    conditions
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_lists_what_is_missing_and_why_until_nothing_is() {
    let (address, conditions) = (free_address(), ready());
    let _serving = start(&on(address), &conditions, &page());
    let answer = ask(address, "GET /readyz").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok\n"), "{answer}");

    conditions.missing(Part::PODS, "the API server does not answer:\n\u{1b}[2Jconnection refused");
    let answer = ask(address, "GET /readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let list = "[+]open-vswitch ok\n[+]tunnel-address ok\n[+]plugin ok\n[+]socket ok\n\
                [-]pods not ready: the API server does not answer:  [2Jconnection refused\n\
                [+]management-port ok\n[+]cni-configuration ok\n[+]services ok\n[+]gateway ok\n\
                [+]cluster-subnets ok\nreadyz check failed\n";
    assert!(answer.ends_with(list), "{answer}");
    assert!(ask(address, "GET /healthz").await.starts_with("HTTP/1.1 200 "));

    conditions.met(Part::PODS);
    let answer = ask(address, "GET /readyz?verbose").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ")
            && answer.ends_with(
                "[+]cni-configuration ok\n[+]services ok\n[+]gateway ok\n[+]cluster-subnets ok\n\
                 readyz check passed\n"
            ),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_reading_is_allowed_and_only_what_there_is() {
    let (metrics, healthz) = (free_address(), free_address());
    let _serving = start(
        &Endpoints { metrics: Some(metrics), healthz: Some(healthz), ..Endpoints::default() },
        &ready(),
        &page(),
    );
    for (address, request, status) in [
        (metrics, "GET /metrics", "200"),
        (metrics, "HEAD /metrics", "200"),
        (metrics, "GET /metrics?x=1", "200"),
        (metrics, "POST /metrics", "405"),
        (metrics, "GET /metrics/", "404"),
        (metrics, "GET /", "404"),
        (metrics, "GET /../etc/passwd", "404"),
        (healthz, "GET /healthz", "200"),
        (healthz, "HEAD /readyz", "200"),
        (healthz, "PUT /healthz", "405"),
        (healthz, "GET /metrics", "404"),
    ] {
        let answer = ask(address, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        if request.starts_with("HEAD") {
            assert!(answer.ends_with("\r\n\r\n"), "{request}: {answer}");
        }
    }
    assert!(ask(metrics, "POST /metrics").await.contains("allow: GET, HEAD\r\n"));
    assert!(
        ask(metrics, "GET /metrics")
            .await
            .contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_for_both_serves_both() {
    let address = free_address();
    let _serving = start(
        &Endpoints { metrics: Some(address), healthz: Some(address), ..Endpoints::default() },
        &ready(),
        &page(),
    );
    for path in ["GET /metrics", "GET /healthz", "GET /readyz"] {
        assert!(ask(address, path).await.starts_with("HTTP/1.1 200 "), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_is_served_once_it_is_free() {
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = other.local_addr().unwrap();
    let _serving = start(&on(address), &ready(), &page());
    // Time for the first try, which fails.
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(other);
    assert!(ask(address, "GET /healthz").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_address_means_those_of_both_versions() {
    let port = free_address().port();
    let _serving = start(&on((Ipv6Addr::UNSPECIFIED, port).into()), &ready(), &page());
    assert!(
        ask((Ipv4Addr::LOCALHOST, port).into(), "GET /healthz").await.starts_with("HTTP/1.1 200 ")
    );
    // If the machine has no IPv6, there is only IPv4.
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        assert!(
            ask((Ipv6Addr::LOCALHOST, port).into(), "GET /healthz")
                .await
                .starts_with("HTTP/1.1 200 ")
        );
    }
}

/// A new key and a certificate for it, as openssl(1) makes them.
fn certify(files: &Tls, name: &str) {
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
    ]);
    openssl
        .args(["-subj", &format!("/CN={name}"), "-keyout"])
        .arg(&files.key)
        .arg("-out")
        .arg(&files.certificate);
    let output = openssl
        .output()
        .expect("openssl is missing; install it with: integration/prerequisites.sh test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The name in the certificate that a TLS client receives; `None` if the handshake fails.
async fn certified_name(address: SocketAddr) -> Option<String> {
    let show = move || {
        let mut client = Command::new("openssl");
        client
            .args(["s_client", "-connect", &address.to_string()])
            .stdin(std::process::Stdio::null());
        let text = String::from_utf8_lossy(&client.output().unwrap().stdout).into_owned();
        Some(text.split_once("subject=CN = ")?.1.lines().next()?.to_owned())
    };
    tokio::task::spawn_blocking(show).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_used_from_the_next_connection_on() {
    let directory = tempfile::tempdir().unwrap();
    let files = |name: &str| Tls {
        key: directory.path().join(format!("{name}.key")),
        certificate: directory.path().join(format!("{name}.crt")),
    };
    let (used, next) = (files("used"), files("next"));
    let address = free_address();
    let _serving = start(&Endpoints { tls: Some(used.clone()), ..on(address) }, &ready(), &page());
    let connected = ask(address, "GET /healthz").await;
    assert!(!connected.contains("200"), "no certificate, no answer: {connected}");

    certify(&used, "one");
    assert_eq!(certified_name(address).await.as_deref(), Some("one"));
    certify(&next, "two");
    fs::rename(&next.key, &used.key).unwrap();
    assert_eq!(certified_name(address).await.as_deref(), Some("one"), "half of a renewal");
    fs::rename(&next.certificate, &used.certificate).unwrap();
    assert_eq!(certified_name(address).await.as_deref(), Some("two"));
    fs::write(&used.certificate, "rubbish").unwrap();
    assert_eq!(
        certified_name(address).await.as_deref(),
        Some("two"),
        "what cannot be used is not used"
    );
}

/// A load balancer outside of the cluster asks at kube-proxy's port.
#[tokio::test(flavor = "multi_thread")]
async fn health_is_that_of_kube_proxy_and_ends_when_the_node_is_about_to_go() {
    let (healthz, conditions) = (free_address(), ready());
    let _serving =
        start(&Endpoints { healthz: Some(healthz), ..Endpoints::default() }, &conditions, &page());
    let answer = ask(healthz, "GET /healthz").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains(r#""nodeEligible":true"#),
        "{answer}"
    );
    conditions.leave(true);
    let answer = ask(healthz, "GET /healthz").await;
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains(r#""nodeEligible":false"#),
        "{answer}"
    );
    // That is no reason to restart or to take the network away.
    assert!(ask(healthz, "GET /readyz").await.starts_with("HTTP/1.1 200 "));
}
