//! The recipes of the images: those for builders of images, and the lists from which
//! `conf/image/image.sh` makes the same.

use std::{fs, process::Command};

use testkit::{command, executable};

use crate::manifests::{Manifests, conf, read};

/// The lines of a list that begin with this word, without it.
fn listed(image: &str, word: &str) -> Vec<String> {
    let list = read(&conf(&format!("image/{image}.list")));
    let lines = list.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    lines.map(|line| line.trim_start().to_owned()).collect()
}

/// A recipe with each instruction on one line, from its last `FROM` on.
fn last_stage(file: &str) -> String {
    let text = read(&executable::workspace().join(file)).replace("\\\n", " ");
    text[text.rfind("\nFROM ").unwrap()..].to_owned()
}

/// What a recipe says of the container is what the list says; `VERSION` and `REVISION` come from
/// the command line.
fn says_the_same_of_the_container(image: &str, file: &str) {
    let stage = last_stage(file);
    let said = |name| instructions(&stage, name).into_iter().map(|words| words.join(" "));
    let unquoted = |label: String| label.replacen("=\"", "=", 1).trim_end_matches('"').to_owned();
    let (ours, given): (Vec<_>, Vec<_>) =
        said("LABEL").map(unquoted).partition(|label| !label.contains('$'));
    assert_eq!(ours, listed(image, "label"));
    let versions = [
        "org.opencontainers.image.version=$VERSION",
        "org.opencontainers.image.revision=$REVISION",
    ];
    assert_eq!(given, versions);
    assert_eq!(said("ENV").collect::<Vec<_>>(), listed(image, "env"));
    let entry_points = listed(image, "entrypoint").join("\", \"");
    assert_eq!(said("ENTRYPOINT").collect::<Vec<_>>(), [format!("[\"{entry_points}\"]")]);
}

#[test]
fn the_dockerfile_makes_what_the_list_says() {
    let suite = listed("ovn-kube", "suite").join(" ");
    let stage = last_stage("Dockerfile");
    assert_eq!(instructions(&stage, "FROM"), [[format!("debian:{suite}-slim")]]);
    let runs = instructions(&stage, "RUN");
    let [install] = &runs[..] else { panic!("{runs:?}") };
    let packages: Vec<_> = install
        .iter()
        .skip_while(|word| **word != "install")
        .skip(1)
        .take_while(|word| **word != "&&")
        .filter(|word| !word.starts_with("--"))
        .collect();
    assert_eq!(packages, listed("ovn-kube", "package").iter().collect::<Vec<_>>());
    assert!(install.contains(&"--no-install-recommends"), "{install:?}");
    // What the list excludes, and its files: by the same program as without a builder.
    let dockerfile = read(&executable::workspace().join("Dockerfile"));
    let files = "RUN conf/image/image.sh files ovn-kube bin /files";
    for step in [files, "RUN conf/image/image.sh dpkg ovn-kube >/dpkg"] {
        assert!(dockerfile.lines().any(|line| line == step), "no {step}");
    }
    let copies = instructions(&stage, "COPY");
    let expected = [
        ["--from=files", "/dpkg", "/etc/dpkg/dpkg.cfg.d/ovn-kube"],
        ["--from=files", "/files", "/"],
    ];
    assert_eq!(copies, expected);
    says_the_same_of_the_container("ovn-kube", "Dockerfile");
}

#[test]
fn the_containerfile_makes_what_the_list_says() {
    let stage = last_stage("conf/Containerfile");
    let copies = instructions(&stage, "COPY");
    let copies: Vec<_> = copies
        .iter()
        .map(|words| words.join(" ").replace("target/bin/sbom/", "644 bin/sbom/"))
        .map(|copy| copy.replace("target/bin/", "755 bin/"))
        .collect();
    assert_eq!(copies, listed("ovn-kubernetes-node", "file"));
    says_the_same_of_the_container("ovn-kubernetes-node", "conf/Containerfile");
}

