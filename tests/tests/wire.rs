//! The bytes on the socket: this plugin with upstream's server and with hostile ones, and
//! upstream's plugin with this server.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use contract::error::Code;
use serde_json::{Value, json};
use testkit::{
    Answer, Database, Namespace, Node, Outcome, Plugin, Pod, ScriptedServer, http,
    plugin::POD_ARGS, pod::ANNOTATION,
};

/// A node with a scripted server.
struct Scripted {
    server: ScriptedServer,
    namespace: Namespace,
    database: Database,
    node: Node,
}

impl Scripted {
    fn answering(answer: Answer) -> Self {
        let node = Node::new();
        let server = ScriptedServer::start(&node.server_socket(), answer);
        Self {
            server,
            namespace: Namespace::new(),
            database: node.start_database_with_bridge(),
            node,
        }
    }

    /// A node whose server answers with success and with this body as JSON.
    fn answering_body(body: &str) -> Self {
        Self::answering(Answer::Bytes(http::answer("200 OK", "application/json", body)))
    }

    fn add(&self) -> Plugin<'_> {
        self.node.add(&self.namespace)
    }

    #[track_caller]
    fn run(&self) -> Outcome {
        let before = self.database.content();
        let outcome = self.add().run();
        assert_eq!(self.database.content(), before, "{outcome:?}");
        outcome
    }
}

/// The answer of upstream's server in its unprivileged mode.
fn upstream_answer() -> Value {
    json!({
        "Result": null,
        "PodIFInfo": {
            "IPs": [{"IP": "10.244.1.5", "Mask": "////AA=="}],
            "MAC": "ClgK9AEF",
            "Gateways": ["10.244.1.1"],
            "Routes": [{"Dest": {"IP": "10.244.0.0", "Mask": "//8AAA=="}, "NextHop": "10.244.1.1"}],
            "TunnelID": 0,
            "Role": "primary",
            "mtu": 1400,
            "routable-mtu": 0,
            "ingress": 0,
            "egress": 0,
            "is-dpu-host-mode": false,
            "skip-ip-config": false,
            "pod-uid": "4d3b-1",
            "vf-netdev-name": "",
            "enable-udp-aggregation": false,
            "netName": "default",
            "nadName": "default",
        },
        "KubeAuth": {"kube-api-server": "https://10.96.0.1", "kube-api-token": "hunter2", "kube-ca-data": "Zm9v"},
    })
}

#[test]
fn the_request_is_the_one_that_upstreams_server_expects() {
    let scripted = Scripted::answering(Answer::upstream_error("no"));
    scripted.run().error();
    let request = scripted.server.request();
    assert_eq!(request.first_line, "POST / HTTP/1.1");
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert!(request.header("host").is_some());
    let body = request.json();
    assert_eq!(body["env"]["CNI_COMMAND"], "ADD");
    assert_eq!(body["env"]["CNI_CONTAINERID"], scripted.node.sandbox.as_str());
    assert_eq!(body["env"]["CNI_ARGS"], POD_ARGS);
    let config = STANDARD.decode(body["config"].as_str().unwrap()).unwrap();
    assert_eq!(String::from_utf8(config).unwrap(), scripted.node.conf().to_string());
}

#[test]
fn standard_input_goes_to_the_server_byte_by_byte() {
    let scripted = Scripted::answering(Answer::upstream_error("no"));
    let spaced = format!(
        " \n{}\t\n",
        serde_json::to_string_pretty(
            &scripted.node.conf_with(json!({"unknown": "ä\u{1f980}\\u0000"}))
        )
        .unwrap()
    );
    scripted.add().stdin(spaced.clone()).run().error();
    let config = scripted.server.request().json()["config"]
        .as_str()
        .map(|text| STANDARD.decode(text).unwrap());
    assert_eq!(config, Some(spaced.into_bytes()));
}

#[test]
fn a_result_of_upstreams_privileged_server_is_printed() {
    let result = json!({
        "interfaces": [{"name": "h", "mac": "0a:58:0a:f4:01:05"}, {"name": "eth0", "mac": "0a:58:0a:f4:01:05", "sandbox": "/n"}],
        "ips": [{"interface": 1, "address": "10.244.1.5/24", "gateway": "10.244.1.1"}],
        "dns": {},
    });
    let scripted = Scripted::answering(Answer::json(
        &json!({"Result": result, "PodIFInfo": null, "KubeAuth": {"kube-api-token": "hunter2"}}),
    ));
    let outcome = scripted.run();
    let printed = outcome.result();
    for key in ["interfaces", "ips", "dns"] {
        assert_eq!(printed[key], result[key], "{key}");
    }
    assert!(!outcome.stdout.contains("hunter2"));
}

