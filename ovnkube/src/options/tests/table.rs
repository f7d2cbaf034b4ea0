//! The table is consistent, and the documents made of it are complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use contract::paths::{CNI_CONF_DIR, CNI_CONF_FILE, PLUGIN_LOG, SERVER_LOG, SERVER_SOCKET};

use super::{
    super::{Effect, all, command_line, documents},
    Place,
};

#[test]
fn no_name_or_key_is_there_twice() {
    let mut names = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for spec in all() {
        for name in spec.aliases.iter().chain([&spec.name]) {
            assert!(names.insert(*name), "{name}");
        }
        for key in spec.old_keys.iter().map(|old| old.key).chain(spec.key) {
            assert!(keys.insert((key.section, key.name)), "{key:?}");
            assert!(!key.name.contains('_') && key.name == key.name.to_lowercase(), "{key:?}");
        }
        assert!(!spec.help.is_empty() && !spec.help.ends_with('.'), "{}", spec.name);
    }
}

#[test]
fn every_default_is_a_value_of_its_option() {
    for spec in all().filter(|spec| !spec.default.is_empty()) {
        assert_eq!(spec.kind.check(spec.default), Ok(()), "{}", spec.name);
    }
}

#[test]
fn every_option_is_taken_from_the_command_line_and_from_the_file() {
    let place = Place::new();
    let usable =
        |spec: &&&super::super::Spec| !spec.default.is_empty() && spec.name != "config-file";
    let line: String = all()
        .collect::<Vec<_>>()
        .iter()
        .filter(usable)
        .map(|spec| format!(" -{}={}", spec.name, spec.default))
        .collect();
    let config = place
        .node(&format!("--init-node n1 --pod-manifests /m{line}"))
        .and_then(|node| node.config(&BTreeMap::new()).map_err(|error| error.to_string()));
    assert_eq!(config.unwrap().add.mtu.bytes(), 1400);
}

#[test]
fn the_installed_file_sets_nothing_and_would_set_every_default() {
    let text = documents::conf_file();
    let place = Place::new();
    place.file("ovn_k8s.conf", &text);
    let untouched = place.node("--init-node n1 --pod-manifests /m").unwrap();
    assert!(all().all(|spec| {
        untouched.collected.settings.given(spec).is_none_or(|setting| setting.origin.rank() == 0)
    }));
    // The same with every key that has a default enabled: all are known, and each sets its option
    // to that default.
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') && key.contains('=') => key,
        _ => line,
    });
    place.file("ovn_k8s.conf", &lines.collect::<Vec<_>>().join("\n"));
    let set = place.node("--init-node n1 --pod-manifests /m").unwrap();
    assert_eq!(set.collected.notes, Vec::<String>::new());
    for spec in all().filter(|spec| spec.key.is_some() && !spec.default.is_empty()) {
        assert_eq!(
            set.collected.settings.given(spec).map(|setting| setting.value.as_str()),
            Some(spec.default),
            "{}",
            spec.name
        );
    }
}

#[test]
fn manual_and_completion_have_every_option() {
    let place = Place::new();
    let directory = place.path("documents");
    documents::write(&directory, &command_line::command(), &[]).unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    let manual = read("man8/ovnkube.8").replace("\\-", "-").replace("\\*(Aq", "'");
    let of_file = read("man5/ovn_k8s.conf.5").replace("\\-", "-");
    for spec in all() {
        let flag = format!("--{}", spec.name);
        assert!(manual.contains(&format!("\\fB{flag}\\fR")), "{flag}");
        for shell in ["ovnkube.bash", "_ovnkube"] {
            assert!(read(&format!("completions/{shell}")).contains(&flag), "{shell}: {flag}");
        }
        assert!(read("completions/ovnkube.fish").contains(&format!("-l {}", spec.name)), "{flag}");
        for key in spec.old_keys.iter().map(|old| old.key).chain(spec.key) {
            assert!(
                of_file.contains(key.name) && of_file.contains(&format!("[{}]", key.section)),
                "{key:?}"
            );
        }
        if let Effect::Later(part) = spec.effect {
            assert!(manual.contains(part.name()), "{flag}");
        }
    }
    let of_plugin = read("man8/ovn-k8s-cni-overlay.8").replace("\\-", "-");
    assert!(of_plugin.contains("CNI_CONTAINERID"));
    // The paths are written out in the pages' texts.
    assert!([SERVER_LOG, SERVER_SOCKET].iter().all(|path| manual.contains(path)), "{manual}");
    assert!([PLUGIN_LOG, SERVER_SOCKET].iter().all(|path| of_plugin.contains(path)), "{of_plugin}");
    assert!(manual.contains(&format!("{CNI_CONF_DIR}/{CNI_CONF_FILE}")), "{manual}");
    assert!(
        [&manual, &of_file, &of_plugin].iter().all(|page| !page.contains("\n@")),
        "a part is missing"
    );
    let bash = Command::new("bash")
        .arg("-n")
        .arg(directory.join("completions/ovnkube.bash"))
        .output()
        .expect("bash runs");
    assert!(bash.status.success(), "{}", String::from_utf8_lossy(&bash.stderr));
}
