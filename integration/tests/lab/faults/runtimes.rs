//! How a container runtime judges a node: it asks for STATUS every few seconds, and takes a node
//! with a bad answer out of service.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use contract::paths::{CNI_CONF_DIR, CNI_CONF_FILE};
use integration::{
    eventually,
    faults::{Site, at_once, row},
    node::MANIFESTS,
};
use serde_json::json;

use crate::support::second::Second;

/// The interval of STATUS calls. A real runtime has five seconds, and may call at any of these
/// moments.
const OFTEN: Duration = Duration::from_millis(100);
/// The limit until one daemon notices that another one is away, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Runs `body` while a runtime asks for STATUS: each answer has to be good. Returns the number of
/// answers.
pub(crate) fn ready_all_the_time(
    site: &Site<'_>,
    body: impl FnOnce() -> Result<()>,
) -> Result<usize> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking = scope.spawn(|| -> Result<usize> {
            let mut answers = 0;
            while !over.load(Ordering::Relaxed) {
                site.node
                    .configured_runtime()?
                    .status()?
                    .success()
                    .with_context(|| format!("after {answers} good answers"))?;
                answers += 1;
                thread::park_timeout(OFTEN);
            }
            Ok(answers)
        });
        let done = body();
        over.store(true, Ordering::Relaxed);
        asking.thread().unpark();
        let answers = asking.join().map_err(|_| anyhow::anyhow!("the runtime panicked"))?;
        done.and(answers)
    })
}

/// Waits until ovn-controller reports this state of its connection to the southbound database.
pub(crate) fn connection_is(site: &Site<'_>, expected: &str) -> Result<()> {
    eventually("ovn-controller has noticed", SOON, || {
        let said = site.node.run(["ovn-appctl", "-t", "ovn-controller", "connection-status"])?;
        ensure!(said.trim() == expected, "{said}");
        Ok(())
    })
}

#[test]
fn row_67_no_node_is_taken_out_of_service_while_the_southbound_database_and_the_server_restart() {
    row(67).within(Duration::from_secs(60)).test(|site| {
        let answers = ready_all_the_time(site, || {
            site.lab.central.southbound.kill()?;
            connection_is(site, "not connected")?;
            site.node.server.stop()?;
            site.node.start_server()?;
            site.node.server.kill()?;
            site.node.start_server()?;
            site.lab.central.start_southbound()?;
            connection_is(site, "connected")
        })?;
        ensure!(answers >= 5, "the runtime asked {answers} times only");
        site.add(&site.new_pod()?)?.success().map(drop)
    });
}

#[test]
fn row_68_a_run_time_directory_that_is_elsewhere_is_told_to_the_plugin() {
    row(68).within(Duration::from_secs(60)).test(|site| {
        let (node, usual) = (
            site.node,
            ["--init-node", &site.node.name, "--pod-manifests", MANIFESTS].map(str::to_owned),
        );
        controller_in(site, "/var/run/ovn-ic")?;
        node.server.stop()?;
        node.server.set_arguments(
            usual.iter().cloned().chain(["--ovn-run-dir=/var/run/ovn-ic".to_owned()]),
        );
        node.start_server()?;
        eventually("the configuration names it", SOON, || {
            ensure!(
                site.node.configured_runtime()?.config["ovnRunDir"] == "/var/run/ovn-ic",
                "{}",
                site.node.configured_runtime()?.config
            );
            site.node.configured_runtime()?.status()?.success().map(drop)
        })?;
        // The plugin really looks for ovn-controller there.
        node.ovn_controller.kill()?;
        let error = site.node.configured_runtime()?.status()?.failure()?;
        ensure!(
            error.code == 50 && error.msg.contains("ovn-controller does not answer"),
            "{error:?}"
        );

        controller_in(site, "/var/run/ovn")?;
        node.server.stop()?;
        node.server.set_arguments(usual);
        node.start_server()
    });
}

#[test]
fn row_68_an_ovn_controller_out_of_sight_is_not_missing_as_long_as_ports_are_installed() {
    row(68).within(Duration::from_secs(60)).test(|site| {
        let node = site.node;
        controller_in(site, "/var/run/ovn-ic")?;
        // The server has seen ovn-controller's process id, so its absence is a failure.
        eventually("it is missed", SOON, || {
            site.status_is(50, &["ovn-controller does not answer"])
        })?;
        node.server.stop()?;
        node.forget_server()?;
        node.start_server()?;
        // The bystanders have ports that OVN has installed, so an unseen ovn-controller counts as
        // running.
        site.until_healthy()?;

        controller_in(site, "/var/run/ovn")?;
        node.server.stop()?;
        node.start_server()
    });
}

