//! A node boots: the units of `conf/` run under a real systemd, with some of what they need
//! missing.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, eventually, systemd::Booted};
use serde_json::json;

/// Even a busy machine boots within this time; a smaller limit would measure the machine.
const BOOT: Duration = Duration::from_secs(30);

const PIDFILE: &str = "/run/openvswitch/ovnkube-master.pid";

/// The options of both units; the southbound database is the lab's.
fn configure(node: &Node, further: &str) -> Result<()> {
    let sb = integration::central::SOUTHBOUND;
    let text = format!("[default]\nmtu=1400\n{further}\n[ovnsouth]\naddress={sb}\n");
    Ok(fs::write(node.path("/etc/openvswitch/ovn_k8s.conf"), text)?)
}

/// Hands the node's daemons over to systemd. Open vSwitch forgets the lab's settings, except the
/// datapath type of its bridges.
fn hand_over(node: &Node) -> Result<()> {
    node.vsctl(
        "remove Open_vSwitch . external_ids ovn-encap-ip -- remove Open_vSwitch . external_ids ovn-remote"
            .split(' '),
    )?;
    node.ovn_controller.stop()?;
    node.vswitchd.stop()?;
    node.ovsdb_server.stop()
}

/// Gives the node an address and a default route, as DHCP does, for the first time or again.
fn give_address(node: &Node, address: &str) -> Result<()> {
    let script = format!(
        "ip link show uplink >/dev/null 2>&1 || ip link add uplink type veth peer name beyond
        ip addr flush dev uplink; ip link set beyond up; ip link set uplink up; \
        ip addr add {address}/24 dev uplink; ip route add default via 192.0.2.1"
    );
    node.shell(&script).map(drop)
}

fn kubelet_runs(booted: &Booted<'_>) -> Result<()> {
    eventually("the kubelet is started", BOOT, || {
        ensure!(booted.path("/run/kubelet")?.exists(), "{}", booted.systemctl(["list-jobs"])?);
        Ok(())
    })
}

/// The unit counts as started, and systemd had to start it only once.
fn is_up(booted: &Booted<'_>, unit: &str) -> Result<()> {
    eventually(&format!("{unit} is started"), BOOT, || {
        let state = booted.property(unit, "ActiveState")?;
        ensure!(state == "active", "{state}: {}", booted.property(unit, "StatusText")?);
        Ok(())
    })?;
    let restarts = booted.property(unit, "NRestarts")?;
    ensure!(restarts == "0", "{unit} was started again {restarts} times");
    Ok(())
}

fn status(booted: &Booted<'_>, unit: &str, wanted: &str) -> Result<()> {
    eventually(&format!("{unit} says {wanted:?}"), BOOT, || {
        let text = booted.property(unit, "StatusText")?;
        ensure!(text.contains(wanted), "{text}");
        Ok(())
    })
}

/// The API server may be a static pod of this kubelet: units that wait for it must not delay the
/// kubelet.
#[test]
fn row_71_no_unit_of_ours_holds_up_the_kubelet_while_the_api_server_is_away() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        configure(node, "[kubernetes]\napiserver=http://127.0.0.1:9\ntoken=t")?;
        hand_over(node)?;
        node.shell(
            "ip route add default dev breth0 2>/dev/null || { ip link add uplink type veth peer name beyond; \
            ip link set uplink up; ip addr add 192.0.2.10/24 dev uplink; ip route add default via 192.0.2.1; }",
        )?;
        let options = format!("[Service]\nEnvironment=OVNKUBE_OPTIONS='--pidfile {PIDFILE}'\n");
        Booted::install(node, &[("ovnkube-master.service.d/options.conf", &options)])?;
        let booted = Booted::start(node)?;
        kubelet_runs(&booted).with_context(|| node.server_log().unwrap_or_default())?;
        for unit in ["ovnkube-node.service", "ovnkube-master.service"] {
            is_up(&booted, unit).with_context(|| node.server_log().unwrap_or_default())?;
        }
        status(&booted, "ovnkube-node.service", "waiting for")?;
        eventually("the boot is complete", BOOT, || {
            let state = booted.run(["systemctl", "is-system-running"]);
            ensure!(state.is_ok(), "{state:?} {:?}", booted.systemctl(["list-jobs"]));
            Ok(())
        })?;
        // OVN's own scripts look for the pidfile there.
        let pid = fs::read_to_string(booted.path(PIDFILE)?).context("the control plane's pidfile")?;
        ensure!(pid.trim() == booted.property("ovnkube-master.service", "MainPID")?, "{pid}");
        booted.power_off()
    });
}

