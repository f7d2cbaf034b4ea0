//! The remarks of a server on its options at its start, and the addresses that it takes from Open
//! vSwitch's database.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    os::unix::net::UnixListener,
    process::{Command, Stdio},
    time::Duration,
};

use kubeapi::{ApiServer, Authority, Cluster, Credential};
use nix::sys::signal::Signal;
use ovnkube::options::{Environment, Options, Program};
use server::node::PodsFrom;
use testkit::{Database, eventually, process::Process};

/// Limit for every wait of a test. Each takes milliseconds on an idle machine; this is for one that
/// runs many tests at once.
const DEADLINE: Duration = Duration::from_secs(60);

/// The log and standard error of a server that is stopped as soon as it has started.
fn said(role: &[&str]) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("empty.conf"), "").unwrap();
    std::fs::create_dir(path("pods")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ovnkube"));
    command.env_clear().args(role).args([
        "--disable-pkt-mtu-check",
        "--config-file",
        &path("empty.conf"),
        "--logfile",
        &path("ovnkube.log"),
    ]);
    command.args([
        "--ovsdb-endpoint",
        &format!("unix:{}", path("none.sock")),
        "--ha-election-lock-dir",
        &path("election"),
    ]);
    command.args(["--pod-manifests", &path("pods"), "--k8s-apiserver", "http://127.0.0.1:1"]);
    let mut server =
        Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()));
    let log = || std::fs::read_to_string(path("ovnkube.log")).unwrap_or_default();
    // The server installs its signal handlers before it writes the first line to standard error.
    let mut stderr = BufReader::new(server.stderr());
    let mut text = String::new();
    stderr.read_line(&mut text).unwrap();
    server.signal(Signal::SIGTERM);
    let status = server.end_within(DEADLINE);
    stderr.read_to_string(&mut text).unwrap();
    assert!(status.success(), "{text}{}", log());
    (log(), text)
}

#[test]
fn what_has_no_effect_is_said_once_in_the_log_and_once_on_standard_error() {
    for (role, notes) in [
        (
            &["--init-node", "n1", "--nb-address", "tcp:192.0.2.1:6641", "--encap-port", "6082"][..],
            [
                "without effect in this version, for the node's gateway: --disable-pkt-mtu-check",
                "without effect with --init-node: --nb-address, --ha-election-lock-dir",
                "without effect beside --pod-manifests: --k8s-apiserver",
                "without effect on this node: --encap-port; OVN has the port",
            ],
        ),
        (
            &[
                "--init-cluster-manager",
                "n1",
                "--sb-address",
                "tcp:192.0.2.1:6642",
                "--mtu=1300",
                "--cni-conf-file",
                "x.conf",
            ][..],
            [
                "without effect in this version, for the node's gateway: --disable-pkt-mtu-check",
                "without effect with --init-cluster-manager: --pod-manifests, --mtu, --cni-conf-file, \
                 --sb-address",
                "",
                "",
            ],
        ),
    ] {
        let (log, stderr) = said(role);
        for note in notes.into_iter().filter(|note| !note.is_empty()) {
            let lines: Vec<&str> = log.lines().filter(|line| line.contains(note)).collect();
            assert!(matches!(lines[..], [line] if line.contains("WARN")), "{note}\n{log}");
            assert_eq!(stderr.matches(&format!("ovnkube: {note}")).count(), 1, "{note}\n{stderr}");
        }
        let expected = notes.iter().filter(|note| !note.is_empty()).count();
        assert_eq!(stderr.lines().count(), expected, "{stderr}");
    }
}

