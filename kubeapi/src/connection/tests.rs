use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use kube::core::request::Request;
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tempfile::TempDir;
use tokio::time::Instant;

use super::*;
use crate::scripted::{Asked, Connect as _, Scripted};

const AUTHORITY: [&str; 2] =
    [include_str!("tests/pem/authority1.crt"), include_str!("tests/pem/authority2.crt")];
const SERVER: [(&str, &str); 2] = [
    (include_str!("tests/pem/server1.crt"), include_str!("tests/pem/server1.key")),
    (include_str!("tests/pem/server2.crt"), include_str!("tests/pem/server2.key")),
];
const CLIENT: [(&str, &str); 2] = [
    (include_str!("tests/pem/client1.crt"), include_str!("tests/pem/client1.key")),
    (include_str!("tests/pem/client2.crt"), include_str!("tests/pem/client2.key")),
];
/// Must not be in any message.
const SECRET: &str = "sEcReT-t0ken";

/// A directory of credentials.
struct Files(TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let files_ = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(name, text)| files_.write(name, text));
        files_
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Replaces a file atomically.
    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(".new"), text).unwrap();
        fs::rename(self.path(".new"), self.path(name)).unwrap();
    }
}

/// Sends a request in the background.
fn ask(connection: &Connection) -> JoinHandle<Result<String, Trouble>> {
    let connection = connection.clone();
    tokio::spawn(async move {
        let request = Request::new("/api/v1/pods").list(&Default::default()).unwrap();
        connection.client().request_text(request).await.map_err(|error| connection.trouble(&error))
    })
}

async fn refusal(connection: &Connection) -> String {
    let text = ask(connection).await.unwrap().unwrap_err().text;
    assert!(!text.contains(SECRET), "{text}");
    text
}

fn bearer(asked: &Asked) -> &str {
    asked.header("authorization").unwrap_or("none")
}

