//! `ssl:` connections to a real server, which requests a client certificate, as is its default.

use std::{error::Error, fs, time::Duration};

use ovsdb::{Client, Connection, Endpoint, Event, Monitor, Options, Ssl, Where};

use crate::{
    daemon::{Daemon, SWITCH_SCHEMA, run, schema},
    eventually::{eventually, in_time},
    pki::{Pki, Valid},
    switch::{Bridge, DATABASE, add_root, adding_bridges, names},
};

/// A server with these options besides those of its certificates.
pub(crate) async fn server(pki: &str, options: &[&str]) -> (Daemon, Pki, Endpoint) {
    let daemon = Daemon::new();
    let pki = Pki::new(daemon.path(pki));
    let arguments = pki
        .server("server", "ca")
        .into_iter()
        .chain(options.iter().map(ToString::to_string))
        .collect();
    let (daemon, endpoint) = serve(daemon, arguments).await;
    (daemon, pki, endpoint)
}

pub(crate) async fn serve(mut daemon: Daemon, arguments: Vec<String>) -> (Daemon, Endpoint) {
    daemon.create("conf.db", schema(SWITCH_SCHEMA));
    daemon.start_with("conf.db", arguments).await;
    let endpoint = daemon.listen("ssl").await;
    (daemon, endpoint)
}

pub(crate) async fn open(endpoint: &Endpoint, ssl: &Ssl) -> Result<Connection, String> {
    let options = Options { ssl: Some(ssl.clone()), ..Options::default() };
    Connection::open(endpoint, DATABASE, options).await.map_err(|error| {
        assert_eq!(error.endpoint, *endpoint);
        let mut text = error.fault.to_string();
        let mut cause = error.fault.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    })
}

pub(crate) async fn refusal(endpoint: &Endpoint, ssl: &Ssl) -> String {
    open(endpoint, ssl).await.expect_err("a refusal")
}

#[tokio::test]
async fn both_versions_of_tls_carry_what_is_written_read_and_followed() {
    for version in ["TLSv1.2", "TLSv1.3"] {
        let (_daemon, pki, endpoint) =
            server("pki", &[&format!("--ssl-protocols={version}")]).await;
        let connection = open(&endpoint, &pki.ssl("client", "ca")).await.unwrap();
        add_root(&connection).await;
        let mut monitored =
            connection.monitor(Monitor::new().table::<Bridge>(Where::all())).await.unwrap();
        // More than the buffers of either side hold.
        let bridges: Vec<String> = (0..2_000).map(|number| format!("br{number:01000}")).collect();
        connection
            .transact(adding_bridges(&bridges.iter().map(String::as_str).collect::<Vec<_>>()))
            .await
            .unwrap();
        in_time("the bridges", monitored.changed()).await.unwrap();
        assert_eq!(names(monitored.rows()).len(), 2_000, "{version}");
    }
}

#[tokio::test]
async fn keys_are_taken_in_each_form_that_openssl_writes() {
    let (_daemon, pki, endpoint) = server("pki", &[]).await;
    let pkcs8 = pki.ssl("client", "ca");
    let mut sec1 = pkcs8.clone();
    sec1.identity.as_mut().unwrap().private_key = pki.path("sec1.key");
    pki.openssl(&["ec", "-in", &pki.text("client.key"), "-out", &pki.text("sec1.key")]);
    pki.openssl(&["genrsa", "-traditional", "-out", &pki.text("rsa.key"), "2048"]);
    for (ssl, form) in [(&pkcs8, "BEGIN PRIVATE KEY"), (&sec1, "BEGIN EC PRIVATE KEY")] {
        let key = fs::read_to_string(&ssl.identity.as_ref().unwrap().private_key).unwrap();
        assert!(key.contains(form), "{form}");
        open(&endpoint, ssl).await.unwrap();
    }
    let mut pkcs1 = pkcs8;
    pkcs1.identity.as_mut().unwrap().private_key = pki.path("rsa.key");
    assert!(fs::read_to_string(pki.path("rsa.key")).unwrap().contains("BEGIN RSA PRIVATE KEY"));
    assert!(
        refusal(&endpoint, &pkcs1).await.contains("does not belong to"),
        "read, and not that of the certificate"
    );
}

