//! Sets a key of `external_ids` in an Open vSwitch if the key is absent. One atomic transaction
//! tests and sets.
//!
//! ```text
//! cargo run -p ovsdb --example set_once KEY VALUE [ENDPOINT]
//! ```

#![expect(clippy::print_stdout, reason = "an example: its result is what it prints")]

use anyhow::Context;
use ovsdb::{Condition, Connection, Datum, Endpoint, Mutation, Options, Transaction};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let key = arguments.next().context("KEY is missing")?;
    let value = arguments.next().context("VALUE is missing")?;
    let endpoint: Endpoint = arguments
        .next()
        .unwrap_or_else(|| "unix:/var/run/openvswitch/db.sock".to_owned())
        .parse()?;
    let connection = Connection::open(&endpoint, "Open_vSwitch", Options::default()).await?;

    let mut transaction = Transaction::new();
    // `insert` does not change a key that the map has already.
    let insert = Mutation::insert("external_ids", Datum::map([(key.clone(), value.clone())]));
    transaction.mutate("Open_vSwitch", ovsdb::Where::all(), vec![insert]);
    // The server executes operations in their order, so this one sees the result of the mutation.
    let same = Condition::includes("external_ids", Datum::map([(key.clone(), value)]));
    let found = transaction.select("Open_vSwitch", same, &[]);
    transaction.comment(&format!("set_once {key}"));

    let outcome = connection.transact(transaction).await?;
    let is_ours = !outcome.rows(found).is_empty();
    println!("{}", if is_ours { "the key has this value" } else { "the key has another value" });
    Ok(())
}
