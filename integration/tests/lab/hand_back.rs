//! `ovnkube hand-back` on a real northbound database.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, central::NORTHBOUND, executable};
use serde_json::Value;

/// A rule of a kind that upstream does not know in a group that both have, a group and a set of such
/// a kind, one of which a rule of upstream's kind names, and that rule.
const ROWS: &str = "\
    --id=@mine create ACL direction=to-lport priority=0 match=ip action=allow \
        external_ids:\"k8s.ovn.org/owner-type\"=NextTier \
    -- --id=@denied create ACL direction=to-lport priority=9 match=\"outport==@own\" action=drop \
        external_ids:\"k8s.ovn.org/owner-type\"=ClusterNetworkPolicy \
    -- --id=@theirs create ACL direction=to-lport priority=1 match=\"ip4.src==$named\" action=allow \
        external_ids:\"k8s.ovn.org/owner-type\"=NetworkPolicy \
    -- create Port_Group name=both acls=@mine,@theirs \
        external_ids:\"k8s.ovn.org/owner-type\"=Cluster \
    -- create Port_Group name=own acls=@denied \
        external_ids:\"k8s.ovn.org/owner-type\"=ClusterNetworkPolicy \
    -- create Address_Set name=named external_ids:\"k8s.ovn.org/owner-type\"=NetpolNamedPort \
    -- create Address_Set name=unnamed external_ids:\"k8s.ovn.org/owner-type\"=NodeSelector";

/// What the command reports, and its exit status.
fn hand_back(arguments: &[&str]) -> Result<(Value, Option<i32>)> {
    let mut command = Command::new(executable::under_test(executable::SERVER)?);
    command.arg("hand-back").args(arguments).args(["-o", "json"]);
    let output = command.arg(format!("--nb-address={NORTHBOUND}")).output()?;
    let report = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok((report, output.status.code()))
}

#[test]
fn what_upstream_does_not_know_is_removed_and_what_its_rules_name_stays() {
    Lab::of_nodes(1).test(|lab| {
        let rows = |table: &str| -> Result<Vec<String>> {
            let column = if table == "ACL" { "match" } else { "name" };
            let found = lab.central.nbctl(["--bare", "--columns", column, "list", table])?;
            Ok(found.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
        };
        let before = rows("ACL")?.len();
        lab.central.nbctl(ROWS.split_whitespace())?;
        let (report, status) = hand_back(&["--dry-run"])?;
        ensure!(report.to_string().contains("would be removed: 1 of ACL"), "{report:#}");
        ensure!(rows("ACL")?.len() == before + 3, "a dry run has removed something");
        // One set stays, which a rule of upstream's names.
        ensure!(status == Some(4), "{status:?}: {report:#}");

        let (report, status) = hand_back(&[])?;
        ensure!(status == Some(4), "{status:?}: {report:#}");
        ensure!(report.to_string().contains("$named"), "{report:#}");
        let [acls, groups, sets] = [rows("ACL")?, rows("Port_Group")?, rows("Address_Set")?];
        ensure!(acls.len() == before + 1 && acls.contains(&"ip4.src==$named".to_owned()));
        ensure!(groups.contains(&"both".to_owned()) && !groups.contains(&"own".to_owned()));
        ensure!(sets.contains(&"named".to_owned()) && !sets.contains(&"unnamed".to_owned()));

        // Once nothing names it.
        lab.central.nbctl(["clear", "Port_Group", "both", "acls"])?;
        let (report, status) = hand_back(&[])?;
        ensure!(status == Some(0), "{status:?}: {report:#}");
        ensure!(!rows("Address_Set")?.contains(&"named".to_owned()));
        let (report, status) = hand_back(&[])?;
        ensure!(status == Some(0) && report.to_string().contains("there are none"), "{report:#}");
        Ok(())
    });
}