#[tokio::test(start_paused = true)]
async fn a_token_is_read_without_the_space_around_it_and_again_when_it_is_refused() {
    let files = Files::new(&[("token", &format!("\n {SECRET}\r\n"))]);
    let mut api = Scripted::start().await;
    let connection = api.connection_as(None, Some(Credential::TokenFile(files.path("token"))));
    let answer = ask(&connection);
    let first = api.asked().await;
    assert_eq!(bearer(&first), format!("Bearer {SECRET}"));
    files.write("token", "another\n");
    first.status(401, "Unauthorized").await;
    // The same request again, at once: the caller does not notice.
    let second = api.asked().await;
    assert_eq!((bearer(&second), second.path.as_str()), ("Bearer another", "/api/v1/pods?"));
    second.answer("200 OK", "", "good").await;
    assert_eq!(answer.await.unwrap().unwrap(), "good");

    let answer = ask(&connection);
    api.asked().await.status(401, "Unauthorized").await;
    let trouble = answer.await.unwrap().unwrap_err();
    assert_eq!(trouble.kind, Kind::Refused);
    let token = files.path("token");
    assert_eq!(
        trouble.text,
        format!(
            "the API server {} does not accept the token in {}: Unauthorized (401)",
            api.url,
            token.display()
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_file_is_noticed_without_a_refusal() {
    let files = Files::new(&[("token", "one")]);
    let mut api = Scripted::start().await;
    let connection = api.connection_as(None, Some(Credential::TokenFile(files.path("token"))));
    let mut renewals = connection.renewals();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    files.write("token", "two");
    renewals.changed().await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "by an event, not by looking now and then: {:?}",
        begun.elapsed()
    );
    let _answer = ask(&connection);
    assert_eq!(bearer(&api.asked().await), "Bearer two");

    // The same content is no renewal.
    files.write("token", "two\n");
    files.write("token", "two");
    tokio::time::sleep(Duration::from_secs(200)).await;
    renewals.mark_unchanged();
    files.write("unrelated", "x");
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(!renewals.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_mounted_secret_changes_by_its_link() {
    let files = Files::new(&[]);
    for (version, token) in [("..1", "one"), ("..2", "two")] {
        fs::create_dir(files.path(version)).unwrap();
        fs::write(files.path(version).join("token"), token).unwrap();
    }
    symlink("..1", files.path("..data")).unwrap();
    symlink("..data/token", files.path("token")).unwrap();
    let mut api = Scripted::start().await;
    let connection = api.connection_as(None, Some(Credential::TokenFile(files.path("token"))));
    let mut renewals = connection.renewals();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    symlink("..2", files.path("..data_tmp")).unwrap();
    fs::rename(files.path("..data_tmp"), files.path("..data")).unwrap();
    renewals.changed().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let _answer = ask(&connection);
    assert_eq!(bearer(&api.asked().await), "Bearer two");
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_named_and_found_when_it_is_there() {
    let files = Files::new(&[]);
    let mut api = Scripted::start().await;
    let connection = api.connection_as(None, Some(Credential::TokenFile(files.path("token"))));
    let text = refusal(&connection).await;
    assert!(
        text.contains("no connection to the API server: token file")
            && text.contains("No such file"),
        "{text}"
    );
    files.write("token", "  \n");
    assert!(refusal(&connection).await.contains("it is empty"));
    files.write("token", &format!("{SECRET}\nand more"));
    assert!(refusal(&connection).await.contains("characters that no token has"));
    files.write("token", "one");
    let _answer = ask(&connection);
    assert_eq!(bearer(&api.asked().await), "Bearer one");

    // The last valid token stays in use while the file is broken.
    files.write("token", "");
    tokio::time::sleep(Duration::from_secs(100)).await;
    let _answer = ask(&connection);
    assert_eq!(bearer(&api.asked().await), "Bearer one");
}

fn tls(server: (&str, &str), clients: Option<&str>) -> Arc<ServerConfig> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(server.0.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(server.1.as_bytes()).unwrap();
    let builder = ServerConfig::builder();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
            builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder(roots.into()).build().unwrap(),
            )
        }
    };
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

#[tokio::test(start_paused = true)]
async fn another_authority_is_named_until_its_certificate_replaces_the_old_one() {
    let files = Files::new(&[("ca.crt", AUTHORITY[0])]);
    let mut api = Scripted::start_tls(tls(SERVER[1], None)).await;
    let connection = api.connection_as(
        Some(Authority::File(files.path("ca.crt"))),
        Some(Credential::Token(SECRET.into())),
    );
    let text = refusal(&connection).await;
    let ca = files.path("ca.crt");
    assert!(
        text.contains("UnknownIssuer")
            && text
                .ends_with(&format!("trusted are the certificate authorities in {}", ca.display())),
        "{text}"
    );

    let mut renewals = connection.renewals();
    files.write("ca.crt", &format!("{}{}", AUTHORITY[0], AUTHORITY[1]));
    renewals.changed().await.unwrap();
    let answer = ask(&connection);
    let asked = api.asked().await;
    assert_eq!(bearer(&asked), format!("Bearer {SECRET}"));
    asked.answer("200 OK", "", "good").await;
    assert_eq!(answer.await.unwrap().unwrap(), "good");

    let given = api.connection_as(Some(Authority::Pem(AUTHORITY[1].to_owned())), None);
    let _answer = ask(&given);
    api.asked().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_certificate_is_shown_and_its_successor_too() {
    // Certificate and key in one file, as the kubelet keeps them.
    let both = |(certificate, key): (&str, &str)| format!("{key}{certificate}");
    let files = Files::new(&[("client.pem", &both(CLIENT[0])), ("ca.crt", AUTHORITY[0])]);
    let credential = Credential::Certificate {
        certificate: files.path("client.pem"),
        key: files.path("client.pem"),
    };
    let mut api = Scripted::start_tls(tls(SERVER[0], Some(AUTHORITY[1]))).await;
    let connection =
        api.connection_as(Some(Authority::File(files.path("ca.crt"))), Some(credential));
    let text = refusal(&connection).await;
    assert!(
        text.contains("TLS")
            && text
                .contains(&format!("client certificate in {}", files.path("client.pem").display())),
        "{text}"
    );

    let mut renewals = connection.renewals();
    files.write("client.pem", &both(CLIENT[1]));
    renewals.changed().await.unwrap();
    let answer = ask(&connection);
    api.asked().await.answer("200 OK", "", "good").await;
    assert_eq!(answer.await.unwrap().unwrap(), "good");

    // A certificate and a key that do not match, as between two writes of another program, change
    // nothing.
    files.write("client.pem", &format!("{}{}", CLIENT[0].1, CLIENT[1].0));
    tokio::time::sleep(Duration::from_secs(100)).await;
    let answer = ask(&connection);
    api.asked().await.answer("200 OK", "", "good").await;
    assert_eq!(answer.await.unwrap().unwrap(), "good");
}

fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- {{name: c, context: {{cluster: k, user: u}}}}\nclusters:\n- name: k\n  \
         cluster: {{{cluster}}}\nusers:\n- name: u\n  user: {{{user}}}\n"
    )
}

fn open(path: &Path) -> Connection {
    Connection::open(ApiServer { cluster: Cluster::Kubeconfig(path.to_owned()), credential: None })
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_is_read_as_kubectl_reads_it() {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let mut api = Scripted::start().await;
    let server = format!("server: '{}'", api.url);
    let files = Files::new(&[("token", "from-file\n")]);
    for (user, authorization) in [
        (String::new(), "none"),
        ("token: inline".to_owned(), "Bearer inline"),
        ("token: inline, tokenFile: token".to_owned(), "Bearer from-file"),
        ("tokenFile: ''".to_owned(), "none"),
        ("username: a, password: b".to_owned(), "Basic YTpi"),
    ] {
        files.write("config", &kubeconfig(&server, &user));
        let connection = open(&files.path("config"));
        let _answer = ask(&connection);
        assert_eq!(bearer(&api.asked().await), authorization, "{user}");
    }
    // An option takes precedence over the kubeconfig's user, whose files are then not needed.
    files.write("config", &kubeconfig(&server, "tokenFile: /no/such/file"));
    let cluster = Cluster::Kubeconfig(files.path("config"));
    let connection = Connection::open(ApiServer {
        cluster,
        credential: Some(Credential::Token("given".into())),
    });
    let _answer = ask(&connection);
    assert_eq!(bearer(&api.asked().await), "Bearer given");

    let mut api = Scripted::start_tls(tls(SERVER[0], Some(AUTHORITY[0]))).await;
    let encoded = |text: &str| STANDARD.encode(text);
    let cluster = format!(
        "server: '{}', certificate-authority: /no/such/file, certificate-authority-data: {}",
        api.url,
        encoded(AUTHORITY[0])
    );
    let data = format!(
        "client-certificate-data: {}, client-key-data: {}",
        encoded(CLIENT[0].0),
        encoded(CLIENT[0].1)
    );
    files.write("client.crt", CLIENT[0].0);
    files.write("client.key", CLIENT[0].1);
    // A regression: the file of the key was not read if it was also that of a certificate which
    // inline data overrides.
    let of_one_file = format!(
        "client-certificate-data: {}, client-certificate: client.key, client-key: client.key",
        encoded(CLIENT[0].0)
    );
    for user in
        [data, "client-certificate: client.crt, client-key: client.key".to_owned(), of_one_file]
    {
        files.write("config", &kubeconfig(&cluster, &user));
        let _answer = ask(&open(&files.path("config")));
        api.asked().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_kubeconfig_is_said_without_its_secrets() {
    let files = Files::new(&[]);
    let server = "server: 'https://127.0.0.1:1'";
    let secret = format!("token: {SECRET}");
    for (text, problem) in [
        (
            kubeconfig(server, "exec: {command: aws}"),
            "come from a program (exec or auth-provider), which is not run on a node",
        ),
        (kubeconfig(server, "auth-provider: {name: oidc}"), "come from a program"),
        (kubeconfig("", &secret), "the cluster has no server"),
        (
            kubeconfig("server: 'ftp://x'", &secret),
            "it has to be http://HOST:PORT or https://HOST:PORT",
        ),
        (
            kubeconfig(&format!("{server}, proxy-url: 'http://p'"), &secret),
            "proxy-url is not supported",
        ),
        (
            kubeconfig(&format!("{server}, certificate-authority: ca.crt"), &secret),
            "ca.crt\": No such file",
        ),
        (
            kubeconfig(&format!("{server}, certificate-authority-data: '?'"), &secret),
            "certificate-authority-data is not base64",
        ),
        (
            kubeconfig(&format!("{server}, certificate-authority-data: eA=="), &secret),
            "there is no certificate in it",
        ),
        (
            kubeconfig(server, "client-certificate-data: eA=="),
            "client-certificate without client-key",
        ),
        (
            kubeconfig(server, &secret).replace("current-context: c", "current-context: d"),
            "it has no context \"d\"",
        ),
        (
            kubeconfig(server, &secret).replace("current-context: c", ""),
            "it has no current-context",
        ),
        (kubeconfig(server, &secret).replace("name: k\n", "name: l\n"), "it has no cluster \"k\""),
        (
            kubeconfig(server, &secret).replace("users:", &format!("users: {SECRET} {{")),
            "not what a kubeconfig has there",
        ),
        (format!("users: [{{name: u, user: {SECRET}}}]"), "not what a kubeconfig has there"),
        (SECRET.to_owned(), "not what a kubeconfig has there"),
    ] {
        files.write("config", &text);
        let connection = open(&files.path("config"));
        let said = refusal(&connection).await;
        assert!(said.contains(problem), "{said}\n{text}");
        assert!(!format!("{connection:?}").contains(SECRET));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_that_is_printed_holds_a_secret() {
    let files = Files::new(&[(
        "config",
        &kubeconfig("server: 'http://127.0.0.1:1'", &format!("token: {SECRET}")),
    )]);
    let connection = open(&files.path("config"));
    let given = ApiServer {
        cluster: Cluster::Url { url: "http://127.0.0.1:1".to_owned(), authority: None },
        credential: Some(Credential::Token(SECRET.into())),
    };
    let printed = format!(
        "{given:?} {connection:?} {:?} {}",
        Connection::open(given.clone()),
        refusal(&connection).await
    );
    assert!(printed.contains("127.0.0.1:1") && !printed.contains(SECRET), "{printed}");
    let url = Cluster::Url { url: format!("https://user:{SECRET}@127.0.0.1:1"), authority: None };
    assert!(
        !format!("{:?}", Connection::open(ApiServer { cluster: url, credential: None }))
            .contains(SECRET)
    );
}
