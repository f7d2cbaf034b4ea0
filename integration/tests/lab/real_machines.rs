//! The guide for real machines, `docs/how-to/real-machines.md`: its configuration and its commands,
//! as they stand there, on two nodes whose databases listen on local sockets only, as the packages
//! start them.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{Daemon, Lab, central, command, eventually, executable, fabric, mounts};

use crate::support::api::Api;
use crate::support::{cluster_pods, managed};

const GUIDE: &str = "docs/how-to/real-machines.md";
/// The addresses of the guide.
const MASTER: &str = "192.0.2.1";
const NODE: &str = "192.0.2.2";
const API_SERVER: &str = "https://192.0.2.1:6443";

/// Limit for tunnels and flows to follow, on a busy machine.
const SOON: Duration = Duration::from_secs(45);

#[test]
fn the_guide_leads_from_packages_to_pods_that_answer() {
    Lab::of_nodes(2).empty().test(|lab| {
        let guide = Guide::read()?;
        let api = Api::start()?;
        central::link_sockets(Path::new("/"))?;
        for node in &lab.nodes {
            cluster_pods::put_node(&api, node, &node.name);
            let address = fabric::address(node.index);
            for command in guide.commands("## 3.", "ovs-vsctl") {
                node.shell(&command.replace(NODE, &address))?;
            }
            fs::write(node.path("/etc/openvswitch/ovn_k8s.conf"), guide.configuration(&api)?)?;
        }
        fs::write("/etc/openvswitch/ovn_k8s.conf", guide.configuration(&api)?)?;

        let master = master(&guide.options_of("## 4.", "ovnkube-master")?)?;
        master.spawn()?;
        for database in ["nb", "sb"] {
            eventually("the master opens the database", SOON, || over_the_net(database).map(drop))?;
        }
        // The same by hand changes nothing that others see.
        let by_hand = guide.commands("## 3.", "ovn-");
        ensure!(by_hand.len() == 2, "{by_hand:?}");
        by_hand.iter().try_for_each(|command| shell(command).map(drop))?;
        for database in ["nb", "sb"] {
            eventually("the database is open", SOON, || over_the_net(database).map(drop))?;
        }
        for command in guide.commands("## 4.", "ovnkube ") {
            let printed = shell(&command.replace("ovnkube ", &format!("{} ", server()?)))?;
            ensure!(
                printed.contains("cluster-subnets") && printed.contains("ovn_k8s.conf"),
                "{printed}"
            );
        }

        let of_node = guide.options_of("## 5.", "ovnkube-node")?;
        for node in &lab.nodes {
            node.server.set_arguments(of_node.iter().map(|word| word.replace("%H", &node.name)));
            node.start_server()?;
        }
        lab.nodes.iter().try_for_each(managed::ready)?;
        let [here, there] = [0, 1].map(|at: usize| cluster_pods::attach(lab, &api, &lab.nodes[at]));
        let (here, there) = (here?, there?);
        for (from, to) in [(&here, &there), (&there, &here)] {
            eventually("the other node's pod answers", SOON, || lab.ping(from, to.address()))?;
        }
        for command in guide.commands("## 5.", "ov") {
            let shown = match command.starts_with("ovs-vsctl") {
                true => lab.nodes[1].shell(&command)?,
                false => shell(&command)?,
            };
            let expected = match command.as_str() {
                "ovn-sbctl show" => "Chassis",
                "ovn-nbctl show" => "lab_node2-pod",
                _ => "type: geneve",
            };
            ensure!(shown.contains(expected), "{command}: {shown}");
        }
        Ok(())
    });
}