/// Restarts ovn-controller with its process id and control socket in this directory, and nowhere
/// else.
fn controller_in(site: &Site<'_>, directory: &str) -> Result<()> {
    let controller = &site.node.ovn_controller;
    if controller.is_running() {
        controller.stop()?;
    }
    site.node.shell(&format!(
        "mkdir -p {directory}; rm -f /var/run/ovn/ovn-controller.* /var/run/ovn-ic/ovn-controller.*"
    ))?;
    controller.set_environment(vec![("OVN_RUNDIR".to_owned(), directory.to_owned())]);
    controller.set_arguments([
        "unix:/var/run/openvswitch/db.sock".to_owned(),
        format!("--pidfile={directory}/ovn-controller.pid"),
        "--log-file=/var/log/ovn/ovn-controller.log".to_owned(),
        "-vconsole:err".to_owned(),
    ]);
    site.node.start_ovn_controller()?;
    eventually("ovn-controller is there", SOON, || {
        let said = site.node.shell(&format!(
            "OVN_RUNDIR={directory} ovn-appctl -t ovn-controller connection-status"
        ))?;
        ensure!(said.trim() == "connected", "{said}");
        Ok(())
    })
}

#[test]
fn row_70_a_primary_user_defined_network_is_refused_and_named() {
    row(70).test(|site| {
        let pod = site.new_pod_without_annotation()?;
        let mut annotation = pod.annotation();
        annotation["default"]["role"] = json!("infrastructure-locked");
        site.node.write_manifest_text(&pod, &pod.manifest(Some(&annotation)))?;
        let outcome = site.add(&pod)?;
        site.failed(&pod, &outcome, 2, &["primary network is a user-defined one", &pod.name])?;
        at_once(&outcome)
    });
}

#[test]
fn row_70_a_network_twice_in_one_pod_is_refused_and_the_first_interface_goes_on() {
    row(70).test(|site| {
        let blue = Second::create(site.lab, "blue")?;
        let pods = [site.new_pod_without_annotation()?, site.new_pod_without_annotation()?];
        for pod in &pods {
            blue.join(site.lab, site.node, pod)?;
            site.add(pod)?.success()?;
            blue.runtime(site.node).add(pod)?.success()?;
        }
        let [one, other] = &pods;
        site.lab.ping(other, blue.address(one))?;
        let mut again = blue.runtime(site.node);
        again.ifname = "net2".to_owned();
        let error = again.add(one)?.failure()?;
        ensure!(
            error.code == 2 && error.msg.contains("twice in one pod") && error.msg.contains("net1"),
            "{error:?}"
        );
        // DEL of the refused interface removes nothing of the first one.
        again.del(one)?.success()?;
        site.lab.ping(other, blue.address(one))?;
        site.has_network(one)?;
        pods.iter().try_for_each(|pod| blue.runtime(site.node).del(pod)?.success().map(drop))
    });
}

#[test]
fn row_70_a_second_network_may_have_two_subnets_of_a_family() {
    row(70).test(|site| {
        let blue = Second::create(site.lab, "blue")?;
        let pod = site.new_pod_without_annotation()?;
        blue.join(site.lab, site.node, &pod)?;
        let mut annotation = pod.annotation();
        let addresses = [format!("{}/24", blue.address(&pod)), "172.30.0.5/16".to_owned()];
        annotation[blue.nad()] =
            json!({"ip_addresses": addresses, "mac_address": blue.mac(&pod), "role": "secondary"});
        site.node.write_manifest_text(&pod, &pod.manifest(Some(&annotation)))?;
        site.add(&pod)?.success()?;
        let result = blue.runtime(site.node).add(&pod)?.success()?;
        ensure!(result["ips"].as_array().is_some_and(|ips| ips.len() == 2), "{result:#}");
        let shown = site.node.run_in_pod(&pod, ["ip", "-o", "-4", "addr", "show", "net1"])?;
        ensure!(addresses.iter().all(|address| shown.contains(address)), "{shown}");
        blue.runtime(site.node).check(&pod, &result)?.success()?;
        blue.runtime(site.node).del(&pod)?.success().map(drop)
    });
}

#[test]
fn row_69_a_cni_configuration_that_somebody_takes_away_or_changes_is_put_back() {
    row(69).within(Duration::from_secs(60)).test(|site| {
        let (file, conf) = (site.node.cni_conf(), format!("{CNI_CONF_DIR}/{CNI_CONF_FILE}"));
        let before = fs::read(&file)?;
        let is_back = || {
            eventually("the configuration is back", SOON, || {
                ensure!(fs::read(&file)? == before, "{:?}", fs::read_to_string(&file));
                Ok(())
            })
        };
        // Another network's uninstaller; an editor that replaces the file by rename; a program that
        // truncates it.
        for damage in ["rm -f FILE", "echo {} > FILE.new; mv FILE.new FILE", ": > FILE"] {
            site.node.shell(&damage.replace("FILE", &conf))?;
            is_back().context(damage)?;
        }
        // A program that keeps writing wins most of the time: the server backs off instead of
        // writing endlessly.
        let began = site.node.server_log()?.matches("is put back").count();
        site.node.shell(&format!(
            "for i in $(seq 200); do echo {{}} > {conf}.new; mv {conf}.new {conf}; done"
        ))?;
        let written = site.node.server_log()?.matches("is put back").count() - began;
        ensure!(written <= 3, "it was put back {written} times");
        is_back()
    });
}
