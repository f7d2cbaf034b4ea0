use std::{
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    time::Duration,
};

use testkit::Scratch;
use tokio::time::timeout;

use super::*;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_lock_is_had_at_once_and_given_back_when_nobody_has_it_any_more() {
    let scratch = Scratch::new();
    let directory = scratch.join("run/election");
    let lock = take(&directory, "master_n1").unwrap();
    assert!(lock.is_held());
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(
        std::fs::metadata(directory.join("master_n1")).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let mut second = take(&directory, "master_n1").unwrap();
    assert!(!second.is_held());
    assert_eq!(second.mark, lock.mark, "it is the same lock");
    assert!(take(&directory, "master_n2").unwrap().is_held(), "that of another name is another");
    drop(lock);
    timeout(SOON, second.held.wait_for(|held| *held)).await.expect("it is free").unwrap();
}

#[tokio::test]
async fn the_lock_of_a_process_that_is_stopped_is_held_until_it_is_killed() {
    let scratch = Scratch::new();
    let directory = scratch.make_dir("election");
    let mut other = Command::new("flock")
        .args(["--exclusive", "--no-fork"])
        .arg(directory.join("master_n1"))
        // The shell prints that it has the lock, and stops itself.
        .args(["sh", "-c", "echo locked; kill -STOP $$"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    io::BufRead::read_line(&mut io::BufReader::new(other.stdout.take().unwrap()), &mut said)
        .unwrap();
    assert_eq!(said, "locked\n");
    let mut lock = take(&directory, "master_n1").unwrap();
    assert!(!lock.is_held());
    other.kill().unwrap();
    timeout(SOON, lock.held.wait_for(|held| *held)).await.expect("the process is dead").unwrap();
    other.wait().unwrap();
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_an_error() {
    let scratch = Scratch::new();
    std::fs::write(scratch.join("file"), "").unwrap();
    assert!(take(&scratch.join("file"), "master_n1").is_err());
}

#[tokio::test]
async fn a_lock_that_is_no_longer_waited_for_leaves_no_open_file() {
    let scratch = Scratch::new();
    let directory = scratch.make_dir("election");
    let file = directory.join("master_n1");
    let open_files = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
        links.filter(|link| std::fs::read_link(link).is_ok_and(|target| target == file)).count()
    };
    let _lock = take(&directory, "master_n1").unwrap();
    for _ in 0..5 {
        assert!(!take(&directory, "master_n1").unwrap().is_held());
    }
    let all_closed = async {
        while open_files() != 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, all_closed).await.expect("the five that waited are closed");
}
