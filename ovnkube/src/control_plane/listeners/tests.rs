//! Databases are opened on real servers: rows are added, and an administrator's stay as they are.

use std::{
    fs,
    net::TcpListener,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    process::Stdio,
};

use testkit::{Database, Scratch, eventually, process::Process, program};

use super::*;

const NORTHBOUND: &str = "/usr/share/ovn/ovn-nb.ovsschema";
const SOUTHBOUND: &str = "/usr/share/ovn/ovn-sb.ovsschema";

/// A database without any row, as `ovn-ctl` makes it.
struct Fresh {
    scratch: Scratch,
    server: Database,
    database: OvnDatabase,
    port: u16,
}

impl Fresh {
    fn northbound() -> Self {
        Self::of(OvnDatabase::Northbound, NORTHBOUND)
    }

    fn of(database: OvnDatabase, schema: &'static str) -> Self {
        let scratch = Scratch::new();
        let mut server = Database::of_schema(scratch.path(), "db", schema);
        // As ovn-ctl(8) starts it: the server listens where the rows say.
        let rows = format!("db:{},{},connections", database.schema(), database.root());
        let socket = scratch.join("db.ctl");
        server.process.ready("the server can be controlled", || {
            UnixStream::connect(&socket).map(drop).map_err(|error| error.to_string())
        });
        let control = format!("--target={}", socket.display());
        program::output(program::command("ovs-appctl").args([
            &control,
            "ovsdb-server/add-remote",
            &rows,
        ]));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { scratch, server, database, port }
    }

    fn listener(&self) -> Listener {
        Listener {
            database: self.database,
            socket: self.server.endpoint().parse().unwrap(),
            target: format!("ptcp:{}", self.port),
            port: self.port,
            tls: None,
        }
    }

    /// `ovn-nbctl` or `ovn-sbctl`, through the local socket or at another address.
    fn ctl_at(&self, address: &str, arguments: &[&str]) -> String {
        let name = match self.database {
            OvnDatabase::Northbound => "ovn-nbctl",
            OvnDatabase::Southbound => "ovn-sbctl",
        };
        let mut command = program::command(name);
        program::output(command.args(["--timeout=10", &format!("--db={address}")]).args(arguments))
    }

    fn ctl(&self, arguments: &[&str]) -> String {
        self.ctl_at(self.server.endpoint(), arguments)
    }

    /// Size of the file: the server appends each transaction that changes anything.
    fn written(&self) -> u64 {
        fs::metadata(self.server.file()).unwrap().len()
    }
}

#[tokio::test]
async fn a_fresh_database_answers_other_machines_once_it_is_opened() {
    for fresh in [Fresh::northbound(), Fresh::of(OvnDatabase::Southbound, SOUTHBOUND)] {
        let listener = fresh.listener();
        open(listener.clone()).await;
        let address = format!("tcp:127.0.0.1:{}", fresh.port);
        for address in [fresh.server.endpoint(), &address] {
            // ovn-sbctl prints the connection's role before it.
            let there = fresh.ctl_at(address, &["get-connection"]);
            assert_eq!(there.split(' ').next_back(), Some(&*listener.target), "{there}");
        }
        let written = fresh.written();
        assert_eq!(
            listener.try_open().await.unwrap(),
            Opened::Before { target: listener.target.clone() },
            "{address}"
        );
        assert_eq!(fresh.written(), written, "a second run writes nothing");
    }
}

#[tokio::test]
async fn a_connection_that_an_administrator_narrowed_is_not_widened() {
    let fresh = Fresh::northbound();
    let narrow = format!("ptcp:{}:127.0.0.1", fresh.port);
    fresh.ctl(&["set-connection", &narrow]);
    let written = fresh.written();
    assert_eq!(
        fresh.listener().try_open().await.unwrap(),
        Opened::Before { target: narrow.clone() }
    );
    assert_eq!(
        (fresh.written(), fresh.ctl(&["get-connection"]).trim()),
        (written, narrow.as_str())
    );
}

#[tokio::test]
async fn connections_on_other_ports_stay() {
    let fresh = Fresh::northbound();
    let other = format!("ptcp:{}:127.0.0.1", Fresh::northbound().port);
    fresh.ctl(&["set-connection", &other]);
    fresh.ctl(&["set", "connection", ".", "inactivity_probe=60000"]);
    assert_eq!(fresh.listener().try_open().await.unwrap(), Opened::Now);
    let mut both: Vec<String> = fresh.ctl(&["get-connection"]).lines().map(str::to_owned).collect();
    both.sort();
    let mut expected = vec![other, fresh.listener().target];
    expected.sort();
    assert_eq!(both, expected);
    assert!(
        fresh
            .ctl(&["--bare", "--columns=inactivity_probe", "list", "connection"])
            .contains("60000")
    );
}

#[tokio::test]
async fn the_files_of_tls_are_set_once_and_an_administrators_stay() {
    let files = |name: &str| ServerFiles {
        private_key: format!("/{name}/key"),
        certificate: format!("/{name}/cert"),
        authority: format!("/{name}/ca"),
    };
    let fresh = Fresh::northbound();
    let listener = Listener {
        target: format!("pssl:{}", fresh.port),
        tls: Some(files("ours")),
        ..fresh.listener()
    };
    assert_eq!(listener.try_open().await.unwrap(), Opened::Now);
    let ssl = fresh.ctl(&["get-ssl"]);
    for file in ["/ours/key", "/ours/cert", "/ours/ca"] {
        assert!(ssl.contains(file), "{ssl}");
    }
    assert_eq!(fresh.ctl(&["get-connection"]).trim(), listener.target);

    let theirs = Fresh::northbound();
    theirs.ctl(&["set-ssl", "/theirs/key", "/theirs/cert", "/theirs/ca"]);
    let listener = Listener {
        target: format!("pssl:{}", theirs.port),
        tls: Some(files("ours")),
        ..theirs.listener()
    };
    assert_eq!(listener.try_open().await.unwrap(), Opened::Now);
    let ssl = theirs.ctl(&["get-ssl"]);
    assert!(ssl.contains("/theirs/key") && !ssl.contains("ours"), "{ssl}");
}

