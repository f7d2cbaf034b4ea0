//! Counts the packets that NetworkPolicies would drop that are dry runs. Reads the flows of
//! `br-int`; knows neither the policies nor OVN's databases.
//!
//! ```text
//! ACL that logs: name=DryRun:shop:db:Ingress ─▶ ovn-controller ─▶ flow: controller(userdata=…DryRun:shop:db:Ingress)
//!                                                                   └─▶ its number of packets
//! ```
//!
//! What ovn-controller tells itself of a packet that is to be logged has the name of the ACL, so
//! neither a database nor the hash in a cookie is needed. The flow counts each packet, also those
//! for which the meter allows no line (docs/decisions/dry-runs-that-pass.md).

use std::{collections::BTreeMap, io, path::Path, time::Duration};

use contract::ovn::DryRun;
use podnet::openflow::flows_to_controller;

/// The bridge with the flows of ovn-controller.
const BRIDGE: &str = "br-int";
/// Limit for an answer: ovs-vswitchd looks through all flows of the bridge, 100,000 of them within
/// 0.2 s on a busy machine. Prometheus gives up after 10 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// What ovn-controller asks itself to do: `ACTION_OPCODE_LOG` (OVN's include/ovn/actions.h) in
/// `struct action_header`, which is padded to eight bytes.
const LOG: [u8; 8] = [0, 0, 0, 7, 0, 0, 0, 0];
/// Bytes of `struct log_pin_header`, verdict and severity. The name follows.
const VERDICT_AND_SEVERITY: usize = 2;

/// The packets that have matched since ovn-controller made the flows. Blocks, on a thread that may.
///
/// # Errors
///
/// Open vSwitch does not answer.
pub(crate) fn packets(ovs_run_dir: &Path) -> io::Result<BTreeMap<DryRun, u64>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let flows = runtime.block_on(flows_to_controller(ovs_run_dir, BRIDGE, PATIENCE))?;
    let mut packets = BTreeMap::new();
    for flow in flows {
        // One flow for each port that the policy selects.
        if let Some(dry_run) = logged(&flow.data) {
            *packets.entry(dry_run).or_default() += flow.packets;
        }
    }
    Ok(packets)
}

/// The dry run whose ACL this logs.
fn logged(data: &[u8]) -> Option<DryRun> {
    let name = data.strip_prefix(&LOG)?.get(VERDICT_AND_SEVERITY..)?;
    std::str::from_utf8(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_log_lines_of_dry_runs_are_counted() {
        let data = |opcode: u8, name: &str| {
            [&[0, 0, 0, opcode, 0, 0, 0, 0, 1, 6][..], name.as_bytes()].concat()
        };
        let found = logged(&data(7, "DryRun:shop:db:Ingress")).unwrap();
        assert_eq!((&*found.namespace, &*found.policy, found.direction), ("shop", "db", "Ingress"));
        for other in [
            data(7, "NP:shop:db:Ingress:0"),
            data(3, "DryRun:shop:db:Ingress"),
            data(7, ""),
            vec![0; 3],
        ] {
            assert_eq!(logged(&other), None, "{other:?}");
        }
    }
}
