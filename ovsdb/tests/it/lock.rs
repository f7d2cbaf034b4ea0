//! Locks of a real server.

use std::time::Duration;

use ovsdb::{Claim, Connection, ErrorKind, Lock, LockState, Transaction};
use tokio::time::timeout;

use crate::switch::{DATABASE, switch};

const SOON: Duration = Duration::from_secs(20);
const NAME: &str = "ovsdb_test";

/// Waits for a state. Panics with the actual state at the deadline.
async fn becomes(lock: &mut Lock, wanted: &LockState) {
    let mut seen = lock.state();
    let waiting = async {
        while seen != *wanted {
            lock.changed().await;
            seen = lock.state();
        }
    };
    if timeout(SOON, waiting).await.is_err() {
        panic!("{wanted:?} was waited for, it is {:?}", lock.state());
    }
}

async fn asserted(connection: &Connection) -> Result<(), ErrorKind> {
    let mut transaction = Transaction::new();
    transaction.assert(NAME);
    connection.transact(transaction).await.map(drop).map_err(|error| error.kind().cloned().unwrap())
}

#[tokio::test]
async fn a_lock_has_one_holder_and_comes_to_the_next_when_it_is_given_back() {
    let (daemon, first) = switch().await;
    let second = daemon.open(DATABASE).await;
    assert_eq!(asserted(&first).await, Err(ErrorKind::NotOwner));
    let mut held = first.lock(NAME, Claim::Queue);
    becomes(&mut held, &LockState::Held).await;
    let mut waits = second.lock(NAME, Claim::Queue);
    becomes(&mut waits, &LockState::Waits).await;
    assert_eq!(
        (asserted(&first).await, asserted(&second).await),
        (Ok(()), Err(ErrorKind::NotOwner))
    );
    assert!(held.is_held() && !waits.is_held());

    held.unlock();
    becomes(&mut waits, &LockState::Held).await;
    assert_eq!(
        (asserted(&first).await, asserted(&second).await),
        (Err(ErrorKind::NotOwner), Ok(()))
    );
    // The lock can be requested again.
    let mut again = first.lock(NAME, Claim::Queue);
    becomes(&mut again, &LockState::Waits).await;
    // A lock ends with its connection.
    drop((waits, second));
    becomes(&mut again, &LockState::Held).await;
}

#[tokio::test]
async fn a_lock_that_is_stolen_is_known_to_be_and_comes_back_only_when_it_is_asked_for_again() {
    let (daemon, first) = switch().await;
    let second = daemon.open(DATABASE).await;
    let mut lock = first.lock(NAME, Claim::Steal);
    becomes(&mut lock, &LockState::Held).await;
    let mut stolen = second.lock(NAME, Claim::Steal);
    becomes(&mut stolen, &LockState::Held).await;
    becomes(&mut lock, &LockState::Stolen).await;
    assert_eq!(
        (asserted(&first).await, asserted(&second).await),
        (Err(ErrorKind::NotOwner), Ok(()))
    );
    drop((stolen, second));
    lock.unlock();
    let mut again = first.lock(NAME, Claim::Queue);
    becomes(&mut again, &LockState::Held).await;
}

#[tokio::test]
async fn a_lock_that_no_server_gives_is_refused() {
    let (_daemon, connection) = switch().await;
    let mut lock = connection.lock("no id", Claim::Queue);
    timeout(SOON, lock.changed()).await.unwrap();
    assert!(
        matches!(lock.state(), LockState::Refused(error) if error.details.contains("no id") || error.kind == ErrorKind::SyntaxError)
    );
    assert!(!lock.is_held() && !connection.is_closed());
}

#[tokio::test]
async fn no_lock_is_held_over_a_connection_that_is_closed() {
    let (mut daemon, connection) = switch().await;
    let mut lock = connection.lock(NAME, Claim::Queue);
    becomes(&mut lock, &LockState::Held).await;
    daemon.kill();
    timeout(SOON, connection.closed()).await.unwrap();
    assert!(!lock.is_held());
}