/// SPEC.md, "Success": a result names its version. Upstream's server leaves that to the plugin,
/// which knows the runtime's version.
#[test]
fn a_result_of_upstreams_privileged_server_is_of_the_callers_version() {
    let result = json!({"interfaces": [{"name": "eth0", "sandbox": "/n"}], "ips": [{"interface": 0, "address": "10.244.1.5/24"}], "dns": {}});
    let scripted = Scripted::answering(Answer::json(
        &json!({"Result": result, "PodIFInfo": null, "KubeAuth": {}}),
    ));
    for version in ["0.4.0", "1.0.0", "1.1.0"] {
        let printed = scripted
            .add()
            .conf(&scripted.node.conf_with(json!({"cniVersion": version})))
            .run()
            .result();
        assert_eq!(printed["cniVersion"], version);
    }
}

#[test]
fn what_upstreams_unprivileged_server_says_is_carried_out() {
    let scripted = Scripted::answering(Answer::json(&upstream_answer()));
    // It gets as far as the veth, which the kernel does not let an ordinary user create.
    let message = scripted.run().refused(Code::Kernel);
    assert!(message.contains("stage veth"), "{message}");
}

#[test]
fn an_error_of_upstreams_server_is_passed_on_in_its_own_words() {
    let text = "[shop/cart-0 abc network default NAD default] failed to get pod annotation: \
                timed out waiting for annotations";
    let scripted = Scripted::answering(Answer::upstream_error(text));
    let message = scripted.run().refused(Code::TryAgain);
    assert!(message.contains("400") && message.contains(text), "{message}");
}

#[test]
fn a_cni_error_of_the_server_keeps_its_code_its_words_and_its_hint() {
    for (status, code) in [
        ("503 Service Unavailable", Code::TryAgain),
        ("422 Unprocessable Entity", Code::BadAnnotation),
        ("400 Bad Request", Code::Superseded),
    ] {
        let body = json!({"cniVersion": "0.4.0", "code": code.number(), "msg": "what failed", "details": "where to look", "x": 1});
        let scripted = Scripted::answering(Answer::Bytes(http::answer(
            status,
            "application/json",
            &body.to_string(),
        )));
        let error = scripted.run().error();
        assert_eq!(
            (error.code, error.details.as_str(), error.cni_version.as_str()),
            (code.number(), "where to look", "1.1.0")
        );
        assert!(error.msg.contains("what failed"), "{}", error.msg);
    }
}

#[test]
fn what_a_server_says_reaches_the_log_without_its_control_characters() {
    let body = json!({"code": 11, "msg": "one\ntwo\u{1b}[31m\u{202e}", "details": "\u{7}"});
    let scripted = Scripted::answering(Answer::Bytes(http::answer(
        "503 Service Unavailable",
        "application/json",
        &body.to_string(),
    )));
    scripted.run().refused(Code::TryAgain);
    let log = fs::read_to_string(scripted.node.plugin_log()).unwrap();
    assert!(log.contains("one") && !log.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{log:?}");
    assert!(log.lines().all(|line| line.starts_with("20")), "{log:?}");
}

#[test]
fn a_check_passed_over_a_server_that_answers_nonsense() {
    let prev = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": "0a:58:0a:f4:01:05", "sandbox": "/n"}],
        "ips": [],
    });
    let check = |answer: Answer| {
        let scripted = Scripted::answering(answer);
        let node = &scripted.node;
        node.call("CHECK").conf(&node.conf_with(json!({"prevResult": prev}))).run()
    };
    for answer in [
        Answer::Bytes(http::answer("200 OK", "application/json", "{}")),
        Answer::Bytes(http::answer("200 OK", "application/json", "OK")),
        Answer::Bytes(http::answer("404 Not Found", "text/plain", "404 page not found")),
        Answer::Bytes(b"220 mail.example.org ESMTP\r\n".to_vec()),
        Answer::BytesThenSilence(b"HTTP/1.1 200 OK\r\n\r\n{".to_vec()),
        Answer::silence(),
    ] {
        let message = check(answer.clone()).refused(Code::TryAgain);
        assert!(message.contains("node-local server"), "{answer:?}: {message}");
    }
    // Upstream's server has nothing to say to a CHECK. The namespace comes next.
    check(Answer::Bytes(http::answer("200 OK", "application/json", "")))
        .refused(Code::InvalidNetns);
}

