//! The recipe of the image.

use testkit::executable;

use crate::manifests::{Manifests, conf, read};

/// The words of each instruction with this name.
fn instructions<'a>(text: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| words.first() == Some(&name)).map(|words| words[1..].to_vec()).collect()
}

#[test]
fn the_image_holds_what_make_build_makes_and_nothing_of_a_registry() {
    let recipe = read(&conf("Containerfile"));
    assert_eq!(instructions(&recipe, "FROM"), [["scratch"]]);
    let makefile = read(&executable::workspace().join("Makefile"));
    let built = makefile.lines().find(|line| line.contains("install -D -t $(BIN)")).unwrap();
    for copy in instructions(&recipe, "COPY") {
        let [from, to] = copy[..] else { panic!("{copy:?}") };
        let name = from.strip_prefix("target/bin/").unwrap();
        assert!(
            built.split_whitespace().any(|path| path.ends_with(&format!("/{name}"))),
            "make build makes no {name}"
        );
        assert!(to.ends_with(&format!("/{name}")), "{to}");
    }
    assert_eq!(instructions(&recipe, "ENTRYPOINT"), [[r#"["/usr/bin/ovnkube"]"#]]);
}

#[test]
fn make_install_makes_the_names_of_which_scripts_know_the_commands_for_bridges() {
    let makefile = read(&executable::workspace().join("Makefile"));
    for name in ["ovn-kube-util", "ovn-k8s-util"] {
        let link = format!("\tln -sf ovnkube $(DESTDIR)/usr/bin/{name}");
        assert!(makefile.lines().any(|line| line == link), "{link}");
    }
}

#[test]
fn the_manifests_start_the_image_of_this_version() {
    let image = format!("ovn-kubernetes-node:{}", env!("CARGO_PKG_VERSION"));
    let manifests = Manifests::plain();
    assert_eq!(manifests.container().image.as_deref(), Some(image.as_str()));
    assert_eq!(manifests.container().command, None, "the image says what is started");
    assert!(read(&conf("Containerfile")).contains(&format!("-t {image} ")));
}