#[test]
fn an_image_has_the_bill_of_materials_of_each_executable_in_it() {
    for image in ["ovn-kube", "ovn-kubernetes-node"] {
        let files = listed(image, "file");
        let executables: Vec<_> = files
            .iter()
            .filter_map(|file| file.strip_prefix("755 bin/")?.split(' ').next())
            .map(|name| {
                let bill = format!("sbom/{name}.cdx.json");
                format!("644 bin/{bill} /usr/share/doc/ovn-kubernetes/{bill}")
            })
            .collect();
        assert_eq!(executables.len(), 2);
        for bill in executables {
            assert!(files.contains(&bill), "{image} has no {bill}");
        }
    }
    let dockerfile = read(&executable::workspace().join("Dockerfile"));
    assert!(dockerfile.lines().any(|line| line == "RUN make build sbom"));
}

#[test]
fn the_same_commit_makes_the_same_archive() {
    let directory = tempfile::tempdir().unwrap();
    let bin = directory.path().join("bin");
    fs::create_dir_all(bin.join("sbom")).unwrap();
    for name in ["ovnkube", "ovn-k8s-cni-overlay"] {
        fs::write(bin.join(name), name).unwrap();
        fs::write(bin.join(format!("sbom/{name}.cdx.json")), "{}").unwrap();
    }
    let build = |name: &str| {
        let archive = directory.path().join(name);
        let mut build = Command::new(conf("image/image.sh"));
        build.args(["archive", "ovn-kubernetes-node"]).arg(&bin).arg(&archive);
        build.envs([("SOURCE_DATE_EPOCH", "1700000000"), ("REVISION", "0123456789abcdef")]);
        (command::output(&mut build).unwrap(), fs::read(archive).unwrap())
    };
    let (digest, archive) = build("first.tar");
    // Times of the executables do not count.
    for name in ["ovnkube", "ovn-k8s-cni-overlay"] {
        let file = fs::File::options().write(true).open(bin.join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    let (again, second) = build("second.tar");
    assert_eq!(digest, again);
    assert!(archive == second, "the archives differ");
    let list =
        command::output(Command::new("tar").arg("-tf").arg(directory.path().join("first.tar")))
            .unwrap();
    for part in ["./oci-layout", "./index.json", "./manifest.json"] {
        assert!(list.lines().any(|line| line == part), "no {part} in {list}");
    }
    assert!(
        list.contains(digest.trim().trim_start_matches("sha256:")),
        "no manifest {digest} in {list}"
    );
    // Other content, other digest.
    fs::write(bin.join("ovnkube"), "another").unwrap();
    assert_ne!(build("third.tar").0, digest);
}

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
        if let Some(name) = name.strip_prefix("sbom/") {
            // `make sbom` makes one of each executable.
            let executable = name.strip_suffix(".cdx.json").unwrap();
            assert!(
                built.split_whitespace().any(|path| path.ends_with(&format!("/{executable}"))),
                "{name}"
            );
            assert_eq!(to, format!("/usr/share/doc/ovn-kubernetes/sbom/{name}"));
            continue;
        }
        assert!(
            built.split_whitespace().any(|path| path.ends_with(&format!("/{name}"))),
            "make build makes no {name}"
        );
        assert!(to.ends_with(&format!("/{name}")), "{to}");
    }
    assert_eq!(instructions(&recipe, "ENTRYPOINT"), [[r#"["/usr/bin/ovnkube"]"#]]);
}

#[test]
fn make_install_makes_the_names_under_which_scripts_and_kubectl_know_the_commands() {
    let makefile = read(&executable::workspace().join("Makefile"));
    for name in [
        "ovn-kube-util",
        "ovn-k8s-util",
        "kubectl-ovn",
        "ovn-k8s-overlay",
        "ovn-k8s-gateway-helper",
        "ovn-k8s-watcher",
    ] {
        let link = format!("\tln -sf ovnkube $(DESTDIR)/usr/bin/{name}");
        assert!(makefile.lines().any(|line| line == link), "{link}");
    }
}

#[test]
fn the_manifests_start_the_image_of_this_version() {
    let image = format!("ovn-kubernetes-node:{}", env!("CARGO_PKG_VERSION"));
    let manifests = Manifests::plain();
    assert_eq!(manifests.container().image.as_deref(), Some(image.as_str()));
    // As the entry point of this image; that of ovn-kube, which may take its place, is another one.
    let command = manifests.container().command.clone().unwrap();
    assert_eq!(command, [listed("ovn-kubernetes-node", "entrypoint").concat()]);
    assert!(read(&conf("Containerfile")).contains(&format!("-t {image} ")));
}