/// The keys that an administrator wrote in the time of the Python programs, and one for
/// ovn-controller.
fn external_ids(ca: &str) -> BTreeMap<String, String> {
    let ids = [
        ("ovn-nb", "tcp:192.0.2.1:6641"),
        ("ovn-remote", "tcp:192.0.2.1:6642"),
        ("k8s-api-server", "192.0.2.1:8080"),
        ("k8s-api-token", "of-ids"),
        ("k8s-ca-certificate", ca),
        // For ovn-controller.
        ("ovn-remote-probe-interval", "5000"),
    ];
    ids.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// The addresses of databases and of the API server that a role opens.
#[derive(Debug, PartialEq)]
struct Opened {
    northbound: Option<String>,
    southbound: Option<String>,
    api_server: Option<String>,
}

fn url(api_server: &ApiServer) -> String {
    match &api_server.cluster {
        Cluster::Url { url, .. } => url.clone(),
        Cluster::Kubeconfig(path) => path.display().to_string(),
    }
}

fn opened(options: Options, external_ids: &BTreeMap<String, String>) -> Opened {
    match options.with_external_ids().program().unwrap() {
        Program::Node(options) => {
            let config = options.config(external_ids).unwrap();
            let PodsFrom::ApiServer(api_server) = &config.pods else { panic!("{config:?}") };
            Opened {
                northbound: None,
                southbound: Some(config.open_vswitch.chassis.southbound),
                api_server: Some(url(api_server)),
            }
        }
        Program::ControlPlane(config, _) => Opened {
            northbound: config.northbound.map(|database| database.endpoints.to_string()),
            southbound: None,
            api_server: Some(url(&config.api_server)),
        },
        Program::Both(config, options) => {
            let node = options.config(external_ids).unwrap();
            Opened {
                northbound: config.northbound.map(|database| database.endpoints.to_string()),
                southbound: Some(node.open_vswitch.chassis.southbound),
                api_server: Some(url(&config.api_server)),
            }
        }
        Program::RemoveNode(config) => Opened {
            northbound: Some(config.northbound.endpoints.to_string()),
            southbound: Some(config.southbound.endpoints.to_string()),
            api_server: config.api_server.as_ref().map(url),
        },
        Program::CleanupNode(config) => Opened {
            northbound: None,
            southbound: None,
            api_server: config.api_server.as_ref().map(url),
        },
        other => panic!("{other:?}"),
    }
}

fn options(arguments: &[&str]) -> Options {
    Options::read_in(
        std::iter::once("ovnkube").chain(arguments.iter().copied()).map(Into::into),
        &Environment::none(),
    )
}

/// Value and origin of an option, as `--print-config` shows them.
fn printed(arguments: &[&str], name: &str) -> (String, String) {
    let Program::PrintConfig(options) =
        options(&[arguments, &["--print-config"]].concat()).program().unwrap()
    else {
        panic!("prints")
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let text = runtime.block_on(options.print()).text;
    let row = text
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name))
        .unwrap_or_else(|| panic!("{name}\n{text}"));
    let words: Vec<&str> = row.split_whitespace().skip(1).collect();
    (words[0].to_owned(), words[1..].join(" "))
}

#[test]
fn each_role_opens_what_print_config_shows() {
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.crt");
    std::fs::write(&ca, "").unwrap();
    let ids = external_ids(ca.to_str().unwrap());
    let database = Database::start(directory.path());
    let pairs: Vec<String> =
        ids.iter().map(|(key, value)| format!("external_ids:{key}=\"{value}\"")).collect();
    let words: Vec<&str> =
        ["set", "Open_vSwitch", "."].into_iter().chain(pairs.iter().map(String::as_str)).collect();
    database.vsctl(&words);
    let ovsdb = ["--ovsdb-endpoint", database.endpoint()];
    for role in [
        &["--init-node", "m"][..],
        &["--init-master", "m"],
        &["--init-cluster-manager", "m"],
        &["--init-ovnkube-controller", "m"],
        &["--init-master", "m", "--init-node", "m"],
        &["--remove-node", "m"],
        &["--cleanup-node", "m"],
    ] {
        let line = [role, &ovsdb[..]].concat();
        let opened = opened(options(&line), &ids);
        for (name, key, address) in [
            ("nb-address", "ovn-nb", &opened.northbound),
            ("sb-address", "ovn-remote", &opened.southbound),
            ("k8s-apiserver", "k8s-api-server", &opened.api_server),
        ] {
            let Some(address) = address else { continue };
            let (shown, origin) = printed(&line, name);
            assert_eq!(origin, format!("external_ids:{key}"), "{role:?}: {name}");
            assert_eq!(address.trim_start_matches("http://"), shown, "{role:?}: {name}");
        }
        assert!(opened.api_server.is_some(), "{role:?}: {opened:?}");
    }

    let line = [&["--init-master", "m"][..], &ovsdb[..]].concat();
    let Program::ControlPlane(config, _) = options(&line).with_external_ids().program().unwrap()
    else {
        panic!("it is the control plane's")
    };
    assert!(matches!(config.api_server.credential, Some(Credential::Token(_))), "{config:?}");
    assert!(
        matches!(&config.api_server.cluster, Cluster::Url { authority: Some(Authority::File(path)), .. } if *path == ca),
        "{config:?}"
    );
    assert!(
        config.northbound.unwrap().probe.is_none(),
        "how often ovn-controller probes is its own"
    );
    assert_eq!(printed(&line, "inactivity-probe").1, "default");
    let given =
        [&line[..], &["--nb-address", "tcp:192.0.2.9:6641", "--k8s-apiserver", "https://a"]]
            .concat();
    let given = opened(options(&given), &ids);
    assert_eq!(
        (given.northbound.as_deref(), given.api_server.as_deref()),
        (Some("tcp:192.0.2.9:6641"), Some("https://a"))
    );

    // Keys that this program wrote itself do not count as options.
    database.vsctl(&[
        "set",
        "Open_vSwitch",
        ".",
        "external_ids:ovnkube-wrote=\"ovn-nb ovn-remote\"",
    ]);
    assert!(opened(options(&line), &ids).northbound.unwrap().starts_with("unix:"));
    assert_eq!(printed(&line, "nb-address").1, "default");
}

