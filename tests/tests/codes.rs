//! Every code of a CNI error: provoked, or listed as not provocable here.

use std::fs::File;

use contract::error::Code;
use serde_json::{Value, json};
use testkit::{Answer, Namespace, Node, Outcome, Plugin, Pod, ScriptedServer, pod};

/// Provokes an error with this code as an ordinary user. `None` for codes that need root; the tests
/// of `integration` cover them.
///
/// A new code does not compile until it is added here.
fn provoke(code: Code, node: &Node) -> Option<Outcome> {
    Some(match code {
        Code::IncompatibleVersion => {
            Plugin::new("ADD").conf(&node.conf_with(json!({"cniVersion": "2.0.0"}))).run()
        }
        Code::UnsupportedField => {
            Plugin::new("ADD").conf(&node.conf_with(json!({"deviceID": "0000:03:02.3"}))).run()
        }
        Code::UnknownContainer => add_with_args(node, &Pod::cart().uid("new"), "K8S_POD_UID=old"),
        Code::InvalidEnvironment => Plugin::bare("ADD").conf(&node.conf()).run(),
        Code::Io => {
            Plugin::new("DEL").stdin_from(File::open("/").expect("a directory can be opened")).run()
        }
        Code::Decode => Plugin::new("ADD").stdin("{").run(),
        Code::InvalidConfig => {
            Plugin::new("ADD").conf(&node.conf_with(json!({"type": null}))).run()
        }
        Code::InvalidNetns => node.call("ADD").run(),
        Code::TryAgain => node.call("DEL").run(),
        Code::NotAvailable => {
            let database = node.start_database_with_bridge();
            let _daemons = testkit::Daemons::start(node, &database);
            node.call("STATUS").run()
        }
        Code::NotAvailableLimited => node.call("STATUS").run(),
        Code::BadAnnotation => add_with_args(node, &Pod::cart().network("{"), ""),
        // An ordinary user may not change the machine's own network: the kernel refuses the veth.
        Code::Kernel => add_with_args(node, &Pod::cart().network(pod::ANNOTATION), ""),
        Code::CheckMismatch => {
            let _database = node.start_database_with_bridge();
            let interface = json!({"name": "eth0", "mac": "0a:58:0a:f4:01:05", "sandbox": "/x"});
            let prev = json!({"cniVersion": "1.1.0", "interfaces": [interface]});
            Plugin::new("CHECK")
                .in_namespace(&Namespace::new())
                .conf(&node.conf_with(json!({"prevResult": prev})))
                .run()
        }
        // The server's code for a failure of its own.
        Code::Internal => {
            let _database = node.start_database_with_bridge();
            let error = json!({"code": 12345, "msg": "a defect"});
            let answer = testkit::http::answer(
                "500 Internal Server Error",
                "application/json",
                &error.to_string(),
            );
            let _server = ScriptedServer::start(&node.server_socket(), Answer::Bytes(answer));
            node.add(&Namespace::new()).run()
        }
        Code::AlreadyAttached => {
            let _database = node.start_database_with_bridge();
            let server = ScriptedServer::start(&node.server_socket(), Answer::silence());
            let namespace = Namespace::new();
            let first = node.add(&namespace).start();
            server.request();
            let second = node.add(&namespace).run();
            node.call("DEL").in_namespace(&namespace).run().success();
            first.end().refused(Code::UnknownContainer);
            second
        }
        Code::NameTaken | Code::OpenVSwitch | Code::Superseded | Code::Leftover => return None,
    })
}

/// An ADD for a pod that the server knows.
fn add_with_args(node: &Node, pod: &Pod, args: &str) -> Outcome {
    let _database = node.start_database_with_bridge();
    let server = node.start_server();
    server.put(pod);
    let args = format!("{};{args}", testkit::plugin::POD_ARGS);
    node.add(&Namespace::new())
        .conf(&node.conf_with(json!({"timeoutSeconds": 1})))
        .with("CNI_ARGS", args)
        .run()
}

#[test]
fn every_code_that_an_ordinary_user_can_get_is_that_of_its_failure() {
    let codes = Code::table().map(|(code, ..)| code).chain([Code::Internal]);
    let provoked: Vec<Code> = codes
        .filter(|code| {
            let node = Node::new();
            let outcome = provoke(*code, &node);
            if let Some(outcome) = &outcome {
                outcome.refused(*code);
            }
            outcome.is_some()
        })
        .collect();
    assert_eq!(provoked.len(), 16);
}

#[test]
fn an_error_says_what_failed_and_what_to_look_at_next() {
    let node = Node::new();
    let error = node.call("ADD").run().error();
    assert!(
        error.msg.starts_with(&format!("ADD shop/cart-0 (sandbox {}, eth0)", node.sandbox)),
        "{}",
        error.msg
    );
    assert!(error.msg.ends_with(" ms)"), "{}", error.msg);
    assert!(!error.details.is_empty());
}

#[test]
fn an_error_is_an_object_of_the_specification() {
    let outcome = Node::new().call("ADD").run();
    let error: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let keys: Vec<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["cniVersion", "code", "details", "msg"]);
    assert!(
        error["cniVersion"].is_string()
            && error["code"].is_u64()
            && error["msg"].is_string()
            && error["details"].is_string()
    );
}
