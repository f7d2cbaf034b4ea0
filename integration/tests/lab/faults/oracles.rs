//! The checks that every row must pass can fail: each test here breaks one thing and nothing else.

use std::{io::Write as _, os::unix::net::UnixStream, time::Duration};

use anyhow::{Result, ensure};
use contract::wire::{WATCH_PATH, WatchRequest};
use integration::{
    Lab,
    faults::{Site, row},
    http,
    node::SERVER_SOCKET,
};

/// A row with this body must fail, for this reason.
fn is_noticed(lab: &Lab, reason: &str, body: impl FnOnce(&Site<'_>) -> Result<()>) -> Result<()> {
    let verdict = row(16).calm_within(Duration::from_secs(2)).hold_in(lab, body);
    let text = verdict.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(text.contains(reason), "{reason:?} is not what was found: {text:?}");
    Ok(())
}

#[test]
fn a_quiet_row_holds() {
    Lab::of_nodes(1).test(|lab| row(16).hold_in(lab, |_| Ok(())));
}

#[test]
fn a_link_that_is_left_is_noticed() {
    Lab::of_nodes(1).test(|lab| {
        is_noticed(lab, "a leak: ", |site| {
            site.node.run(["ip", "link", "add", "left", "type", "bridge"]).map(drop)
        })
    });
}

#[test]
fn a_lost_packet_is_noticed() {
    Lab::of_nodes(1).test(|lab| {
        is_noticed(lab, "bystanders: they lost ", |site| {
            let [first, second] = &site.bystanders;
            let link = second.host_interface();
            site.node.run(["ip", "link", "set", &link, "down"])?;
            site.lab.cannot_ping(first, second.address())?;
            site.node.run(["ip", "link", "set", &link, "up"]).map(drop)
        })
    });
}

#[test]
fn a_descriptor_that_the_server_keeps_is_noticed() {
    Lab::of_nodes(1).test(|lab| {
        let mut kept = Vec::new();
        is_noticed(lab, "the server: ", |site| {
            // The server answers a watch request when the pod changes.
            let [pod, _] = &site.bystanders;
            let (namespace, name, uid, mac) =
                (pod.namespace.clone(), pod.name.clone(), pod.uid.clone(), pod.mac.clone());
            let body = serde_json::to_string(&WatchRequest {
                namespace,
                name,
                uid,
                mac,
                nad: "default".to_owned(),
            })?;
            for _ in 0..3 {
                let mut stream = UnixStream::connect(site.node.path(SERVER_SOCKET))?;
                stream.write_all(&http::request(WATCH_PATH, body.as_bytes()))?;
                kept.push(stream);
            }
            Ok(())
        })
    });
}

#[test]
fn a_row_that_takes_too_long_is_noticed() {
    Lab::of_nodes(1).test(|lab| {
        let verdict = row(16).within(Duration::ZERO).hold_in(lab, |_| Ok(()));
        let text = verdict.err().map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(text.contains("it took too long"), "{text:?}");
        Ok(())
    });
}

#[test]
fn a_node_on_which_the_next_pod_fails_is_noticed() {
    Lab::of_nodes(1)
        .test(|lab| is_noticed(lab, "the next pod: ", |site| site.node.ovn_controller.kill()));
}