#[test]
fn an_answer_with_nothing_in_it_is_no_network() {
    for body in ["", "{}", r#"{"Result":null,"PodIFInfo":null,"KubeAuth":{}}"#] {
        Scripted::answering_body(body).run().refused(Code::TryAgain);
    }
}

#[test]
fn an_answer_that_is_not_what_it_should_be_cannot_be_decoded() {
    let wrong = |path: &str, value: Value| {
        let mut answer = upstream_answer();
        *answer.pointer_mut(&format!("/PodIFInfo/{path}")).unwrap() = value;
        answer.to_string()
    };
    for body in [
        "<html>".to_owned(),
        "[".repeat(100_000),
        "7".to_owned(),
        r#"{"PodIFInfo":"yes"}"#.to_owned(),
        r#"{"PodIFInfo":{}}"#.to_owned(),
        wrong("MAC", json!("ClgK9AE=")),
        wrong("MAC", json!("not base64")),
        wrong("MAC", json!("AQAAAAAB")),
        wrong("IPs", json!([{"IP": "10.244.1.500", "Mask": "////AA=="}])),
        wrong("IPs", json!([{"IP": "10.244.1.5", "Mask": "/wD/AA=="}])),
        wrong("IPs", json!([{"IP": "fd00::5", "Mask": "////AA=="}])),
        wrong("Gateways", json!(["gateway"])),
        wrong("Routes", json!([{"Dest": {"IP": "10.0.0.0", "Mask": ""}, "NextHop": ""}])),
        wrong("Role", json!("king")),
        wrong("TunnelID", json!(-1)),
        wrong("mtu", json!(7)),
        wrong("mtu", json!(1e300)),
        wrong("is-dpu-host-mode", json!(true)),
    ] {
        Scripted::answering_body(&body).run().refused(Code::Decode);
    }
}

#[test]
fn an_answer_that_breaks_off_or_is_no_http_must_be_tried_again() {
    let whole = http::answer("200 OK", "application/json", &upstream_answer().to_string());
    let two_thirds = whole[..whole.len() * 2 / 3].to_vec();
    for bytes in [
        Vec::new(),
        b"\0\0\0".to_vec(),
        b"HTTP/1.1 200 OK\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}".to_vec(),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}".to_vec(),
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec(),
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n".to_vec(),
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n".to_vec(),
        b"HTTP/1.1 301 Moved\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
            .to_vec(),
        [b"HTTP/1.1 200 OK\r\n".to_vec(), b"X: y\r\n".repeat(100_000)].concat(),
        two_thirds,
    ] {
        let outcome = Scripted::answering(Answer::Bytes(bytes.clone())).run();
        outcome.refused(Code::TryAgain);
        assert!(
            outcome.duration < Duration::from_secs(2),
            "{outcome:?} {:?}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(100)])
        );
    }
}