/// DHCP is slow, and `kubeadm join` has not written the kubelet's kubeconfig yet.
#[test]
fn row_72_without_a_route_and_a_kubeconfig_nothing_ends_and_each_is_used_as_soon_as_it_is_there() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
        configure(node, &format!("[kubernetes]\nkubeconfig={KUBECONFIG}"))?;
        hand_over(node)?;
        Booted::install(node, &[])?;
        let booted = Booted::start(node)?;
        kubelet_runs(&booted)?;
        is_up(&booted, "ovnkube-node.service")
            .with_context(|| node.server_log().unwrap_or_default())?;
        status(
            &booted,
            "ovnkube-node.service",
            "waiting for tunnel-address: no interface of this node has a default route",
        )?;

        give_address(node, "192.0.2.10")?;
        eventually("tunnels end at the address", BOOT, || {
            let address = booted.run([
                "ovs-vsctl",
                "--timeout=5",
                "get",
                "Open_vSwitch",
                ".",
                "external_ids:ovn-encap-ip",
            ])?;
            ensure!(address.trim() == "\"192.0.2.10\"", "{address}");
            Ok(())
        })?;
        for unit in ["ovnkube-node.service", "ovnkube-master.service"] {
            status(&booted, unit, &format!("{KUBECONFIG}\": No such file or directory"))?;
        }
        let kubeconfig = json!({
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "current-context": "c",
        });
        fs::write(node.path(KUBECONFIG), kubeconfig.to_string())?;
        for unit in ["ovnkube-node.service", "ovnkube-master.service"] {
            status(&booted, unit, "Connection refused")?;
            is_up(&booted, unit)?;
        }
        booted.power_off()
    });
}

#[test]
fn row_73_after_a_reboot_and_after_a_power_cut_the_node_is_ready_again() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let subnet = node.subnets[0];
        let cluster = format!("node-subnets={subnet}\ncluster-subnets=10.244.0.0/16");
        configure(node, &cluster)?;
        hand_over(node)?;
        give_address(node, "192.0.2.10")?;
        let manifests =
            "[Service]\nEnvironment=OVNKUBE_OPTIONS='--pod-manifests /var/lib/openvswitch/pods'\n";
        fs::create_dir_all(node.path("/var/lib/openvswitch/pods"))?;
        Booted::install(node, &[("ovnkube-node.service.d/options.conf", manifests)])?;
        for end in [Booted::power_off, Booted::cut_power, Booted::power_off] {
            let booted = Booted::start(node)?;
            status(&booted, "ovnkube-node.service", "serving")
                .with_context(|| node.server_log().unwrap_or_default())?;
            is_up(&booted, "ovnkube-node.service")?;
            kubelet_runs(&booted)?;
            booted.run(["ip", "addr", "show", "dev", "ovn-k8s-mp0"])?;
            end(booted)?;
        }
        Ok(())
    });
}

fn tunnels_end_at(node: &Node, wanted: &str) -> Result<()> {
    eventually(&format!("tunnels end at {wanted}"), BOOT, || {
        let address = node.vsctl(["get", "Open_vSwitch", ".", "external_ids:ovn-encap-ip"])?;
        ensure!(address.trim().trim_matches('"') == wanted, "{address} {}", node.server_log()?);
        Ok(())
    })
}

/// DHCP gives another address, a cloud's machine is stopped and started, a disk is cloned.
#[test]
fn row_74_tunnels_end_at_the_address_that_the_node_has_now_unless_an_administrator_said_another() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.vsctl("remove Open_vSwitch . external_ids ovn-encap-ip".split(' '))?;
        give_address(node, "192.0.2.10")?;
        node.start_server()?;
        tunnels_end_at(node, "192.0.2.10")?;
        give_address(node, "192.0.2.11")?;
        tunnels_end_at(node, "192.0.2.11")?;
        // Written to the database first, then to the log.
        eventually("the log has it", BOOT, || {
            ensure!(
                node.server_log()?.contains("this node's address for tunnels has changed"),
                "{}",
                node.server_log()?
            );
            Ok(())
        })?;
        eventually("other nodes are told", BOOT, || {
            let encaps = lab.central.sbctl(["--bare", "--columns=ip", "list", "Encap"])?;
            ensure!(encaps.contains("192.0.2.11"), "{encaps}");
            Ok(())
        })?;

        node.server.stop()?;
        give_address(node, "192.0.2.12")?;
        node.start_server()?;
        tunnels_end_at(node, "192.0.2.12")?;

        // An administrator's value stays, also at the next start.
        node.vsctl("set Open_vSwitch . external_ids:ovn-encap-ip=192.0.2.99".split(' '))?;
        node.server.stop()?;
        give_address(node, "192.0.2.13")?;
        let looks = || {
            let log = node.server_log()?;
            anyhow::Ok(log.matches("Open vSwitch's database has what ovn-controller needs").count())
        };
        let before = looks()?;
        node.start_server()?;
        eventually("the server has looked", BOOT, || {
            ensure!(looks()? > before, "{}", node.server_log()?);
            Ok(())
        })?;
        tunnels_end_at(node, "192.0.2.99")
    });
}
