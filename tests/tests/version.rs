//! VERSION, and calls by a person at a terminal.

use std::process::Command;

use contract::spec_version::SpecVersion;
use testkit::{Plugin, executable, program};

#[test]
fn version_lists_every_version_that_is_spoken() {
    let result = Plugin::bare("VERSION").stdin(r#"{"cniVersion":"1.0.0"}"#).run().result();
    let spoken: Vec<&str> = result["supportedVersions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| version.as_str().unwrap())
        .collect();
    assert_eq!(spoken, ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
    let own: SpecVersion = result["cniVersion"].as_str().unwrap().parse().unwrap();
    assert!(SpecVersion::ALL.contains(&own));
}

#[test]
fn version_needs_neither_configuration_nor_variables() {
    let expected = Plugin::new("VERSION").stdin("{}").run().result();
    for stdin in ["", "{", "7", r#"{"cniVersion":"9.9.9"}"#] {
        assert_eq!(Plugin::bare("VERSION").stdin(stdin).run().result(), expected, "{stdin:?}");
    }
}

#[test]
fn without_a_verb_the_plugin_explains_itself_and_succeeds() {
    for plugin in [Plugin::new("ADD").without("CNI_COMMAND"), Plugin::new("").stdin("{}")] {
        let outcome = plugin.run();
        outcome.success();
        assert!(
            outcome.stderr.contains("ovn-k8s-cni-overlay") && outcome.stderr.contains("1.1.0"),
            "{outcome:?}"
        );
    }
}

#[test]
fn both_executables_say_their_version() {
    for name in [executable::PLUGIN, executable::SERVER] {
        let output = Command::new(executable::path(name)).arg("--version").output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{name}: {text}");
        assert_eq!(text.trim(), format!("{name} {}", env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn the_server_explains_its_options() {
    let help = program::output(Command::new(executable::path(executable::SERVER)).arg("--help"));
    for option in ["--init-node", "--pod-manifests", "--cni-conf-dir", "--loglevel"] {
        assert!(help.contains(option), "{option}: {help}");
    }
}
