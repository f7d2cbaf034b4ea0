//! `integration cluster`: a whole Kubernetes with two nodes, and a shell in it.

use std::{
    env, fs,
    io::{self, IsTerminal as _, Write as _},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use anyhow::{Context as _, Result};
use clap::Args;
use integration::{
    Cluster as Running, central,
    cluster::{GatewayMode, credentials::ADMIN, programs},
    connections::Server,
    executable, mounts,
    world::Machine,
};

use crate::exit_code;

mod compare;
mod reach;

/// Start a whole Kubernetes with two nodes, and give a shell with kubectl; the cluster ends with
/// the shell.
///
/// Without a terminal, standard input is a script that is run in the cluster; its exit status is
/// the command's.
#[derive(Debug, Args)]
pub(crate) struct Cluster {
    /// How many nodes.
    #[arg(long, default_value_t = 2)]
    nodes: u32,
    /// How packets leave the nodes for the world outside, and how they come in.
    #[arg(long, value_enum, default_value_t = GatewayMode::Shared)]
    gateway_mode: GatewayMode,
    /// Measure instead: how long pods take to be ready, with this network and with the plugins
    /// `bridge` and `host-local`, in turn.
    #[arg(long, value_name = "ROUNDS")]
    compare: Option<usize>,
    /// How many pods come at once, in turn.
    #[arg(
        long,
        value_name = "PODS,…",
        value_delimiter = ',',
        default_value = "1,20,50,100",
        requires = "compare"
    )]
    bursts: Vec<usize>,
}

impl Cluster {
    /// To be called in the lab's namespaces.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let began = Instant::now();
        // Standard error: standard output belongs to the script.
        let say = |text: &str| {
            let _ = writeln!(io::stderr(), "{:5.1} s  {text}", began.elapsed().as_secs_f64());
        };
        let blueprint = Running::of_nodes(self.nodes);
        // Pods that are measured look no names up.
        let blueprint = match self.compare {
            None => blueprint.dns().host_ports().forwarding().gateway(self.gateway_mode),
            Some(_) => blueprint,
        };
        let cluster = blueprint.build(&say)?;
        say(&format!("{} nodes are ready", self.nodes));
        if let Some(rounds) = self.compare {
            return compare::run(&cluster, rounds, &self.bursts).map(|()| ExitCode::SUCCESS);
        }
        cluster.route_to_pods()?;
        let _web = open_world(&cluster)?;
        let tools = write_tools(&cluster)?;
        let path = env::join_paths(
            [tools.clone(), programs::bin_dir()?]
                .into_iter()
                .chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())),
        )?;
        let mut shell = Command::new("bash");
        shell.env("PATH", path).env("KUBECONFIG", cluster.credentials.kubeconfig(ADMIN));
        // Those of OVN's tools, and of ovnkube.
        for (north, south) in [("OVN_NB_DB", "OVN_SB_DB"), ("OVN_NORTH", "OVN_SOUTH")] {
            shell.env(north, central::NORTHBOUND).env(south, central::SOUTHBOUND);
        }
        if io::stdin().is_terminal() {
            say("creating a Deployment over all nodes");
            eprintln!("\n{}\n{}", reach::show(&cluster)?, hints(&cluster));
            // The status of an interactive shell is that of its last command, and says nothing
            // about the cluster.
            shell
                .arg("--rcfile")
                .arg(tools.join("bashrc"))
                .arg("-i")
                .status()
                .context("start a shell")?;
            return Ok(ExitCode::SUCCESS);
        }
        let status = shell.arg("-s").status().context("start a shell")?;
        Ok(exit_code(status))
    }
}

/// Starts a server outside of the cluster, which tells its clients their addresses as it sees them.
fn open_world(cluster: &Running) -> Result<Server> {
    Ok(cluster.lab.mirroring_outside(Machine::Web, 80)?.0)
}

/// Writes a command for each node and each machine of the world, named as these, and the settings
/// of the shell.
fn write_tools(cluster: &Running) -> Result<PathBuf> {
    let directory = Path::new(mounts::LAB).join("bin");
    fs::create_dir_all(&directory)?;
    let nodes =
        cluster.nodes().map(|(node, _)| (node.name.clone(), format!("-t {} -m -n", node.pid())));
    let machines =
        Machine::ALL.map(|machine| (machine.name(), format!("--net={}", machine.namespace())));
    let machines = machines.map(|(name, namespaces)| (name.to_owned(), namespaces));
    for (name, namespaces) in nodes.chain(machines) {
        let file = directory.join(&name);
        let enter = format!("exec nsenter {namespaces} -- \"${{@:-bash}}\"");
        let text =
            format!("#!/bin/bash\n# Runs a command on {name}; without one, a shell.\n{enter}\n");
        fs::write(&file, text)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    }
    let program = executable::under_test(executable::SERVER)?;
    for name in [executable::SERVER, "kubectl-ovn"] {
        symlink(&program, directory.join(name))?;
    }
    let bashrc = "[ ! -r ~/.bashrc ] || . ~/.bashrc\nPS1='(cluster) \\w \\$ '\n\
                  source <(kubectl completion bash) 2>/dev/null\nalias k=kubectl\n";
    fs::write(directory.join("bashrc"), bashrc)?;
    Ok(directory)
}

