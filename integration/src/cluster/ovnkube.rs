//! `ovnkube` as an administrator has it: the command with the cluster's kubeconfig, and an image of
//! it on every node.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::Cluster;
use crate::{command, executable, mounts};

/// Image of the executable under test.
pub const IMAGE: &str = "localhost/ovnkube:under-test";

impl Cluster {
    /// Gives every node [`IMAGE`].
    ///
    /// # Errors
    /// If there is no executable under test, or containerd does not take the image.
    pub fn import_ovnkube(&self) -> Result<()> {
        let image = image()?;
        self.nodes().try_for_each(|(node, worker)| worker.import_image(node, &image))
    }

    /// The command `ovnkube`, as the administrator, where OVN's databases are not reached.
    ///
    /// # Errors
    /// If there is no executable under test.
    pub fn ovnkube(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(executable::under_test(executable::SERVER)?);
        command
            .args(arguments)
            .arg("--k8s-kubeconfig")
            .arg(self.kubeconfig())
            .arg("--ovsdb-endpoint=unix:/nowhere");
        Ok(command)
    }
}

/// An image of the executable under test, with the libraries that it needs, as a Docker archive.
fn image() -> Result<PathBuf> {
    let root = Path::new(mounts::LAB).join("image");
    let put = |from: &Path, to: &str| -> Result<()> {
        let to = root.join("layer").join(to.trim_start_matches('/'));
        fs::create_dir_all(to.parent().context("a directory")?)?;
        fs::copy(from, to).map(drop).with_context(|| from.display().to_string())
    };
    let program = executable::under_test(executable::SERVER)?;
    put(&program, "/usr/bin/ovnkube")?;
    // A static executable has none.
    let libraries = Command::new("ldd").arg(&program).output()?;
    for path in String::from_utf8_lossy(&libraries.stdout)
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        put(Path::new(path), path)?;
    }
    let layers = json!({"type": "layers", "diff_ids": []});
    let config = json!({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": layers});
    let tar = |directory: &Path, file: &Path| {
        command::output(Command::new("tar").arg("-C").arg(directory).arg("-cf").arg(file).arg("."))
    };
    let layer = root.join("archive/layer.tar");
    fs::create_dir_all(root.join("archive"))?;
    tar(&root.join("layer"), &layer)?;
    let sum = command::output(Command::new("sha256sum").arg(&layer))?;
    let sum = sum.split_whitespace().next().context("a sum")?;
    let mut config = config;
    config["rootfs"]["diff_ids"] = json!([format!("sha256:{sum}")]);
    fs::write(root.join("archive/config.json"), config.to_string())?;
    let manifest = json!([{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]);
    fs::write(root.join("archive/manifest.json"), manifest.to_string())?;
    let archive = root.join("image.tar");
    tar(&root.join("archive"), &archive)?;
    Ok(archive)
}