/// The server reads key, certificate and authority where the row says, and answers nobody without a
/// certificate.
#[tokio::test]
async fn a_database_with_tls_answers_who_has_a_certificate() {
    let scratch = Scratch::new();
    let (key, certificate) = (scratch.join("key.pem"), scratch.join("cert.pem"));
    // Its own authority, for the server and for its client.
    let request =
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=ovnnb -days 2";
    let mut openssl = program::command("openssl");
    openssl.args(request.split(' ')).arg("-keyout").arg(&key).arg("-out").arg(&certificate);
    program::output(&mut openssl);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let [file, socket] = ["nb.conf", "nb.sock"].map(|name| scratch.join(name));
    let mut tool = program::command("ovsdb-tool");
    program::output(tool.arg("create").arg(&file).arg(program::file(NORTHBOUND)));
    let mut command = program::unprivileged("ovsdb-server");
    command
        .arg(&file)
        .arg(format!("--remote=punix:{}", socket.display()))
        .stdin(Stdio::null())
        .args([
            "--remote=db:OVN_Northbound,NB_Global,connections",
            "--private-key=db:OVN_Northbound,SSL,private_key",
            "--certificate=db:OVN_Northbound,SSL,certificate",
            "--ca-cert=db:OVN_Northbound,SSL,ca_cert",
            "--no-chdir",
            "-vconsole:off",
        ]);
    command.arg(format!("--unixctl={}", scratch.join("nb.ctl").display()));
    let mut server = Process::start(&mut command);
    server.ready("the database listens", || {
        UnixStream::connect(&socket).map(drop).map_err(|error| error.to_string())
    });

    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let path = |file: &Path| file.display().to_string();
    let target = format!("pssl:{port}");
    let files = ServerFiles {
        private_key: path(&key),
        certificate: path(&certificate),
        authority: path(&certificate),
    };
    let database = OvnDatabase::Northbound;
    let socket = format!("unix:{}", socket.display()).parse().unwrap();
    open(Listener { database, socket, target: target.clone(), port, tls: Some(files) }).await;

    let ask = |with: &[&str]| {
        let mut command = program::command("ovn-nbctl");
        command
            .args(["--timeout=5", &format!("--db=ssl:127.0.0.1:{port}")])
            .args(with)
            .arg("get-connection");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() {
            Ok(said)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    };
    let (key, certificate) = (path(&key), path(&certificate));
    let with_all = ["-p", &key, "-c", &certificate, "-C", &certificate];
    let there =
        eventually("the database answers over TLS", Duration::from_secs(20), || ask(&with_all));
    assert_eq!(there, target);
    // Another certificate than the authority's.
    let (other_key, other) = (path(&scratch.join("other.key")), path(&scratch.join("other.pem")));
    let mut openssl = program::command("openssl");
    program::output(openssl.args(request.split(' ')).args(["-keyout", &other_key, "-out", &other]));
    ask(&["-p", &other_key, "-c", &other, "-C", &certificate])
        .expect_err("its authority is another one");
}

/// The transaction was made of rows that another writer has changed since.
#[tokio::test]
async fn two_writers_at_once_make_one_row() {
    let fresh = Fresh::northbound();
    let listener = fresh.listener();
    let connection = Connection::open(&listener.socket, "OVN_Northbound", ovsdb::Options::small())
        .await
        .unwrap();
    let (_, roots, _) = listener.look(&connection).await.unwrap();
    let late = listener.transaction(roots.first());
    assert_eq!(listener.try_open().await.unwrap(), Opened::Now);
    connection.transact(late).await.expect_err("the root row is there meanwhile");
    assert_eq!(fresh.ctl(&["get-connection"]).trim(), listener.target);
}

#[tokio::test]
async fn a_database_that_starts_later_is_opened_then() {
    let fresh = Fresh::northbound();
    let listener = fresh.listener();
    let directory = fresh.scratch.path().to_owned();
    fresh.server.process.stop();
    listener.try_open().await.expect_err("the server is stopped");
    let opening = tokio::spawn(open(listener.clone()));
    let server =
        tokio::task::spawn_blocking(move || Database::serve(&directory, "db")).await.unwrap();
    opening.await.unwrap();
    let connection = format!("--db={}", server.endpoint());
    let mut command = program::command("ovn-nbctl");
    assert_eq!(
        program::output(command.args([&connection, "get-connection"])).trim(),
        listener.target
    );
}

#[test]
fn the_port_of_a_target_is_found_in_each_of_its_forms() {
    for (target, port) in [
        ("ptcp:6641", Some(6641)),
        ("pssl:6641:192.0.2.1", Some(6641)),
        ("ptcp:6641:[::]", Some(6641)),
        ("ptcp:", Some(6640)),
        ("punix:/run/a.sock", None),
        ("tcp:192.0.2.1:6641", None),
        ("ptcp:many", None),
    ] {
        assert_eq!(port_of(target), port, "{target}");
    }
}
