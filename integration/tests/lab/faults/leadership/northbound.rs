//! A way to the northbound database that counts what the server commits for its clients, and what
//! it refuses.

use std::{
    collections::HashSet,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use integration::central::NORTHBOUND;
use serde_json::Value;
use testkit::proxy::{Observer, Proxy, Sender};

/// Ends with the test's process.
#[derive(Debug)]
pub(super) struct Passage {
    proxy: Proxy,
    counter: Arc<Mutex<Counter>>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Transactions {
    pub(super) committed: usize,
    pub(super) refused: usize,
}

#[derive(Debug, Default)]
struct Counter {
    /// Connection and `id` of requests without a reply yet.
    asked: HashSet<(usize, String)>,
    transactions: Transactions,
}

impl Passage {
    pub(super) fn open() -> Result<Self> {
        let database = Path::new(NORTHBOUND.strip_prefix("unix:").context("a unix socket")?);
        let proxy = Proxy::start(database.with_file_name("nb-passage.sock"), database.to_owned())?;
        let counter: Arc<Mutex<Counter>> = Arc::default();
        proxy.observe(counter.clone());
        Ok(Self { proxy, counter })
    }

    pub(super) fn endpoint(&self) -> String {
        format!("unix:{}", self.proxy.address())
    }

    pub(super) fn transactions(&self) -> Transactions {
        self.counter.lock().unwrap_or_else(PoisonError::into_inner).transactions
    }
}

impl Observer for Counter {
    fn see(&mut self, connection: usize, sender: Sender, message: &Value) {
        let of = (connection, message["id"].to_string());
        match sender {
            Sender::Client if message["method"] == "transact" => {
                self.asked.insert(of);
            }
            Sender::Server if !message["method"].is_string() && self.asked.remove(&of) => {
                let Transactions { committed, refused } = &mut self.transactions;
                *if is_commit(message) { committed } else { refused } += 1;
            }
            Sender::Client | Sender::Server => {}
        }
    }
}

/// Whether the server has carried out every operation (RFC 7047, section 4.1.3).
fn is_commit(reply: &Value) -> bool {
    let results = reply["result"].as_array();
    results.is_some_and(|results| results.iter().all(|result| result.get("error").is_none()))
}
