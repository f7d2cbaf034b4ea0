//! A missing file of authorities, which the first connection writes on request
//! (`--bootstrap-ca-cert` of Open vSwitch's programs).

use std::{fs, path::Path};

use ovsdb::{MissingAuthority, Ssl};

use crate::{
    daemon::{Daemon, run},
    pki::{Pki, Valid},
    ssl::{connected, lasting, open, refusal, serve, server},
};

fn bootstrapped(pki: &Pki) -> Ssl {
    let mut ssl = pki.ssl("client", "learned");
    ssl.missing_authority = MissingAuthority::Bootstrap;
    ssl
}

fn same(pki: &Pki, one: &str, other: &str) {
    let der = |name: &str| {
        run("openssl", ["x509", "-in", &pki.text(name), "-noout", "-fingerprint", "-sha256"])
    };
    assert_eq!(der(one), der(other));
}

#[tokio::test]
async fn a_missing_file_of_authorities_is_written_on_request_and_believed_from_then_on() {
    let (_daemon, pki, endpoint) = server("pki", &[]).await;
    let ssl = bootstrapped(&pki);
    let connection = open(&endpoint, &ssl).await.unwrap();
    assert!(connection.schema().has_table("Bridge"));
    same(&pki, "learned.crt", "ca.crt");
    let in_directory = fs::read_dir(pki.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(
        in_directory.filter(|name| name.contains("learned")).collect::<Vec<_>>(),
        ["learned.crt"]
    );

    // Another server cannot replace the learned authority.
    let other = Daemon::new();
    let other_pki = Pki::new(other.path("pki"));
    let (_other, other_endpoint) = serve(other, other_pki.server("server", "ca")).await;
    refusal(&other_endpoint, &ssl).await;
    same(&pki, "learned.crt", "ca.crt");
}

#[tokio::test]
async fn clients_that_write_the_missing_file_at_the_same_time_all_get_in() {
    let (_daemon, pki, endpoint) = server("pki", &[]).await;
    let ssl = bootstrapped(&pki);
    let mut clients: Vec<_> = (0..4).map(|_| lasting(endpoint.clone(), ssl.clone())).collect();
    for (_, updates) in &mut clients {
        connected(updates).await;
    }
    same(&pki, "learned.crt", "ca.crt");
}

#[tokio::test]
async fn an_authority_that_cannot_be_had_or_kept_is_reported_and_nothing_is_written() {
    // This server's CA file has the clients' authority only, so it cannot send its own.
    let daemon = Daemon::new();
    let pki = Pki::new(daemon.path("pki"));
    pki.authority("other", Valid::Now);
    pki.signed("odd", "other", Valid::Now);
    let (_daemon, endpoint) = serve(daemon, pki.server("odd", "ca")).await;
    let mut ssl = bootstrapped(&pki);
    let refused = refusal(&endpoint, &ssl).await;
    assert!(
        refused.ends_with(
            "the server does not send the certificate of its authority (its option --peer-ca-cert does)"
        ),
        "{refused}"
    );
    assert!(!Path::new(&ssl.authority).exists());

    let (_daemon, pki, endpoint) = server("pki", &[]).await;
    ssl = bootstrapped(&pki);
    ssl.authority = pki.path("no/such/directory");
    let refused = refusal(&endpoint, &ssl).await;
    assert_eq!(
        refused,
        format!(
            "CA file {:?} cannot be written: No such file or directory (os error 2)",
            ssl.authority
        )
    );
}

#[tokio::test]
async fn a_bootstrapped_authority_has_to_be_for_the_name_that_is_asked_for() {
    let (_daemon, pki, endpoint) = server("pki", &[]).await;
    let mut ssl = bootstrapped(&pki);
    ssl.common_name = Some("other.test".to_owned());
    assert!(refusal(&endpoint, &ssl).await.contains("not for the name"));
}
