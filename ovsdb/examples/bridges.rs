//! Prints the bridges of an Open vSwitch and how many ports each has. Reads the database once.
//!
//! ```text
//! cargo run -p ovsdb --example bridges [ENDPOINT]
//! ```

#![expect(clippy::print_stdout, reason = "an example: its result is what it prints")]

use ovsdb::{Connection, Endpoint, Monitor, Options, Uuid, Where};

ovsdb::table! {
    struct Bridge in "Bridge" {
        name: String,
        ports: Vec<Uuid>,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let endpoint =
        std::env::args().nth(1).unwrap_or_else(|| "unix:/var/run/openvswitch/db.sock".to_owned());
    let endpoint: Endpoint = endpoint.parse()?;
    let connection = Connection::open(&endpoint, "Open_vSwitch", Options::default()).await?;
    // The rows are loaded when the monitor is answered. A program that follows changes awaits
    // `changed` on the same value.
    let monitored = connection.monitor(Monitor::new().table::<Bridge>(Where::all())).await?;
    let mut bridges: Vec<_> = monitored
        .rows::<Bridge>()
        .map(|(_, bridge)| (bridge.name.as_str(), bridge.ports.len()))
        .collect();
    bridges.sort_unstable();
    for (name, ports) in bridges {
        println!("{name}: {ports} ports");
    }
    Ok(())
}