/// A pod is looked into by the id of its container, as documents of the Python programs do; and
/// their configuration calls the plugin under the name that it had there.
#[test]
fn names_of_the_python_programs_lead_to_pods_and_to_the_plugin() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let old = node.path("/etc/cni/net.d/10-net.conf");
        fs::write(
            &old,
            r#"{"name":"net","type":"ovn_cni","bridge":"br-int","isGateway":"true","ipMasq":"false"}"#,
        )?;
        node.configure_server(&node.subnets)?;
        let file = node.path("/etc/openvswitch/ovn_k8s.conf");
        fs::write(&file, fs::read_to_string(&file)? + "[cni]\nnetns-link=true\n")?;
        node.start_server()?;
        managed::ready(node)?;
        let version =
            node.shell("echo '{\"cniVersion\":\"0.1.0\"}' | CNI_COMMAND=VERSION /opt/cni/bin/ovn_cni")?;
        ensure!(version.contains("supportedVersions"), "{version}");
        ensure!(old.exists(), "runtimes know pods by its network");

        let pod = lab.new_pod(node)?;
        let runtime = node.configured_runtime()?;
        runtime.add(&pod)?.success()?;
        let inside = node.run(["ip", "netns", "exec", &pod.sandbox, "ip", "-o", "addr", "show", "eth0"])?;
        ensure!(inside.contains(&pod.address().to_string()), "{inside}");
        runtime.del(&pod)?.success()?;
        let link = node.path(Path::new("/var/run/netns").join(&pod.sandbox));
        ensure!(fs::symlink_metadata(&link).is_err(), "{} is left", link.display());
        Ok(())
    });
}

/// Asks a database at the master's address.
fn over_the_net(database: &str) -> Result<String> {
    let (program, port) = if database == "nb" { ("ovn-nbctl", 6641) } else { ("ovn-sbctl", 6642) };
    let address = format!("--db=tcp:{}:{port}", fabric::LAB_ADDRESS);
    command::output(Command::new(program).args(["--timeout=5", &address, "get-connection"]))
}

fn shell(script: &str) -> Result<String> {
    command::output(Command::new("sh").args(["-euc", script]))
}

fn server() -> Result<String> {
    Ok(executable::under_test(executable::SERVER)?.display().to_string())
}

fn master(options: &[String]) -> Result<Daemon> {
    let log = Path::new(mounts::LOGS).join("central/ovnkube.out");
    let program = || Ok(Command::new(executable::under_test(executable::SERVER)?));
    Ok(Daemon::new(
        "the master",
        log,
        program,
        options.iter().map(|word| word.replace("%H", "master")),
    ))
}

/// The page.
struct Guide(String);

impl Guide {
    fn read() -> Result<Self> {
        let path = executable::workspace().join(GUIDE);
        Ok(Self(fs::read_to_string(&path).with_context(|| format!("read {GUIDE}"))?))
    }

    fn section(&self, heading: &str) -> &str {
        let (_, rest) =
            self.0.split_once(&format!("\n{heading}")).expect("the page has the section");
        rest.split_once("\n## ").map_or(rest, |(section, _)| section)
    }

    /// The section's commands that begin so, without comments.
    fn commands(&self, section: &str, begin: &str) -> Vec<String> {
        let lines = self.section(section).lines().filter(|line| line.starts_with(begin));
        lines.map(|line| line.split("  #").next().unwrap_or(line).trim().to_owned()).collect()
    }

    /// The first configuration of the page, with the lab's addresses. The lab's API server asks for
    /// no credentials.
    fn configuration(&self, api: &Api) -> Result<String> {
        let (_, rest) = self.section("## 3.").split_once("```ini\n").context("a configuration")?;
        let (text, _) = rest.split_once("```").context("its end")?;
        ensure!(text.contains(API_SERVER) && text.contains(MASTER), "{text}");
        let lines = text
            .lines()
            .filter(|line| !line.starts_with("cacert=") && !line.starts_with("tokenFile="));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        Ok(text.replace(API_SERVER, api.url()).replace(MASTER, fabric::LAB_ADDRESS))
    }

    /// The options with which the unit that a section starts runs `ovnkube`.
    fn options_of(&self, section: &str, unit: &str) -> Result<Vec<String>> {
        let command = format!("systemctl enable --now {unit}");
        ensure!(
            self.commands(section, "systemctl").contains(&command),
            "{section} does not start {unit}"
        );
        let path = executable::workspace().join(format!("conf/{unit}.service"));
        let text = fs::read_to_string(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/ovnkube "));
        let words = line.context("the unit starts ovnkube")?.split(' ');
        Ok(words.filter(|word| !word.starts_with('$')).map(str::to_owned).collect())
    }
}
