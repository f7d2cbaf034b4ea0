//! Calls that are refused before any change: each with its code and its reason, and with no other
//! output on standard output.

use std::{ffi::OsString, fs::File, os::unix::ffi::OsStringExt, path::Path};

use contract::{error::Code, spec_version::SpecVersion};
use serde_json::{Value, json};
use testkit::{Node, Outcome, Plugin};

/// Every verb with its required variables.
const REQUIRED: [(&str, &[&str]); 5] = [
    ("ADD", &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"]),
    ("CHECK", &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"]),
    ("DEL", &["CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"]),
    ("GC", &["CNI_PATH"]),
    ("STATUS", &["CNI_PATH"]),
];

/// Runs ADD with a changed configuration.
#[track_caller]
fn add_with(changes: Value) -> Outcome {
    let node = Node::new();
    Plugin::new("ADD").conf(&node.conf_with(changes)).run()
}

#[test]
fn every_verb_names_the_variable_that_it_misses() {
    let node = Node::new();
    for (verb, required) in REQUIRED {
        for name in required {
            for plugin in [node.call(verb).without(name), node.call(verb).with(name, "")] {
                let message = plugin.run().refused(Code::InvalidEnvironment);
                assert!(message.contains(name), "{verb} without {name}: {message}");
            }
        }
    }
}

#[test]
fn every_verb_names_all_variables_that_it_misses_at_once() {
    let conf = Node::new().conf();
    for (verb, required) in REQUIRED {
        let message = Plugin::bare(verb).conf(&conf).run().refused(Code::InvalidEnvironment);
        assert!(required.iter().all(|name| message.contains(name)), "{verb}: {message}");
    }
}

#[test]
fn variables_that_a_verb_does_not_need_may_be_missing() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    let del = Plugin::bare("DEL")
        .with("CNI_CONTAINERID", "a")
        .with("CNI_IFNAME", "eth0")
        .with("CNI_PATH", "/x");
    del.conf(&node.conf()).run().success();
    let valid = node.conf_with(json!({"cni.dev/valid-attachments": []}));
    Plugin::bare("GC").with("CNI_PATH", "/x").conf(&valid).run().success();
    drop(database);
}

#[test]
fn a_variable_that_is_no_text_is_a_missing_one() {
    let plugin =
        Node::new().call("ADD").with("CNI_CONTAINERID", OsString::from_vec(vec![b'a', 0xff]));
    assert!(plugin.run().refused(Code::InvalidEnvironment).contains("CNI_CONTAINERID"));
}

#[test]
fn a_container_id_that_is_no_name_is_refused() {
    let node = Node::new();
    for id in ["../x", "a/b", "-a", ".a", "_a", "a b", "a\nb", "ä", &"a".repeat(256)] {
        for verb in ["ADD", "DEL", "CHECK"] {
            let message =
                node.call(verb).with("CNI_CONTAINERID", id).run().refused(Code::InvalidEnvironment);
            assert!(message.contains("container id"), "{verb} {id:?}: {message}");
        }
    }
}

#[test]
fn container_ids_of_every_length_and_spelling_that_is_allowed_work() {
    let node = Node::new();
    let _database = node.start_database_with_bridge();
    for id in ["a", "0", "a.b", "a..b", "A_b-c", &"f".repeat(64), &"f".repeat(255)] {
        node.call("DEL").with("CNI_CONTAINERID", id).run().success();
    }
}

#[test]
fn an_interface_name_that_the_kernel_would_refuse_is_refused() {
    let node = Node::new();
    for name in
        [".", "..", "a/b", "a:b", "a b", "a\tb", "a\nb", "sixteen-bytes-no", "all", "default", "lo"]
    {
        for verb in ["ADD", "DEL", "CHECK"] {
            let message =
                node.call(verb).with("CNI_IFNAME", name).run().refused(Code::InvalidEnvironment);
            assert!(message.contains("interface name"), "{verb} {name:?}: {message}");
        }
    }
}

#[test]
fn a_verb_that_is_none_is_refused_by_its_name() {
    for verb in ["UPDATE", "add", "ADD ", "DELETE", "\u{1b}[31m"] {
        let message = Node::new().call(verb).run().refused(Code::InvalidEnvironment);
        assert!(message.contains("unknown CNI_COMMAND"), "{verb:?}: {message}");
    }
}

#[test]
fn an_add_or_a_check_that_names_no_pod_is_refused() {
    let node = Node::new();
    for args in [
        "",
        "K8S_POD_NAMESPACE=shop",
        "K8S_POD_NAME=cart-0",
        "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=",
        "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=a_b",
        "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=../cart",
        "no pairs",
    ] {
        node.call("ADD").with("CNI_ARGS", args).run().refused(Code::InvalidEnvironment);
    }
    node.call("ADD").without("CNI_ARGS").run().refused(Code::InvalidEnvironment);
}

#[test]
fn a_del_does_not_care_which_pod_it_was() {
    let node = Node::new();
    let _database = node.start_database_with_bridge();
    for args in
        ["", "no pairs", "K8S_POD_NAMESPACE=shop", "K8S_POD_NAMESPACE=a_b;K8S_POD_NAME=\u{1b}"]
    {
        node.call("DEL").with("CNI_ARGS", args).run().success();
    }
}

#[test]
fn standard_input_that_is_no_configuration_cannot_be_decoded() {
    for (verb, _) in REQUIRED {
        let inputs: [&[u8]; 8] = [
            b"",
            b"{",
            b"null",
            b"7",
            b"\"{}\"",
            b"\xff\xfe",
            br#"{"cniVersion":7,"name":"n","type":"t"}"#,
            br#"{"name":[]}"#,
        ];
        for stdin in inputs {
            Plugin::new(verb).stdin(stdin).run().refused(Code::Decode);
        }
    }
}

/// An array with the values in the order of the fields is not a configuration.
#[test]
fn a_list_is_no_configuration() {
    for stdin in ["[]", r#"["1.0.0","ovn-kubernetes","ovn-k8s-cni-overlay"]"#] {
        Plugin::new("ADD").stdin(stdin).run().refused(Code::Decode);
    }
}

#[test]
fn standard_input_without_end_is_not_swallowed() {
    add_with(json!({"x": "x".repeat(8 * 1024 * 1024)})).refused(Code::Decode);
}

#[test]
fn standard_input_that_cannot_be_read_is_an_io_failure() {
    let message = Plugin::new("DEL").stdin_from(File::open("/").unwrap()).run().refused(Code::Io);
    assert!(message.contains("standard input"), "{message}");
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused_with_the_reason() {
    for (changes, reason) in [
        (json!({"type": null}), "no type"),
        (json!({"name": null}), "network name"),
        (json!({"name": "a b"}), "network name \"a b\""),
        (json!({"name": "../etc"}), "network name \"../etc\""),
        (json!({"mtu": 9}), "MTU 9"),
        (json!({"mtu": 70000}), "MTU 70000"),
        (json!({"topology": "layer2"}), "netAttachDefName"),
        (json!({"plugins": [{"type": "a"}, {"type": "b"}]}), "2 plugins"),
        (json!({"ovsdbEndpoint": "db.sock"}), "ovsdbEndpoint \"db.sock\""),
        (json!({"ovsdbEndpoint": "tcp:127.0.0.1:0"}), "ovsdbEndpoint"),
        (
            json!({"cni.dev/valid-attachments": [{"containerID": "../x", "ifname": "eth0"}]}),
            "valid-attachments",
        ),
    ] {
        let message = add_with(changes.clone()).refused(Code::InvalidConfig);
        assert!(message.contains(reason), "{changes}: {message}");
    }
}

#[test]
fn a_device_passed_to_the_pod_is_an_unsupported_field() {
    let message = add_with(json!({"deviceID": "0000:03:02.3"})).refused(Code::UnsupportedField);
    assert!(message.contains("0000:03:02.3"), "{message}");
}

#[test]
fn a_version_that_is_not_spoken_is_refused_with_those_that_are() {
    for version in ["2.0.0", "1.2.0", "0.0.1", "v1.0.0", "1.0", " "] {
        let message = add_with(json!({"cniVersion": version})).refused(Code::IncompatibleVersion);
        assert!(
            message.contains(&format!("{version:?}")) && message.contains("1.1.0"),
            "{message}"
        );
    }
}

#[test]
fn a_verb_that_its_version_does_not_have_is_refused() {
    let node = Node::new();
    for (verb, since) in [
        ("CHECK", SpecVersion::V0_4_0),
        ("GC", SpecVersion::V1_1_0),
        ("STATUS", SpecVersion::V1_1_0),
    ] {
        for version in SpecVersion::ALL.into_iter().filter(|version| *version < since) {
            let conf = node.conf_with(json!({"cniVersion": version.as_str()}));
            let error = Plugin::new(verb).conf(&conf).run().error();
            assert_eq!(
                (error.code, error.cni_version.as_str()),
                (Code::IncompatibleVersion.number(), version.as_str())
            );
            assert!(
                error.msg.contains(verb) && error.msg.contains(version.as_str()),
                "{}",
                error.msg
            );
        }
    }
}

/// SPEC.md, "Error": `cniVersion` is the version of the configuration.
#[test]
fn an_error_is_of_the_callers_version() {
    let node = Node::new();
    for version in SpecVersion::ALL.map(SpecVersion::as_str) {
        let stamped = |plugin: Plugin<'_>, changes: Value| {
            let mut changes = changes;
            changes["cniVersion"] = json!(version);
            plugin.conf(&node.conf_with(changes)).run().error().cni_version
        };
        assert_eq!(
            stamped(Plugin::new("ADD"), json!({})),
            version,
            "a namespace that is not there"
        );
        assert_eq!(
            stamped(Plugin::new("ADD"), json!({"type": null})),
            version,
            "a configuration that makes no sense"
        );
        assert_eq!(stamped(Plugin::new("DEL"), json!({})), version, "no Open vSwitch");
    }
}

#[test]
fn an_error_of_the_environment_is_of_the_callers_version_too() {
    let conf = Node::new().conf_with(json!({"cniVersion": "0.4.0"}));
    for plugin in
        [Plugin::bare("ADD"), Plugin::new("UPDATE"), Plugin::new("DEL").with("CNI_IFNAME", "a/b")]
    {
        assert_eq!(plugin.conf(&conf).run().error().cni_version, "0.4.0");
    }
}

#[test]
fn a_refused_call_touches_nothing() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    let before = database.content();
    node.call("DEL").with("CNI_IFNAME", "a/b").run().refused(Code::InvalidEnvironment);
    add_with(json!({"type": null})).refused(Code::InvalidConfig);
    node.call("ADD").run().refused(Code::InvalidNetns);
    assert_eq!(database.content(), before);
    assert!(!Path::new(&node.server_socket()).exists());
}