fn hints(cluster: &Running) -> String {
    let (node, image) = (&cluster.lab.nodes[0].name, programs::AGNHOST);
    let logs = "/var/log/openvswitch";
    let world = cluster.lab.world();
    let [web, own] = [world.addresses(Machine::Web)[0], world.of_node(&cluster.lab.nodes[0])[0]];
    let lines = [
        ("kubectl get nodes -o wide".to_owned(), ""),
        ("kubectl get pods -o wide".to_owned(), "their addresses come from OVN"),
        (
            "ip=$(kubectl get pods -o jsonpath='{.items[3].status.podIP}')".to_owned(),
            "of one of them",
        ),
        ("kubectl exec deploy/web -- ping -c 3 $ip".to_owned(), "another reaches it"),
        ("kubectl exec deploy/web -- wget -qO- http://$ip:8080/hostname".to_owned(), ""),
        (
            "kubectl expose deployment web --port=80 --target-port=8080".to_owned(),
            "a Service over all of them",
        ),
        (
            "kubectl exec deploy/web -- nslookup web".to_owned(),
            "its name, from CoreDNS in this cluster",
        ),
        (
            "kubectl exec deploy/web -- curl -s http://web/hostname".to_owned(),
            "one of them answers",
        ),
        (
            format!(
                "{node} curl -s http://$(kubectl get svc web -o jsonpath='{{.spec.clusterIP}}')/hostname"
            ),
            "from the node, too",
        ),
        (
            format!("kubectl exec deploy/web -- curl -s --http0.9 http://{web}"),
            "a server outside of the cluster says which address it sees",
        ),
        (
            "kubectl exec deploy/web -- nslookup web.example.org".to_owned(),
            "its name, from a name server outside",
        ),
        (
            "kubectl expose deployment web --name=out --type=NodePort --port=80 --target-port=8080"
                .to_owned(),
            "",
        ),
        (
            "port=$(kubectl get svc out -o jsonpath='{.spec.ports[0].nodePort}')".to_owned(),
            "the same on each node",
        ),
        (
            format!("client curl -s http://{own}:$port/hostname"),
            "a client outside; `router`, `web` and `client` alone are shells",
        ),
        ("kubectl scale deployment web --replicas=20".to_owned(), ""),
        ("kubectl rollout status deployment web".to_owned(), ""),
        ("kubectl ovn status".to_owned(), "whether the network works, and if not, why"),
        (
            "kubectl ovn trace default/$(kubectl get pods -o jsonpath='{.items[0].metadata.name}') \
             svc/default/web --tcp 80"
                .to_owned(),
            "where a packet ends; diagnose, applied, policy explain and others: kubectl ovn --help",
        ),
        (
            "kubectl get pods -o yaml | grep pod-networks".to_owned(),
            "what the control plane tells the plugin",
        ),
        ("kubectl get nodes -o yaml | grep k8s.ovn.org".to_owned(), "a node's part of the network"),
        (
            "ovn-nbctl show".to_owned(),
            "the logical network, all of it written by the control plane",
        ),
        (
            format!("tail {}/kubernetes/ovnkube-master-1.log", mounts::LOGS),
            "the control plane's log",
        ),
        (format!("{node} ovs-vsctl show"), "the switch of a node; its name alone is a shell on it"),
        (format!("{node} tail {logs}/ovn-k8s-cni-overlay.log"), "the plugin's log"),
        (format!("{node} tail {logs}/ovnkube.log"), "the server's"),
        (
            format!(
                "kubectl delete deployment,service {0}; kubectl delete service out",
                reach::NAME
            ),
            "",
        ),
    ];
    let lines: String = lines
        .iter()
        .map(|(command, meaning)| format!("  {command:<62} {meaning}").trim_end().to_owned() + "\n")
        .collect();
    format!(
        "\nThis shell talks to the cluster. Try, in this order:\n\n{lines}\n\
         Images on the nodes: {image} (busybox and agnhost); nothing is downloaded. `exit` ends the cluster.\n"
    )
}
