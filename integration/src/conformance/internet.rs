//! The Internet, as far as the suite asks for it: two addresses that accept connections, beyond the nodes'
//! default route.

use std::{
    net::{IpAddr, TcpListener},
    process::Command,
    thread,
};

use anyhow::{Context as _, Result};
use integration::{Cluster, command, fabric};

/// Name servers of Google, to which specs connect (test/e2e/network/networking.go).
const ADDRESSES: [&str; 2] = ["8.8.8.8", "2001:4860:4860::8888"];
const PORT: u16 = 53;

/// Makes the lab's root the owner of the addresses, and the way of every node to them.
pub(super) fn begin(cluster: &Cluster) -> Result<()> {
    for node in &cluster.lab.nodes {
        node.run(["ip", "route", "replace", "default", "via", fabric::LAB_ADDRESS])?;
        // Harmless without IPv6: the next hop is on no link.
        let _ = node.run(["ip", "-6", "route", "replace", "default", "via", fabric::LAB_ADDRESS_V6]);
    }
    for address in ADDRESSES {
        let address: IpAddr = address.parse().context("a constant address")?;
        // `nodad`: an IPv6 address would not be there yet for the listener.
        let words = format!("addr add {address} dev lo nodad");
        command::output(Command::new("ip").args(words.split_whitespace()))?;
        let listener = TcpListener::bind((address, PORT)).with_context(|| format!("listen on {address}"))?;
        // Accepting is all that a connection needs; it ends with the namespaces.
        thread::spawn(move || listener.incoming().for_each(drop));
    }
    Ok(())
}
