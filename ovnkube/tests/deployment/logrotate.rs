//! The stanza for logrotate, run by logrotate itself.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::manifests::{conf, read};

/// The stanza of Open vSwitch's package.
const OPEN_VSWITCH: &str = "/etc/logrotate.d/openvswitch-switch";

/// Runs logrotate on a configuration. Returns its standard error.
fn logrotate(options: &[&str], state: &Path, configuration: &Path) -> String {
    let program = ["/usr/sbin/logrotate", "/sbin/logrotate", "/usr/bin/logrotate"]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.exists());
    let program =
        program.expect("logrotate is missing; install it with: integration/prerequisites.sh test");
    let output = Command::new(program)
        .args(options)
        .arg("--state")
        .arg(state)
        .arg(configuration)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !words.contains("error:"), "{}: {words}", output.status);
    words
}

/// A copy with mode 0644: logrotate ignores files that others may write.
fn copy(text: &str, directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    path
}

#[test]
fn the_stanza_is_good_beside_the_one_of_open_vswitch() {
    let directory = tempfile::tempdir().unwrap();
    let ours = copy(&read(&conf("logrotate.d/ovn-kubernetes")), directory.path(), "ours");
    let both = format!("include {}\ninclude {}\n", find_open_vswitch().display(), ours.display());
    let words = logrotate(
        &["--debug"],
        &directory.path().join("state"),
        &copy(&both, directory.path(), "both"),
    );
    assert!(
        words.contains("/var/log/ovn-kubernetes/*.log")
            && words.contains("/var/log/openvswitch/*.log"),
        "{words}"
    );
}

fn find_open_vswitch() -> PathBuf {
    let candidates =
        [OPEN_VSWITCH, "/etc/logrotate.d/openvswitch-common", "/etc/logrotate.d/openvswitch"]
            .map(PathBuf::from);
    candidates
        .into_iter()
        .find(|path| path.exists())
        .expect("Open vSwitch's packages install a stanza")
}

#[test]
fn a_log_is_renamed_and_no_other_is_made_in_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("logs");
    fs::create_dir(&logs).unwrap();
    fs::write(logs.join("ovnkube.log"), "a line\n").unwrap();
    let text = read(&conf("logrotate.d/ovn-kubernetes"));
    let here = text.replace("/var/log/ovn-kubernetes", logs.to_str().unwrap());
    assert_ne!(here, text);
    logrotate(
        &["--force"],
        &directory.path().join("state"),
        &copy(&here, directory.path(), "here"),
    );
    let mut left: Vec<_> =
        fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["ovnkube.log.1"]);
}
