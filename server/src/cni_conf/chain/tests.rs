use std::fs;

use super::*;

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("chain.json");
    fs::write(&path, text).unwrap();
    (directory, path)
}

fn types(chain: &Chain) -> Vec<&str> {
    chain.plugins.iter().map(|plugin| plugin["type"].as_str().unwrap()).collect()
}

#[test]
fn a_file_is_one_plugin_or_a_list_or_a_list_with_versions() {
    for (text, expected, versions) in [
        (
            r#"{"type":"portmap","capabilities":{"portMappings":true}}"#,
            vec!["portmap"],
            vec!["0.4.0", "1.0.0"],
        ),
        (
            r#"[{"type":"portmap"},{"type":"tuning","sysctl":{}}]"#,
            vec!["portmap", "tuning"],
            vec!["0.4.0", "1.0.0"],
        ),
        (
            r#"{"plugins":[{"type":"bandwidth"}],"cniVersions":["1.0.0","1.1.0"]}"#,
            vec!["bandwidth"],
            vec!["1.0.0", "1.1.0"],
        ),
        ("[]", vec![], vec!["0.4.0", "1.0.0", "1.1.0"]),
    ] {
        let (_directory, path) = file(text);
        let chain = Chain::read(&path).unwrap();
        assert_eq!(
            (types(&chain), chain.versions.iter().map(String::as_str).collect()),
            (expected, versions),
            "{text}"
        );
    }
}

#[test]
fn files_of_a_directory_come_in_the_order_of_their_names_and_speak_what_all_of_them_speak() {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("20-tuning.json", r#"{"type":"tuning"}"#),
        ("10-portmap.conf", r#"{"plugins":[{"type":"portmap"}],"cniVersions":["1.0.0","1.1.0"]}"#),
        ("README", "no JSON"),
        (".30-hidden.swp", "no JSON"),
    ] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let chain = Chain::read(directory.path()).unwrap();
    assert_eq!(
        (types(&chain), chain.versions.as_slice()),
        (vec!["portmap", "tuning"], &["1.0.0".to_owned()][..])
    );
}

#[test]
fn what_is_wrong_is_said_with_the_file_and_the_plugins_number() {
    for (text, words) in [
        ("{", "is no JSON"),
        ("7", "neither a plugin, nor a list of them"),
        (r#"{"plugin":[]}"#, "neither a plugin, nor a list of them: unknown field `plugin`"),
        (r#"[{"type":"portmap"},7]"#, "plugin 2: no JSON object"),
        (r#"[{"name":"x"}]"#, "plugin 1: it has no type"),
        (r#"[{"type":"../sh"}]"#, "plugin 1: type \"../sh\" is no file name of a plugin"),
        (r#"[{"type":7}]"#, "plugin 1: type 7 is no text"),
        (r#"{"plugins":[{"type":"a"}],"cniVersions":["9.0.0"]}"#, "no CNI version in common"),
        (r#"[{"type":"ovn-k8s-cni-overlay"}]"#, "is the first one already"),
    ] {
        let (_directory, path) = file(text);
        let error = crate::chain(&Chain::read(&path).unwrap_err());
        assert!(error.contains(words) && error.contains("chain.json"), "{text}: {error}");
    }
    let error = crate::chain(&Chain::read(Path::new("/nonexistent/chain.json")).unwrap_err());
    assert!(error.contains("No such file"), "{error}");
}
