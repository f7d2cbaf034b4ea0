//! The bases of kustomize, built by its own packages (`integration/helm`).

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    chart::charts_tool,
    manifests::{conf, documents, read},
};

/// What `kustomize build` makes of a directory.
fn build(directory: &Path) -> Vec<Value> {
    let output = charts_tool().arg("kustomize").arg(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    documents(&String::from_utf8(output.stdout).unwrap())
}

fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    objects
        .sort_by_key(|object| (object["kind"].to_string(), object["metadata"]["name"].to_string()));
    objects
}

#[test]
fn each_base_builds_every_manifest_of_its_directory_and_nothing_else() {
    for directory in ["kubernetes", "kubernetes/openshift"] {
        let files = fs::read_dir(conf(directory)).unwrap().map(|entry| entry.unwrap().path());
        let manifests =
            files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml"));
        let plain: Vec<Value> = manifests.flat_map(|file| documents(&read(&file))).collect();
        assert_eq!(sorted(build(&conf(directory))), sorted(plain), "{directory}");
    }
}

#[test]
fn an_overlay_changes_the_images_and_the_values_of_a_cluster() {
    let overlay = tempfile::tempdir().unwrap();
    // kustomize takes relative paths alone.
    let depth = overlay.path().canonicalize().unwrap().components().count() - 1;
    let base = conf("kubernetes/openshift").canonicalize().unwrap();
    let base = "../".repeat(depth) + base.strip_prefix("/").unwrap().to_str().unwrap();
    let kustomization = json!({
        "resources": [base],
        "images": [{"name": "netdev22:5000/ovn-kube", "newName": "registry.example.org/ovn-kube", "newTag": "7"}],
        "patches": [{"patch": json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "ovn-config", "namespace": "ovn-kubernetes"},
            "data": {"net_cidr": "10.244.0.0/16/24"},
        }).to_string()}],
    });
    fs::write(overlay.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let objects = build(overlay.path());
    let daemon_sets: Vec<_> =
        objects.iter().filter(|object| object["kind"] == "DaemonSet").collect();
    assert_eq!(daemon_sets.len(), 3);
    for daemon_set in daemon_sets {
        let image = &daemon_set["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(image, "registry.example.org/ovn-kube:7");
    }
    let config = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    assert_eq!(config["data"]["net_cidr"], "10.244.0.0/16/24");
    assert_eq!(config["data"]["svc_cidr"], "172.30.0.0/16");
}
