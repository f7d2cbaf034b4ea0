use std::{
    fs,
    os::unix::fs::MetadataExt,
    process::{Command, Stdio},
};

use super::*;

/// A directory of plugins, and a source that is a real program.
fn place() -> (tempfile::TempDir, PluginInstall) {
    let dir = tempfile::tempdir().unwrap();
    fs::copy("/bin/cat", dir.path().join("source")).unwrap();
    let plugin = PluginInstall {
        source: Some(dir.path().join("source")),
        directory: dir.path().join("cni/bin"),
        name: "p".to_owned(),
    };
    (dir, plugin)
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn files(directory: &Path) -> Vec<String> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn it_is_copied_whole_and_executable_and_nothing_else_is_left() {
    let (dir, plugin) = place();
    let source = dir.path().join("source");
    fs::set_permissions(&source, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(plugin.install().unwrap(), Installed::From(source.clone()));
    assert_eq!(fs::read(plugin.target()).unwrap(), fs::read(source).unwrap());
    assert_eq!(fs::metadata(plugin.target()).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(files(&plugin.directory), ["p"]);
}

#[test]
fn one_that_is_the_same_is_left_alone_and_one_that_differs_is_replaced() {
    let (dir, plugin) = place();
    plugin.install().unwrap();
    let first = inode(&plugin.target());
    assert_eq!(plugin.install().unwrap(), Installed::SameAs(dir.path().join("source")));
    assert_eq!(inode(&plugin.target()), first);

    fs::copy("/bin/true", dir.path().join("source")).unwrap();
    plugin.install().unwrap();
    assert_eq!(fs::read(plugin.target()).unwrap(), fs::read("/bin/true").unwrap());

    fs::set_permissions(plugin.target(), PermissionsExt::from_mode(0o644)).unwrap();
    assert!(matches!(plugin.check(), Err(PluginError::NotExecutable(_))));
    assert!(matches!(plugin.install().unwrap(), Installed::From(_)), "the mode is part of it");
    plugin.check().unwrap();
}

#[test]
fn a_plugin_that_runs_is_replaced_and_goes_on() {
    let (dir, plugin) = place();
    plugin.install().unwrap();
    let mut running =
        Command::new(plugin.target()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(
        fs::OpenOptions::new().write(true).open(plugin.target()).unwrap_err().kind(),
        io::ErrorKind::ExecutableFileBusy,
        "this is what a copy in place runs into"
    );
    fs::copy("/bin/true", dir.path().join("source")).unwrap();
    assert!(matches!(plugin.install().unwrap(), Installed::From(_)));
    assert!(Command::new(plugin.target()).status().unwrap().success(), "the new one runs");
    io::Write::write_all(&mut running.stdin.take().unwrap(), b"still here").unwrap();
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"still here");
}

#[test]
fn a_link_is_replaced_and_not_followed() {
    let (dir, plugin) = place();
    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, "precious").unwrap();
    fs::create_dir_all(&plugin.directory).unwrap();
    std::os::unix::fs::symlink(&elsewhere, plugin.target()).unwrap();
    plugin.install().unwrap();
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
    assert!(fs::symlink_metadata(plugin.target()).unwrap().is_file());
}

#[test]
fn without_a_source_the_plugin_that_is_there_stays_and_a_missing_one_is_named() {
    let (_dir, plugin) = place();
    plugin.install().unwrap();
    let gone = PluginInstall { source: Some("/no/such/plugin".into()), ..plugin.clone() };
    let error = chain(&gone.install().unwrap_err());
    assert!(error.contains("/no/such/plugin") && error.contains("No such file"), "{error}");
    gone.check().expect("the old one is there");

    let tried = vec![PathBuf::from("/a"), PathBuf::from("/b")];
    let error = PluginError::NoSource { target: plugin.target(), tried }.to_string();
    assert!(error.contains("(\"/a\", \"/b\")") && error.contains("--cni-plugin-source"), "{error}");
}

#[tokio::test]
async fn a_plugin_that_is_copied_later_is_noticed_and_so_is_its_end() {
    let (dir, plugin) = place();
    fs::create_dir_all(&plugin.directory).unwrap();
    let conditions = Conditions::default();
    let follower = tokio::spawn(follow(plugin.clone(), conditions.clone()));
    let mut watch = conditions.watch();
    let reason =
        |missing: &std::collections::BTreeMap<Part, String>| missing.get(&Part::PLUGIN).cloned();
    let patience = Duration::from_secs(10);
    let noticed = async |wanted: &dyn Fn(Option<String>) -> bool| {
        drop(
            tokio::time::timeout(patience, watch.wait_for(|missing| wanted(reason(missing))))
                .await
                .expect("noticed")
                .unwrap(),
        );
    };
    let mut noticed = noticed;
    noticed(&|why| why.is_some_and(|why| why.contains("No such file"))).await;
    fs::copy(dir.path().join("source"), plugin.target()).unwrap();
    noticed(&|why| why.is_none()).await;
    fs::remove_file(plugin.target()).unwrap();
    noticed(&|why| why.is_some()).await;
    follower.abort();
}

#[test]
fn a_full_disk_leaves_the_old_plugin_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=16k tmpfs \"$0\" && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "node::plugin::tests::on_a_small_disk_the_old_plugin_stays",
            "--nocapture",
        ])
        .env("SMALL_DISK", dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "the test above runs it, on a disk of a few kilobytes"]
fn on_a_small_disk_the_old_plugin_stays() {
    let directory = PathBuf::from(std::env::var_os("SMALL_DISK").unwrap());
    let plugin = PluginInstall { source: Some("/bin/cat".into()), directory, name: "p".to_owned() };
    fs::write(plugin.target(), "#!/bin/sh\n").unwrap();
    fs::set_permissions(plugin.target(), PermissionsExt::from_mode(0o755)).unwrap();
    let error = chain(&plugin.install().unwrap_err());
    assert!(error.contains("No space left") && error.contains("/p\""), "{error}");
    assert_eq!(fs::read_to_string(plugin.target()).unwrap(), "#!/bin/sh\n");
    assert_eq!(files(&plugin.directory), ["p"], "nothing half written is left");
}
