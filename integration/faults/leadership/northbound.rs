//! A way to the northbound database that counts what the server commits for its clients, and what it refuses.

use std::{
    collections::HashSet,
    io::{BufReader, Write as _},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use anyhow::{Context as _, Result};
use integration::central::NORTHBOUND;
use serde_json::{Deserializer, Value};

/// Ends with the test's process.
#[derive(Debug)]
pub(super) struct Passage {
    socket: PathBuf,
    transactions: Arc<Mutex<Transactions>>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Transactions {
    pub(super) committed: usize,
    pub(super) refused: usize,
}

impl Passage {
    pub(super) fn open() -> Result<Self> {
        let database = Path::new(NORTHBOUND.strip_prefix("unix:").context("a unix socket")?);
        let socket = database.with_file_name("nb-passage.sock");
        let listener = UnixListener::bind(&socket)?;
        let transactions = Arc::new(Mutex::default());
        let counting = Arc::clone(&transactions);
        thread::spawn(move || {
            // The database may be away: then the client finds its connection closed.
            for client in listener.incoming().flatten() {
                let _ = UnixStream::connect(database).map(|server| serve(client, server, &counting));
            }
        });
        Ok(Self { socket, transactions })
    }

    pub(super) fn endpoint(&self) -> String {
        format!("unix:{}", self.socket.display())
    }

    pub(super) fn transactions(&self) -> Transactions {
        *lock(&self.transactions)
    }
}

/// Passes on the messages of one connection, each direction in a thread of its own.
fn serve(client: UnixStream, server: UnixStream, transactions: &Arc<Mutex<Transactions>>) {
    let (Ok(to_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { return };
    let asked: Arc<Mutex<HashSet<String>>> = Arc::default();
    let (asking, transactions) = (Arc::clone(&asked), Arc::clone(transactions));
    thread::spawn(move || {
        pass(client, to_server, |request| {
            if request["method"] == "transact" {
                lock(&asking).insert(request["id"].to_string());
            }
        });
    });
    thread::spawn(move || {
        pass(server, to_client, |reply| {
            if !reply["method"].is_string() && lock(&asked).remove(&reply["id"].to_string()) {
                let mut transactions = lock(&transactions);
                let count =
                    if is_commit(reply) { &mut transactions.committed } else { &mut transactions.refused };
                *count += 1;
            }
        });
    });
}

/// Whether the server has carried out every operation (RFC 7047, section 4.1.3).
fn is_commit(reply: &Value) -> bool {
    let results = reply["result"].as_array();
    results.is_some_and(|results| results.iter().all(|result| result.get("error").is_none()))
}

fn pass(from: UnixStream, mut to: UnixStream, mut see: impl FnMut(&Value)) {
    let messages = Deserializer::from_reader(BufReader::new(from)).into_iter::<Value>();
    // An error is the end of the connection.
    for message in messages.map_while(Result::ok) {
        see(&message);
        if to.write_all(message.to_string().as_bytes()).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