#[tokio::test]
async fn certificates_of_ovs_pki_are_good_and_their_common_name_counts() {
    let daemon = Daemon::new();
    let directory = daemon.path("pki");
    fs::create_dir(&directory).unwrap();
    let at = |name: &str| directory.join(name).display().to_string();
    let ovs_pki = |arguments: &[&str]| {
        let tool = format!(
            "cd '{}' && ovs-pki --dir='{}' --log='{}' {}",
            at(""),
            at("ca"),
            at("log"),
            arguments.join(" ")
        );
        run("sh", ["-c", &tool])
    };
    ovs_pki(&["init"]);
    ovs_pki(&["req+sign", "server", "switch"]);
    ovs_pki(&["req+sign", "client", "switch"]);
    let authority = directory.join("ca/switchca/cacert.pem");
    let arguments = vec![
        format!("--private-key={}", at("server-privkey.pem")),
        format!("--certificate={}", at("server-cert.pem")),
        format!("--ca-cert={}", authority.display()),
    ];
    let (_daemon, endpoint) = serve(daemon, arguments).await;
    let identity = ovsdb::Identity {
        private_key: directory.join("client-privkey.pem"),
        certificate: directory.join("client-cert.pem"),
    };
    let mut ssl = Ssl::new(authority);
    ssl.identity = Some(identity);
    open(&endpoint, &ssl).await.unwrap();

    let subject = run(
        "openssl",
        ["x509", "-noout", "-subject", "-nameopt", "multiline", "-in", &at("server-cert.pem")],
    );
    let name = subject
        .lines()
        .find_map(|line| line.trim().strip_prefix("commonName"))
        .unwrap()
        .trim_start_matches([' ', '=']);
    ssl.common_name = Some(name.to_owned());
    open(&endpoint, &ssl).await.unwrap();
    ssl.common_name = Some("ovnnb".to_owned());
    let refusal = refusal(&endpoint, &ssl).await;
    assert!(
        refusal.starts_with("the server's certificate is not for the name \"ovnnb\", but for ")
            && refusal.contains(name),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_name_that_is_asked_for_has_to_be_in_the_certificate() {
    let (_daemon, pki, endpoint) = server("pki", &[]).await;
    let mut ssl = pki.ssl("client", "ca");
    let mut open_as = async |name: &str| {
        ssl.common_name = Some(name.to_owned());
        open(&endpoint, &ssl).await.map(drop)
    };
    open_as("server.test").await.unwrap();
    open_as("the server").await.unwrap();
    let refusal = open_as("other.test").await.unwrap_err();
    assert!(
        refusal.contains("not for the name \"other.test\"") && refusal.contains("server.test"),
        "{refusal}"
    );
    open_as("127.0.0.1").await.unwrap_err();
}

/// Errors in the files are found before anything is sent, and name the file.
#[tokio::test]
async fn files_that_cannot_be_used_are_named_with_what_is_wrong() {
    let daemon = Daemon::new();
    let pki = Pki::new(daemon.path("pki"));
    let nowhere = "ssl:127.0.0.1:1".parse().unwrap();
    pki.authority("old-ca", Valid::Before);
    pki.authority("new-ca", Valid::Later);
    pki.signed("old", "ca", Valid::Before);
    pki.signed("new", "ca", Valid::Later);
    pki.openssl(&[
        "pkey",
        "-in",
        &pki.text("client.key"),
        "-aes128",
        "-passout",
        "pass:secret",
        "-out",
        &pki.text("locked.key"),
    ]);
    for (file, contents) in
        [("empty", ""), ("text", "no PEM at all"), ("cut", "-----BEGIN CERTIFICATE-----\nAAAA\n")]
    {
        fs::write(pki.path(file), contents).unwrap();
    }
    fs::write(
        pki.path("nonsense"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();

    let cases: &[(&str, &str, &str, &str)] = &[
        // key, certificate, CA file; the error, with the file's name in brackets
        (
            "gone",
            "client.crt",
            "ca.crt",
            "private key [gone] cannot be read: No such file or directory (os error 2)",
        ),
        (
            "client.key",
            "gone",
            "ca.crt",
            "certificate [gone] cannot be read: No such file or directory (os error 2)",
        ),
        ("client.key", "client.crt", "gone", "CA file [gone] cannot be read: entity not found"),
        (
            "client.key",
            "client.crt",
            ".",
            "CA file [.] cannot be read: Is a directory (os error 21)",
        ),
        ("text", "client.crt", "ca.crt", "private key [text] is not in the form of PEM"),
        ("empty", "client.crt", "ca.crt", "private key [empty] holds no private key"),
        ("client.crt", "client.crt", "ca.crt", "private key [client.crt] holds no private key"),
        (
            "locked.key",
            "client.crt",
            "ca.crt",
            "private key [locked.key] is encrypted with a passphrase, which is not supported",
        ),
        ("client.key", "client.key", "ca.crt", "certificate [client.key] holds no certificate"),
        ("client.key", "cut", "ca.crt", "certificate [cut] is not in the form of PEM"),
        (
            "client.key",
            "nonsense",
            "ca.crt",
            "certificate [nonsense] cannot be used: a certificate in it makes no sense",
        ),
        ("client.key", "client.crt", "text", "CA file [text] is not in the form of PEM"),
        ("client.key", "client.crt", "client.key", "CA file [client.key] holds no certificate"),
        (
            "server.key",
            "client.crt",
            "ca.crt",
            "private key [server.key] does not belong to certificate [client.crt]",
        ),
        (
            "old.key",
            "old.crt",
            "ca.crt",
            "certificate [old.crt] expired at 2021-02-03 04:05:06 UTC",
        ),
        (
            "new.key",
            "new.crt",
            "ca.crt",
            "certificate [new.crt] is not valid before 2098-01-02 03:04:05 UTC: is this host's clock right?",
        ),
        (
            "client.key",
            "client.crt",
            "old-ca.crt",
            "CA file [old-ca.crt] expired at 2021-02-03 04:05:06 UTC",
        ),
    ];
    for (key, certificate, authority, said) in cases {
        let mut ssl = pki.ssl("client", "ca");
        let identity = ssl.identity.as_mut().unwrap();
        (identity.private_key, identity.certificate, ssl.authority) =
            (pki.path(key), pki.path(certificate), pki.path(authority));
        let expected =
            said.split('[').enumerate().map(|(index, part)| match part.split_once(']') {
                Some((file, rest)) if index > 0 => format!("{:?}{rest}", pki.path(file)),
                _ => part.to_owned(),
            });
        assert_eq!(refusal(&nowhere, &ssl).await, expected.collect::<String>());
    }
}

#[tokio::test]
async fn a_server_that_is_not_to_be_believed_is_refused_with_the_reason() {
    let daemon = Daemon::new();
    let pki = Pki::new(daemon.path("pki"));
    pki.authority("other", Valid::Now);
    pki.signed("old", "ca", Valid::Before);
    pki.signed("new", "ca", Valid::Later);
    let (mut daemon, endpoint) = serve(daemon, pki.server("server", "ca")).await;
    let refused = refusal(&endpoint, &pki.ssl("client", "other")).await;
    assert_eq!(
        refused,
        format!(
            "the server's certificate is not signed by any authority in {:?}",
            pki.path("other.crt")
        )
    );

    for (identity, said) in [
        ("old", "the server's certificate expired at 2021-02-03 04:05:06 UTC"),
        (
            "new",
            "the server's certificate is not valid before 2098-01-02 03:04:05 UTC: \
             is this host's clock right?",
        ),
    ] {
        daemon.kill();
        daemon.start_with("conf.db", pki.server(identity, "ca")).await;
        let endpoint = daemon.listen("ssl").await;
        assert_eq!(refusal(&endpoint, &pki.ssl("client", "ca")).await, said);
    }
}

#[tokio::test]
async fn an_authority_of_the_same_name_with_another_key_is_another() {
    let (_daemon, pki, endpoint) = server("pki", &[]).await;
    pki.authority("ca", Valid::Now);
    let refused = refusal(&endpoint, &pki.ssl("client", "ca")).await;
    assert_eq!(
        refused,
        format!(
            "the server's certificate is not signed by any authority in {:?}",
            pki.path("ca.crt")
        )
    );
}

#[tokio::test]
async fn a_server_that_refuses_this_side_is_quoted() {
    for version in ["TLSv1.2", "TLSv1.3"] {
        let (_daemon, pki, endpoint) =
            server("pki", &[&format!("--ssl-protocols={version}")]).await;
        let mut nameless = pki.ssl("client", "ca");
        nameless.identity = None;
        assert_eq!(
            refusal(&endpoint, &nameless).await,
            "the server asks for a certificate, and none is configured",
            "{version}"
        );

        pki.authority("other", Valid::Now);
        pki.signed("stranger", "other", Valid::Now);
        let refused = refusal(&endpoint, &pki.ssl("stranger", "ca")).await;
        assert_eq!(
            refused,
            format!("the server refuses certificate {:?}: UnknownCA", pki.path("stranger.crt")),
            "{version}"
        );
    }
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_is_told_from_one_that_is_not_believed() {
    let (daemon, pki, _) = server("pki", &[]).await;
    let Endpoint::Tcp { host, port } = daemon.listen("tcp").await else { panic!("asked for tcp") };
    let refused = refusal(&Endpoint::Ssl { host, port }, &pki.ssl("client", "ca")).await;
    let expected = "the server ended the connection before it was secured: \
                    does it listen with pssl, and with a certificate?";
    assert!(
        refused == expected
            || refused == "the server does not speak TLS: does it listen with pssl?",
        "{refused}"
    );
}

#[tokio::test]
async fn a_self_signed_certificate_is_good_if_it_is_in_the_file_of_authorities() {
    let daemon = Daemon::new();
    let pki = Pki::new(daemon.path("pki"));
    pki.authority("self", Valid::Now);
    let (_daemon, endpoint) = serve(daemon, pki.server("self", "ca")).await;
    open(&endpoint, &pki.ssl("client", "self")).await.unwrap();
    refusal(&endpoint, &pki.ssl("client", "ca")).await;
}

#[tokio::test]
async fn several_authorities_are_all_believed_and_an_expired_one_harms_nobody() {
    let (_daemon, pki, endpoint) = server("pki", &[]).await;
    pki.authority("other", Valid::Now);
    pki.authority("old", Valid::Before);
    let file = ["other.crt", "old.crt", "ca.crt"]
        .map(|name| fs::read_to_string(pki.path(name)).unwrap())
        .concat();
    fs::write(pki.path("all.crt"), file).unwrap();
    open(&endpoint, &pki.ssl("client", "all")).await.unwrap();
}

/// A client that reconnects quickly.
pub(crate) fn lasting(endpoint: Endpoint, ssl: Ssl) -> (Client, ovsdb::Updates) {
    let options = Options {
        backoff_min: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
        ssl: Some(ssl),
        ..Options::default()
    };
    Client::start(endpoint.into(), DATABASE, Monitor::new().table::<Bridge>(Where::all()), options)
}

pub(crate) async fn connected(updates: &mut ovsdb::Updates) {
    while !matches!(in_time("a connection", updates.next()).await, Event::Connected) {}
}

#[tokio::test]
async fn files_are_read_again_for_each_connection_and_standing_ones_stay() {
    let (daemon, pki, endpoint) = server("pki", &[]).await;
    let replace = |from: &str, to: &str| fs::rename(pki.path(from), pki.path(to)).unwrap();
    let (client, mut updates) = lasting(endpoint.clone(), pki.ssl("client", "ca"));
    connected(&mut updates).await;
    let standing = client.connected().await;

    // Replace the authority, the server's certificate and the client's.
    pki.authority("ca2", Valid::Now);
    pki.signed("server2", "ca2", Valid::Now);
    pki.signed("client2", "ca2", Valid::Now);
    for (from, to) in [("server2.key", "server.key"), ("server2.crt", "server.crt")] {
        replace(from, to);
    }
    replace("ca2.crt", "ca.crt");
    let refused = refusal(&endpoint, &pki.ssl("client", "ca")).await;
    assert!(
        refused.contains("not signed by any") || refused.contains("refuses"),
        "half of the new: {refused}"
    );
    replace("client2.key", "client.key");
    replace("client2.crt", "client.crt");
    add_root(&standing).await;
    assert!(!standing.is_closed());

    daemon.control(&["ovsdb-server/reconnect"]);
    connected(&mut updates).await;
    assert!(standing.is_closed());
}

#[tokio::test]
async fn the_server_is_told_of_the_end() {
    let (daemon, pki, endpoint) = server("pki", &[]).await;
    daemon.control(&["vlog/set", "stream_ssl:file:dbg"]);
    drop(open(&endpoint, &pki.ssl("client", "ca")).await.unwrap());
    eventually("the farewell", async || {
        let log = fs::read_to_string(daemon.path("server.log")).unwrap();
        if log.lines().any(|line| line.contains("server0<--") && line.contains("close_notify")) {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
}
