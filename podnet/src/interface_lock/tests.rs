use std::{
    fs::Permissions,
    os::unix::fs::{PermissionsExt, symlink},
};

use contract::names::Network;
use tempfile::TempDir;
use tokio::{join, time::timeout};

use super::*;

/// Longer than anything here takes, unless it hangs.
const A_WHILE: Duration = Duration::from_secs(10);

fn identity(if_name: &str) -> Identity {
    Identity {
        sandbox: "0123456789abcdef".parse().unwrap(),
        if_name: if_name.parse().unwrap(),
        network: Network::Default,
    }
}

/// A path for the directory, which does not exist yet.
fn place() -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let directory = directory_beside(&root.path().join("run/cni/server.sock"));
    (root, directory)
}

fn files(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

/// Leaves what a killed holder leaves: its file, without a lock.
fn leave_one_behind(directory: &Path, identity: &Identity) {
    let mut held = lock(directory, identity, MODE_OF_CALL).unwrap().unwrap();
    held.name = "another".to_owned();
}

#[test]
fn one_call_has_it_at_a_time_and_no_file_stays() {
    let (_root, directory) = place();
    let interface_lock = InterfaceLock::take(&directory, &identity("eth0")).unwrap();
    assert!(interface_lock.is_held());
    assert!(InterfaceLock::take(&directory, &identity("eth0")).is_err());
    let other = InterfaceLock::take(&directory, &identity("net1")).unwrap();
    assert!(other.is_held());
    assert_eq!(files(&directory), 2);
    drop((interface_lock, other));
    assert_eq!(files(&directory), 0);
    assert!(InterfaceLock::take(&directory, &identity("eth0")).unwrap().is_held());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&directory), mode(directory.parent().unwrap())), (0o700, 0o700));
}

#[test]
fn what_a_killed_holder_leaves_is_in_nobodys_way() {
    let (_root, directory) = place();
    assert_eq!(remove_stale(&directory, Duration::ZERO).unwrap(), 0, "before there is a directory");
    let held = InterfaceLock::take(&directory, &identity("net1")).unwrap();
    leave_one_behind(&directory, &identity("eth0"));
    assert_eq!(files(&directory), 2);
    drop(InterfaceLock::take(&directory, &identity("eth0")).unwrap());
    assert_eq!(files(&directory), 1, "the next call for the interface has removed it");
    leave_one_behind(&directory, &identity("eth0"));
    assert_eq!(remove_stale(&directory, STALE).unwrap(), 0, "its holder may be about to lock it");
    assert_eq!(remove_stale(&directory, Duration::ZERO).unwrap(), 1);
    assert_eq!(files(&directory), 1);
    assert!(
        held.is_held() && InterfaceLock::take(&directory, &identity("net1")).is_err(),
        "a file that is in use stays"
    );
}

#[tokio::test]
async fn del_tells_the_holder_to_give_up_and_waits_until_it_has() {
    let (_root, directory) = place();
    let add = InterfaceLock::take(&directory, &identity("eth0")).unwrap();
    let giving_up = async {
        timeout(A_WHILE, add.challenged()).await.unwrap();
        // Still locked: it is released by the `drop` below.
        assert!(InterfaceLock::take(&directory, &identity("eth0")).is_err());
        drop(add);
    };
    let identity = identity("eth0");
    let (interface_lock, ()) = timeout(A_WHILE, async {
        join!(InterfaceLock::take_over(&directory, &identity), giving_up)
    })
    .await
    .unwrap();
    assert!(interface_lock.is_held());
    assert_eq!(files(&directory), 1);
}

#[tokio::test]
async fn an_add_waits_for_the_end_of_a_look_but_not_for_another_add() {
    let (_root, directory) = place();
    let identity = identity("eth0");
    let look = InterfaceLock::take(&directory, &identity).unwrap();
    let ending = async {
        tokio::time::sleep(TURN / 10).await;
        drop(look);
    };
    let (interface_lock, ()) = timeout(A_WHILE, async {
        join!(InterfaceLock::take_in_turn(&directory, &identity), ending)
    })
    .await
    .unwrap();
    let add = interface_lock.unwrap();
    assert!(add.is_held());
    let began = Instant::now();
    assert!(
        timeout(A_WHILE, InterfaceLock::take_in_turn(&directory, &identity))
            .await
            .unwrap()
            .is_err()
    );
    assert!(began.elapsed() >= TURN);
    assert!(timeout(TURN, add.challenged()).await.is_err(), "no holder was told to give up");
}

/// A server that was stopped while it put ports back made each DEL of their pods wait for 15 s.
#[tokio::test]
async fn a_del_does_not_wait_for_a_server_that_hangs() {
    let (_root, directory) = place();
    let identity = identity("eth0");
    // What a killed call leaves must not hide that the server has the lock.
    leave_one_behind(&directory, &identity);
    let server = InterfaceLock::take_for_server(&directory, &identity).unwrap();
    let began = Instant::now();
    assert!(!InterfaceLock::take_over(&directory, &identity).await.is_held());
    assert!((SERVERS_PATIENCE..PATIENCE / 2).contains(&began.elapsed()), "{:?}", began.elapsed());
    // A server that only takes its time is waited for.
    let ending = async {
        tokio::time::sleep(SERVERS_PATIENCE / 10).await;
        drop(server);
    };
    let (del, ()) = join!(InterfaceLock::take_over(&directory, &identity), ending);
    assert!(del.is_held());
}

#[tokio::test]
async fn of_several_dels_each_has_its_turn() {
    let (_root, directory) = place();
    let add = InterfaceLock::take(&directory, &identity("eth0")).unwrap();
    let del = || async {
        let interface_lock = InterfaceLock::take_over(&directory, &identity("eth0")).await;
        assert!(interface_lock.is_held());
    };
    let giving_up = async {
        add.challenged().await;
        drop(add);
    };
    timeout(A_WHILE, async { join!(del(), del(), del(), giving_up) }).await.unwrap();
    assert_eq!(files(&directory), 0);
}

#[test]
fn a_directory_that_others_can_reach_is_not_used() {
    let (_root, directory) = place();
    drop(InterfaceLock::take(&directory, &identity("eth0")).unwrap());
    std::fs::set_permissions(&directory, Permissions::from_mode(0o750)).unwrap();
    assert!(!InterfaceLock::take(&directory, &identity("eth0")).unwrap().is_held());
    assert_eq!(files(&directory), 0);

    let (root, directory) = place();
    let elsewhere = root.path().join("elsewhere");
    DirBuilder::new().mode(0o700).create(&elsewhere).unwrap();
    DirBuilder::new().recursive(true).create(directory.parent().unwrap()).unwrap();
    symlink(&elsewhere, &directory).unwrap();
    assert!(
        !InterfaceLock::take(&directory, &identity("eth0")).unwrap().is_held(),
        "through a link"
    );
    assert_eq!(files(&elsewhere), 0);
}

#[test]
fn a_file_that_is_no_fifo_stops_nobody() {
    let (_root, directory) = place();
    drop(InterfaceLock::take(&directory, &identity("eth0")).unwrap());
    symlink("/dev/null", directory.join(name(&identity("eth0")))).unwrap();
    assert!(!InterfaceLock::take(&directory, &identity("eth0")).unwrap().is_held());
}