#[test]
fn without_open_vswitch_the_control_plane_says_what_it_lacks_and_why() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = format!("unix:{}", directory.path().join("none.sock").display());
    let line = ["--init-master", "m", "--ovsdb-endpoint", &endpoint];
    let problems = options(&line)
        .with_external_ids()
        .program()
        .expect_err("there is no API server")
        .to_string();
    assert!(problems.contains("say how the control plane reaches the API server"), "{problems}");
    assert!(
        problems.contains(&format!(
            "external_ids of Open vSwitch, which may say more, could not be read ({endpoint}: No such file"
        )),
        "{problems}"
    );
    // A database that never answers does not hold up the start either.
    let silent = directory.path().join("silent.sock");
    let _listener = UnixListener::bind(&silent).unwrap();
    let endpoint = format!("unix:{}", silent.display());
    let silent = ["--init-master", "m", "--ovsdb-endpoint", &endpoint];
    let problems = options(&silent)
        .with_external_ids()
        .program()
        .expect_err("there is no API server")
        .to_string();
    assert!(
        problems.contains(&format!(
            "which may say more, could not be read ({endpoint}: no answer within 2 s)"
        )),
        "{problems}"
    );
    let line = [&line[..], &["--k8s-apiserver", "https://a"]].concat();
    assert_eq!(opened(options(&line), &BTreeMap::new()).api_server.as_deref(), Some("https://a"));
}

#[test]
fn the_control_plane_asks_the_api_server_of_open_vswitchs_database_with_its_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("empty.conf"), "").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let database = Database::start(directory.path());
    let address = format!("external_ids:k8s-api-server=\"{}\"", listener.local_addr().unwrap());
    database.vsctl(&["set", "Open_vSwitch", ".", &address, "external_ids:k8s-api-token=of-ids"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ovnkube"));
    command.env_clear().args([
        "--init-cluster-manager",
        "m",
        "--ovsdb-endpoint",
        database.endpoint(),
    ]);
    command.args([
        "--config-file",
        &path("empty.conf"),
        "--logfile",
        &path("ovnkube.log"),
        "--ha-election-lock-dir",
        &path("election"),
    ]);
    let _server =
        Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    listener.set_nonblocking(true).unwrap();
    let log = || std::fs::read_to_string(path("ovnkube.log")).unwrap_or_default();
    let (stream, _) = eventually("the server asks", DEADLINE, || {
        listener.accept().map_err(|error| format!("{error}\n{}", log()))
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let lines = BufReader::new(stream)
        .lines()
        .map(|line| line.unwrap())
        .take_while(|line| !line.is_empty());
    let request: Vec<String> = lines.collect();
    assert!(
        request.iter().any(|line| line.eq_ignore_ascii_case("authorization: Bearer of-ids")),
        "{request:?}"
    );
}
