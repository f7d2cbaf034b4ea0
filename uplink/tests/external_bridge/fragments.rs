//! Packets in fragments through a bridge on the userspace datapath, with devices, in namespaces of
//! an ordinary user.

use std::path::Path;

use testkit::{Scratch, program};
use uplink::flows::{Datapath, Family, Flows, Match, Mode, table};

use crate::example::{self, config};

/// How many of three pings of 4,000 bytes are answered: from OVN to the world, from the host to the
/// world, and back.
fn answered(flows: &Flows) -> String {
    let scratch = Scratch::new();
    let file = scratch.join("flows");
    std::fs::write(&file, flows.to_string())
        .expect("a file in the test's own directory can be written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/external_bridge/fragments.sh");
    let script = program::output(
        program::command("unshare")
            .args([
                "--user",
                "--map-root-user",
                "--net",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "sh",
            ])
            .args([&script, scratch.path(), &file]),
    );
    script.replace('\n', ", ")
}

#[test]
fn fragments_pass_on_the_userspace_datapath() {
    let mut config = config(Mode::Shared);
    config.bridge.datapath = Datapath::Userspace;
    let flows = table(&config);
    assert_eq!(answered(&flows), "ovn-to-world 3, host-to-world 3, world-to-host 3");

    // The flow of the kernel's datapath is what loses them.
    let mut turned_round = flows;
    for (slot, actions) in table(&example::config(Mode::Shared)).iter() {
        if slot.matching == Match::from_port(config.bridge.ports.uplink).ip(Family::V4).fragment() {
            turned_round.add(slot.table, slot.priority, slot.matching, actions);
        }
    }
    assert_eq!(answered(&turned_round), "ovn-to-world 0, host-to-world 0, world-to-host 0");
}
