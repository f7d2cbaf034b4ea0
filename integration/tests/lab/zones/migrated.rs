//! `ovnkube zones migrate`: two nodes go to databases of their own, and back, while their pods talk.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use integration::{Families, Lab, Node, central::Central, eventually, executable, let_pass};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::support::{
    api::Api,
    two_zones::{SOON, Talk, WAY, Zone, new_pod, of_zone, pings, process, tell_node},
};

/// The longest silence, on a machine that does much else: as for a single move.
const LONGEST: Duration = Duration::from_secs(2);

/// What the command ended with.
struct Migrated {
    status: Option<i32>,
    report: Value,
    said: String,
}

impl Migrated {
    /// The node's finding.
    fn of(&self, node: &Node) -> Result<&Value> {
        let findings = self.report["findings"].as_array().context("findings")?;
        let found = findings.iter().find(|finding| finding["name"] == *node.name);
        found.with_context(|| format!("{}: not in {}", node.name, self.report))
    }
}

fn command(api: &Api, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(executable::under_test(executable::SERVER)?);
    let api = format!("--k8s-apiserver={}", api.url());
    command.args(["zones", "migrate"]).args(arguments).args(["-o", "json", &api]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

fn migrate(api: &Api, arguments: &[&str]) -> Result<Migrated> {
    let output = command(api, arguments)?.output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    eprint!("{said}");
    let report = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{}{said}", String::from_utf8_lossy(&output.stdout)))?;
    Ok(Migrated { status: output.status.code(), report, said })
}

fn zone_of(api: &Api, node: &Node) -> Option<String> {
    api.annotation(&node.name, "k8s.ovn.org/zone-name")
}

/// Starts the node's server in the zone of all, with its own as the other one.
fn serve(node: &Node, own: &Central, lab: &Lab, api: &Api) -> Result<()> {
    Zone::serve_with(
        &[
            &of_zone("global")[..],
            &[
                format!("--other-zone={}", node.name),
                format!("--other-sb-address={}", own.southbound_address()),
            ],
        ]
        .concat(),
        &lab.central.southbound_address(),
        node,
        api,
    )
}

fn all_are_ready(api: &Api, lab: &Lab) -> Result<()> {
    eventually("each node may move", SOON, || {
        let dry = migrate(api, &["--all", "--dry-run"])?;
        ensure!(dry.status == Some(0), "{}", dry.report);
        for node in &lab.nodes {
            let said = dry.of(node)?["summary"].as_str().unwrap_or_default().to_owned();
            let expected = format!("would move from zone global to {}", node.name);
            ensure!(said == expected, "{said}");
        }
        Ok(())
    })
}

#[test]
fn a_command_takes_all_nodes_to_databases_of_their_own_and_back_although_it_is_killed() {
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        lab.nodes.iter().for_each(|node| tell_node(&api, node));
        let interconnect = ["--enable-interconnect".to_owned()];
        let manager =
            process(&api, "manager", "--init-cluster-manager=manager".to_owned(), &interconnect);
        manager.spawn()?;
        let _global = Zone::control("global", &lab.central, &lab.nodes, &api)?;
        let [one, two] = &lab.nodes[..] else { bail!("two nodes") };
        let own = [Central::of_zone(&one.name)?, Central::of_zone(&two.name)?];
        for (node, central) in lab.nodes.iter().zip(&own) {
            serve(node, central, lab, &api)?;
        }
        let here = new_pod(lab, &api, one, "client")?;
        let there = new_pod(lab, &api, two, "server")?;
        pings(lab, "pods of one zone reach each other", &here, &there)?;

        // What is missing is said, and nothing is changed.
        let refused = migrate(&api, &["--all"])?;
        ensure!(refused.status == Some(1), "{}", refused.report);
        let why = refused.of(one)?["summary"].as_str().unwrap_or_default().to_owned();
        ensure!(why.starts_with("stays as it is: "), "{why}");
        eventually("it is said what the zone lacks", SOON, || {
            let why = migrate(&api, &[&one.name, "--dry-run"])?.of(one)?["summary"].clone();
            let why = why.as_str().unwrap_or_default().to_owned();
            ensure!(why.contains("the switch between zones"), "{why}");
            Ok(())
        })?;
        ensure!(lab.nodes.iter().all(|node| zone_of(&api, node).as_deref() == Some("global")));

        let zones: Vec<Zone<'_>> = lab
            .nodes
            .iter()
            .zip(&own)
            .map(|(node, central)| {
                Zone::control(&node.name, central, std::slice::from_ref(node), &api)
            })
            .collect::<Result<_>>()?;
        all_are_ready(&api, lab)?;

        let talk = Talk::begin(lab, &here, &there)?;
        // Killed before the first node is there.
        let mut first = command(&api, &["--all"])?.spawn()?;
        eventually("the first node is on its way", SOON, || {
            let next = api.annotation(&one.name, "k8s.ovn.org/zone-next");
            ensure!(next.as_deref() == Some(&one.name), "{next:?}");
            Ok(())
        })?;
        kill(Pid::from_raw(first.id().cast_signed()), Signal::SIGKILL)?;
        first.wait()?;
        ensure!(api.annotation(&two.name, "k8s.ovn.org/zone-wanted").is_none());
        let again = migrate(&api, &["--all"])?;
        ensure!(again.status == Some(0), "{}\n{}", again.report, again.said);
        for node in &lab.nodes {
            ensure!(zone_of(&api, node).as_ref() == Some(&node.name), "{}", node.name);
        }
        talk.end("to zones of their own", LONGEST)?;
        for zone in &zones {
            let other = lab.nodes.iter().find(|node| node.name != zone.name).context("other")?;
            let rows = zone.rows_of(other)?;
            ensure!(rows.len() == WAY, "{}: {rows:?}", zone.name);
        }

        // A server that starts again stays where its node is.
        two.server.kill()?;
        two.start_server()?;
        let_pass(Duration::from_secs(3));
        ensure!(zone_of(&api, two).as_ref() == Some(&two.name));
        let nothing = migrate(&api, &["--all"])?;
        ensure!(nothing.status == Some(0) && nothing.said.is_empty(), "{}", nothing.said);

        let talk = Talk::begin(lab, &here, &there)?;
        let back = migrate(&api, &["--all", "--back"])?;
        ensure!(back.status == Some(0), "{}\n{}", back.report, back.said);
        for node in &lab.nodes {
            ensure!(zone_of(&api, node).as_deref() == Some("global"), "{}", node.name);
        }
        talk.end("back to the databases of all", LONGEST)?;

        // A zone that does not answer: the node stays where it is, and the way is called off.
        own[1].southbound.pause()?;
        let late = migrate(&api, &[&two.name, "--wait-timeout=3"])?;
        ensure!(late.status == Some(1), "{}", late.report);
        let off = migrate(&api, &[&two.name, "--back"])?;
        ensure!(off.status == Some(0), "{}", off.report);
        own[1].southbound.resume()?;
        ensure!(zone_of(&api, two).as_deref() == Some("global"));
        pings(lab, "all is as before", &here, &there)
    });
}
