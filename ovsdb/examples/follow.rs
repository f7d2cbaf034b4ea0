//! Prints every change of the bridges of an Open vSwitch, without end. It survives restarts of the
//! server, and prints what changed meanwhile after the reconnection.
//!
//! ```text
//! cargo run -p ovsdb --example follow [ENDPOINT[,ENDPOINT…]]
//! ```

#![expect(clippy::print_stdout, reason = "an example: its result is what it prints")]

use ovsdb::{ChangeKind, Client, Endpoints, Event, Monitor, Options, Uuid, Where};

ovsdb::table! {
    struct Bridge in "Bridge" {
        name: String,
        ports: Vec<Uuid>,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let endpoints =
        std::env::args().nth(1).unwrap_or_else(|| "unix:/var/run/openvswitch/db.sock".to_owned());
    let endpoints: Endpoints = endpoints.parse()?;
    let monitor = Monitor::new().table::<Bridge>(Where::all()).keep_old_rows();
    // The client sends transactions, which this example does not need. The connection is open while
    // the client or the updates exist.
    let (_client, mut updates) =
        Client::start(endpoints, "Open_vSwitch", monitor, Options::default());
    loop {
        match updates.next().await {
            Event::Connected => println!("connected"),
            Event::Disconnected(reason) => println!("disconnected: {reason}"),
            Event::Changed(changes) => {
                for change in changes.of::<Bridge>() {
                    // The replica shows the rows after the change. Only the change has a deleted
                    // row.
                    let row = updates.row::<Bridge>(change.uuid).or_else(|| change.old::<Bridge>());
                    let name = row.map_or("?", |bridge| bridge.name.as_str());
                    match change.kind {
                        ChangeKind::Insert => println!("{name} added"),
                        ChangeKind::Modify => {
                            println!("{name} changed: {}", change.columns().join(", "))
                        }
                        ChangeKind::Delete => println!("{name} removed"),
                    }
                }
            }
        }
    }
}