#[test]
fn an_answer_that_stops_half_way_ends_at_the_deadline() {
    let scripted = Scripted::answering(Answer::BytesThenSilence(
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{".to_vec(),
    ));
    let outcome = scripted.add().conf(&scripted.node.conf_with(json!({"timeoutSeconds": 1}))).run();
    outcome.refused(Code::TryAgain);
    assert!(outcome.duration < Duration::from_secs(3), "{outcome:?}");
}

#[test]
fn an_answer_without_end_is_not_swallowed() {
    let mut answer = upstream_answer();
    answer["x"] = json!("x".repeat(16 * 1024 * 1024));
    let scripted = Scripted::answering(Answer::json(&answer));
    let message = scripted.run().refused(Code::TryAgain);
    assert!(message.len() < 4096, "{} bytes", message.len());
}

#[test]
fn an_endless_text_of_a_server_is_cut() {
    let scripted = Scripted::answering(Answer::upstream_error(&"x".repeat(100_000)));
    let message = scripted.run().refused(Code::TryAgain);
    assert!(message.len() < 4096, "{} bytes", message.len());
}

#[test]
fn a_plugin_reports_in_upstreams_words_and_adds_its_own() {
    let scripted = Scripted::answering(Answer::upstream_error("no"));
    scripted.run().error();
    scripted.server.request();
    let report = scripted.server.request();
    assert_eq!(report.first_line, "POST /metrics HTTP/1.1");
    assert_eq!(report.header("content-type"), Some("application/json"));
    let report = report.json();
    assert_eq!((&report["command"], &report["hasErr"]), (&json!("ADD"), &json!(true)));
    assert!(
        report["elapsedTime"].as_f64().is_some_and(|seconds| (0.0..10.0).contains(&seconds)),
        "{report}"
    );
    assert_eq!(
        (&report["code"], &report["pod"]),
        (&json!(Code::TryAgain.number()), &json!("shop/cart-0"))
    );
    let stages: Vec<&str> = report["stages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stage| stage["stage"].as_str().unwrap())
        .collect();
    assert!(stages.contains(&"annotation"), "{report}");
}

#[test]
fn a_del_reports_and_waits_for_nobody() {
    let node = Node::new();
    let _database = node.start_database_with_bridge();
    let server = ScriptedServer::start(&node.server_socket(), Answer::silence());
    node.call("DEL").run().success();
    let report = server.request();
    assert_eq!((report.path(), &report.json()["hasErr"]), ("/metrics", &json!(false)));
}

/// A request of upstream's plugin: it sends its whole environment, and no timeout.
fn upstream_request(verb: &str) -> Value {
    let config = r#"{"cniVersion":"0.4.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay","ipam":{},"dns":{},"logFile":"/l","logLevel":"4","logfile-maxsize":100,"logfile-maxbackups":5,"logfile-maxage":5,"runtimeConfig":{}}"#;
    json!({
        "env": {
            "CNI_ARGS": format!("K8S_POD_INFRA_CONTAINER_ID=c0ffee;K8S_POD_UID=4d3b-1;{POD_ARGS}"),
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": "c0ffee",
            "CNI_IFNAME": "eth0",
            "CNI_NETNS": "/var/run/netns/x",
            "CNI_PATH": "/opt/cni/bin",
            "HOME": "/root",
            "PATH": "/usr/bin:/bin",
            "TOKEN": "hunter2",
            "": "",
        },
        "config": STANDARD.encode(config),
        "type": "pci",
        "version": "1.1.0",
    })
}

#[test]
fn upstreams_plugin_gets_its_answer_field_by_field() {
    let node = Node::new();
    let server = node.start_server();
    server.put(&Pod::cart().network(ANNOTATION));
    let (answer, _) = server.ask(&upstream_request("ADD"));
    assert_eq!((answer.status(), answer.header("content-type")), (200, Some("application/json")));
    let mut expected = upstream_answer();
    expected["PodIFInfo"]["nadKey"] = json!("default");
    // Upstream's plugin crashes on null. This project's server never hands out credentials.
    expected["KubeAuth"] = json!({"kube-api-server": "http://127.0.0.1:0"});
    assert_eq!(answer.json(), expected);
    assert!(!fs::read_to_string(&server.log).unwrap().contains("hunter2"));
}

#[test]
fn upstreams_plugin_is_told_to_carry_a_del_out_itself() {
    let node = Node::new();
    let server = node.start_server();
    let (answer, _) = server.ask(&upstream_request("DEL"));
    let body = answer.json();
    assert_eq!(
        (answer.status(), &body["Result"], &body["KubeAuth"]),
        (200, &Value::Null, &Value::Null)
    );
    assert!(body["PodIFInfo"].is_object(), "{body}");
}

#[test]
fn upstreams_plugin_hears_nothing_of_a_check() {
    let node = Node::new();
    let server = node.start_server();
    for verb in ["CHECK", "UPDATE"] {
        let (answer, _) = server.ask(&upstream_request(verb));
        assert_eq!((answer.status(), answer.body.len()), (200, 0), "{verb}");
    }
}

#[test]
fn upstreams_report_is_accepted() {
    let node = Node::new();
    let server = node.start_server();
    let (answer, _) = http::post(
        &server.socket,
        "/metrics",
        br#"{"command":"ADD","elapsedTime":0.0021,"hasErr":false}"#,
    );
    assert_eq!(answer.status(), 200);
}

#[test]
fn a_refusal_of_the_server_is_a_cni_error_with_a_fitting_status() {
    let node = Node::new();
    let server = node.start_server();
    server.put(&Pod::cart().network("{"));
    let change = |key: &str, value: Value| {
        let mut request = upstream_request("ADD");
        request["env"][key] = value;
        request
    };
    let bad_config = json!({"env": upstream_request("ADD")["env"], "config": STANDARD.encode("{")});
    for (request, status, code) in [
        (upstream_request("ADD"), 422, Code::BadAnnotation),
        (
            change("CNI_ARGS", json!(format!("{POD_ARGS};K8S_POD_UID=old"))),
            409,
            Code::UnknownContainer,
        ),
        (change("CNI_ARGS", json!("K8S_POD_NAME=x")), 400, Code::InvalidEnvironment),
        (change("CNI_CONTAINERID", json!("../x")), 400, Code::InvalidEnvironment),
        (change("CNI_COMMAND", json!("HACK")), 400, Code::InvalidEnvironment),
        (bad_config, 400, Code::Decode),
        (json!({}), 400, Code::Decode),
    ] {
        let mut request = request;
        // A pod with another UID may still come, so the server waits until the timeout: keep it
        // short. All other requests are answered as soon as the server has read the pod.
        request["timeoutMs"] = json!(if status == 409 { 1_000 } else { 20_000 });
        let (answer, _) = server.ask(&request);
        assert_eq!(
            (answer.status(), answer.header("content-type")),
            (status, Some("application/json")),
            "{request}"
        );
        let error = answer.json();
        assert_eq!(error["code"], code.number(), "{request}: {error}");
        assert!(error["msg"].as_str().is_some_and(|msg| !msg.is_empty()), "{error}");
    }
}

#[test]
fn other_paths_methods_and_sizes_are_refused() {
    let node = Node::new();
    let server = node.start_server();
    let huge = [
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10485760\r\n\r\n".to_vec(),
        vec![b'x'; 2 * 1024 * 1024],
    ]
    .concat();
    let endless =
        [b"POST / HTTP/1.1\r\nHost: x\r\n".to_vec(), b"X: y\r\n".repeat(200_000)].concat();
    for (bytes, status) in [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), 405),
        (b"POST /etc/passwd HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".to_vec(), 404),
        (b"POST // HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".to_vec(), 404),
        (huge, 413),
        (endless, 431),
        (b"nonsense\r\n\r\n".to_vec(), 400),
    ] {
        let (answer, _) = http::exchange(&server.socket, &bytes);
        assert_eq!(
            answer.status(),
            status,
            "{:?}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(40)])
        );
    }
    let (answer, _) = server.ask(&upstream_request("STATUS"));
    assert_eq!(answer.status(), 200);
}

