use std::{fs, process::Command};

use super::*;

fn own() -> String {
    format!("{}\n", std::process::id())
}

#[test]
fn it_names_this_process_and_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/ovnkube.pid");
    let pidfile = Pidfile::create(&path).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), own());
    assert!(is_held(&path));
    pidfile.remove();
    assert!(!path.exists() && !is_held(&path));
}

#[test]
fn a_second_server_is_refused_even_where_the_number_is_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ovnkube.pid");
    let first = Pidfile::create(&path).unwrap();
    let error = Pidfile::create(&path).unwrap_err().to_string();
    assert!(
        error
            .contains(&format!("names process {}, which is a running ovnkube", std::process::id())),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), own());
    first.remove();
    Pidfile::create(&path).unwrap();
}

#[test]
fn a_stale_one_is_replaced_whatever_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ovnkube.pid");
    let other = Command::new("true")
        .spawn()
        .unwrap()
        .wait_with_output()
        .map(|_| "4194304\n".to_owned())
        .unwrap();
    for text in ["", "not a number", "1\n", &other, &own(), "123456789012345678901234567890\n"] {
        fs::write(&path, text).unwrap();
        let pidfile = Pidfile::create(&path).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(fs::read_to_string(&path).unwrap(), own(), "{text:?}");
        pidfile.remove();
    }
}

#[test]
fn a_server_that_takes_no_lock_is_known_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (path, program) = (dir.path().join("ovnkube.pid"), dir.path().join("ovnkube"));
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let mut other = Command::new(&program).arg("60").spawn().unwrap();
    // execve(2) sets up the new memory before the arguments are in it: for a moment cmdline is
    // empty.
    while fs::read(format!("/proc/{}/cmdline", other.id())).unwrap().is_empty() {
        std::thread::yield_now();
    }
    fs::write(&path, format!("{}\n", other.id())).unwrap();
    let refused = Pidfile::create(&path).map(drop);
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(
        matches!(&refused, Err(PidfileError::Running { pid, .. }) if *pid == other.id().to_string()),
        "{refused:?}"
    );
    Pidfile::create(&path).expect("it has ended");
}

#[test]
fn one_that_became_anothers_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ovnkube.pid");
    let pidfile = Pidfile::create(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "77\n").unwrap();
    pidfile.remove();
    assert_eq!(fs::read_to_string(&path).unwrap(), "77\n");
}

#[test]
fn a_link_is_not_followed_and_a_bad_place_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ovnkube.pid");
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
    let error = Pidfile::create(&path).unwrap_err().to_string();
    assert!(error.starts_with("pidfile ") && error.contains("ovnkube.pid"), "{error}");
    assert!(!dir.path().join("elsewhere").exists());
}