#[test]
fn callers_that_only_connect_do_not_keep_others_away() {
    let node = Node::new();
    let server = node.start_server();
    server.put(&Pod::cart().network(ANNOTATION));
    let idle: Vec<UnixStream> =
        (0..400).map(|_| UnixStream::connect(&server.socket).unwrap()).collect();
    let (answer, duration) = server.ask(&upstream_request("ADD"));
    assert_eq!(answer.status(), 200);
    assert!(duration < Duration::from_secs(2), "{duration:?}");
    drop(idle);
}

#[test]
fn the_socket_is_for_its_owner_alone() {
    let node = Node::new();
    let server = node.start_server();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(
        format!("{:o} {:o}", mode(server.socket.parent().unwrap()), mode(&server.socket)),
        "700 600"
    );
}

#[test]
fn a_primary_user_defined_network_of_upstreams_server_is_refused_and_nothing_is_made() {
    let (mut locked, mut second) = (upstream_answer(), upstream_answer());
    locked["PodIFInfo"]["Role"] = json!("infrastructure-locked");
    second["PrimaryUDNPodInfo"] = second["PodIFInfo"].clone();
    for answer in [locked, second] {
        let scripted = Scripted::answering(Answer::json(&answer));
        let message = scripted.run().refused(Code::UnsupportedField);
        assert!(message.contains("primary network is a user-defined one"), "{message}");
    }
}
