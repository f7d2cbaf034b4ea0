//! One node: a mount namespace and a network namespace in which every program finds its default
//! paths, and the node's daemons.

use std::{
    ffi::OsStr,
    fmt, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use contract::paths::{CNI_CONF_DIR, CNI_CONF_FILE, SERVER_LOG};
use ipnet::IpNet;

pub use contract::paths::SERVER_SOCKET;

use crate::{
    Daemon, Datapath, Pod, Versions, answer::Answers, central, command, eventually, executable,
    fabric, heap, holder::Holder, mounts, netns, versions::last_word,
};

/// Directory of pod manifests that the node server watches, on the node.
pub const MANIFESTS: &str = "/run/pod-manifests";

/// A node of the lab.
#[derive(Debug)]
pub struct Node {
    /// Name of the node, of its chassis and of its logical switch: `node1`.
    pub name: String,
    /// 1 for `node1`.
    pub index: u32,
    /// One subnet per address family.
    pub subnets: Vec<IpNet>,
    /// MTU of its pods, in bytes.
    pub mtu: u32,
    /// Open vSwitch's database server; started again with [`Node::start_ovsdb_server`].
    pub ovsdb_server: Daemon,
    /// The switch; started again with [`Node::start_vswitchd`].
    pub vswitchd: Daemon,
    /// OVN's agent; started again with [`Node::start_ovn_controller`].
    pub ovn_controller: Daemon,
    /// The server under test, `ovnkube --init-node`; not running until [`Node::start_server`].
    pub server: Daemon,
    /// The answers of all plugin calls that have ended.
    pub answers: Answers,
    /// Used instead of the directory of manifests, if set.
    pods: OnceLock<Box<dyn PodSink>>,
    /// Lines of ip(8)'s batches: what `breth0` is given, now and after each start of ovs-vswitchd.
    uplink: Mutex<Vec<String>>,
    holder: Holder,
}

/// Where the server of a node learns its pods from, if not from a directory of manifests.
pub trait PodSink: fmt::Debug + Send + Sync {
    /// Creates or replaces the pod that this manifest describes.
    fn put(&self, pod: &Pod, manifest: &str) -> Result<()>;

    /// Deletes it.
    fn remove(&self, pod: &Pod) -> Result<()>;
}

impl Node {
    /// Creates the namespaces; nothing runs in them yet.
    pub(crate) fn create(index: u32, subnets: Vec<IpNet>, mtu: u32) -> Result<Self> {
        let name = format!("node{index}");
        let holder = Holder::start(&name)?;
        let pid = holder.pid;
        let daemon = |program: &'static str, arguments: Vec<String>| {
            let log = Path::new(mounts::LOGS).join(&name).join(format!("{program}.out"));
            Daemon::new(
                format!("{program} on {name}"),
                log,
                move || Ok(enter(pid, program)),
                arguments,
            )
        };
        let ovs = ["--pidfile", "--log-file", "-vconsole:err"].map(str::to_owned);
        let ovn = [
            "--pidfile=/var/run/ovn/ovn-controller.pid",
            "--log-file=/var/log/ovn/ovn-controller.log",
            "-vconsole:err",
        ]
        .map(str::to_owned);
        let database = ["/etc/openvswitch/conf.db", "--remote=punix:/var/run/openvswitch/db.sock"]
            .map(str::to_owned);
        let controller = ["unix:/var/run/openvswitch/db.sock"].map(str::to_owned);
        let options: Vec<String> =
            Datapath::of_lab().switch_options().iter().copied().map(str::to_owned).collect();
        let heap_file = Path::new(mounts::LAB).join(format!("heap-{name}"));
        let server_log = Path::new(mounts::LOGS).join(&name).join("ovnkube.out");
        let server_arguments =
            ["--init-node", &name, "--pod-manifests", MANIFESTS].map(str::to_owned);
        Ok(Self {
            ovsdb_server: daemon("ovsdb-server", [&database[..], &ovs].concat()),
            vswitchd: daemon("ovs-vswitchd", [&controller[..], &options, &ovs].concat()),
            ovn_controller: daemon("ovn-controller", [&controller[..], &ovn].concat()),
            server: Daemon::new(
                format!("{} on {name}", executable::SERVER),
                server_log,
                move || {
                    let mut server = enter(pid, executable::under_test(executable::SERVER)?);
                    server.envs(heap::environment(&heap_file)?);
                    // The installed server's allocator gives free memory back. With one arena
                    // and a fixed trim threshold glibc's does so, too (mallopt(3)).
                    server.envs([("MALLOC_ARENA_MAX", "1"), ("MALLOC_TRIM_THRESHOLD_", "131072")]);
                    Ok(server)
                },
                server_arguments,
            ),
            name,
            index,
            subnets,
            mtu,
            answers: Answers::default(),
            pods: OnceLock::new(),
            uplink: Mutex::new(vec![
                format!("addr replace {}/24 dev breth0", fabric::address(index)),
                "link set breth0 up".to_owned(),
                "link set eth0 up".to_owned(),
            ]),
            holder,
        })
    }

    /// Starts Open vSwitch and ovn-controller and connects the node's NIC.
    pub(crate) fn start(&self) -> Result<()> {
        fs::create_dir_all(self.path(MANIFESTS))?;
        self.install_plugin()?;
        self.create_ovs_database()?;
        self.start_ovsdb_server()?;
        self.configure_ovs()?;
        // In this order: ovn-controller waits a second before it looks again for a bridge that was
        // missing.
        self.start_vswitchd()?;
        self.start_ovn_controller()
    }

    /// Writes an empty `conf.db`, as on a freshly installed node.
    pub fn create_ovs_database(&self) -> Result<()> {
        let file = "/etc/openvswitch/conf.db";
        fs::remove_file(self.path(file)).or_else(|error| {
            if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
        })?;
        self.run(["ovsdb-tool", "create", file, "/usr/share/openvswitch/vswitch.ovsschema"])
            .map(drop)
    }

    /// Describes the node to Open vSwitch and OVN and creates its bridges; does not wait for
    /// ovs-vswitchd.
    pub fn configure_ovs(&self) -> Result<()> {
        let Self { name, index, mtu, .. } = self;
        let encap = fabric::address(*index);
        let southbound = central::SOUTHBOUND;
        let datapath = Datapath::of_lab().name();
        // Without fixed addresses Open vSwitch derives the address of a bridge from the UUID of its
        // row, and a recreated bridge gets another one.
        let (uplink, integration) =
            (format!("0a:00:00:01:00:{index:02x}"), format!("0a:00:00:02:00:{index:02x}"));
        // Without `mtu_request` Open vSwitch fits the MTU of br-int's own interface to its ports a
        // moment later, and no two snapshots are equal.
        let settings = format!(
            "--no-wait init -- set Open_vSwitch . external_ids:system-id={name} external_ids:hostname={name} \
             external_ids:ovn-remote={southbound} external_ids:ovn-encap-type=geneve \
             external_ids:ovn-encap-ip={encap} external_ids:ovn-bridge-datapath-type={datapath} \
             -- add-br breth0 -- set Bridge breth0 datapath_type={datapath} other_config:hwaddr={uplink} \
             -- add-port breth0 eth0 \
             -- add-br br-int -- set Bridge br-int datapath_type={datapath} fail_mode=secure \
             other_config:hwaddr={integration} \
             -- set Interface br-int mtu_request={mtu}"
        );
        self.vsctl(settings.split_whitespace()).map(drop)
    }

    /// Starts Open vSwitch's database server (again) and waits until it listens.
    pub fn start_ovsdb_server(&self) -> Result<()> {
        let socket = self.path("/run/openvswitch/db.sock");
        self.ovsdb_server.start(|| central::accepts(&socket))
    }

    /// Starts ovs-vswitchd (again), waits for the bridges, and gives `breth0` the addresses and
    /// routes of the node, which its interface lost with the old process.
    pub fn start_vswitchd(&self) -> Result<()> {
        self.vswitchd.start(|| Ok(()))?;
        self.vsctl([
            "wait-until",
            "Interface",
            "breth0",
            "ofport>0",
            "--",
            "wait-until",
            "Interface",
            "br-int",
            "ofport>0",
        ])?;
        self.avoid_all_zero_snat()?;
        self.configure_uplink(&self.uplink().join("\n"))?;
        // As on the wire: the userspace datapath computes no checksums that the kernel leaves to
        // the NIC.
        if !Datapath::of_lab().leaves_checksums() {
            self.run(["ethtool", "-K", "eth0", "tx", "off"])?;
            self.run(["ethtool", "-K", "breth0", "tx", "off"])?;
        }
        Ok(())
    }

    /// Gives the node an IPv6 address beside its own.
    pub(crate) fn add_v6(&self) -> Result<()> {
        // `nodad`: without it the address is unusable for about a second.
        self.add_to_uplink(format!(
            "addr replace {}/64 dev breth0 nodad",
            fabric::address_v6(self.index)
        ))
    }

    /// Gives `breth0` something more, a line of ip(8)'s batches; also after each start of
    /// ovs-vswitchd.
    pub(crate) fn add_to_uplink(&self, line: String) -> Result<()> {
        self.configure_uplink(&line)?;
        self.uplink().push(line);
        Ok(())
    }

    /// Gives `breth0` its addresses and routes again, as the host's network configuration does when
    /// a link comes back.
    pub fn restore_uplink(&self) -> Result<()> {
        self.configure_uplink(&self.uplink().join("\n"))
    }

    fn configure_uplink(&self, batch: &str) -> Result<()> {
        command::output_with_input(self.command("ip").args(["-batch", "-"]), &format!("{batch}\n"))
            .map(drop)
    }

    fn uplink(&self) -> MutexGuard<'_, Vec<String>> {
        self.uplink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In its userspace datapath Open vSwitch before 3.1.3 aborts (`assertion conn->conn_type ==
    /// CT_CONN_TYPE_DEFAULT failed in conn_update_state()`) when the addresses and ports of a
    /// connection come back that was committed with all-zero SNAT. ovn-controller commits like that
    /// wherever the datapath is capable of it. So this one says that it is not.
    fn avoid_all_zero_snat(&self) -> Result<()> {
        // A switch that was started again has numbers of ports in the database before it answers,
        // and answers before it has the bridge.
        let is_needed = eventually("ovs-vswitchd has br-int", Duration::from_secs(45), || {
            let is_needed =
                Datapath::of_lab() == Datapath::Netdev && self.switch_version()? < [3, 1, 3];
            if is_needed {
                self.run([
                    "ovs-appctl",
                    "dpif/set-dp-features",
                    "br-int",
                    "ct_zero_snat",
                    "false",
                ])?;
            }
            Ok(is_needed)
        })?;
        if !is_needed {
            return Ok(());
        }
        // ovs-vswitchd writes the capabilities when it sees the row first. There is none before
        // ovn-controller runs.
        let rows = self.vsctl(["--bare", "--columns=_uuid", "list", "Datapath"])?;
        rows.split_whitespace().try_for_each(|row| {
            self.vsctl(["set", "Datapath", row, "capabilities:ct_zero_snat=false"]).map(drop)
        })
    }

    /// Starts ovn-controller (again); does not wait until it is connected.
    pub fn start_ovn_controller(&self) -> Result<()> {
        self.ovn_controller.spawn()
    }

    /// Starts the server under test (again) and waits until its socket accepts connections.
    pub fn start_server(&self) -> Result<()> {
        let socket = self.path(SERVER_SOCKET);
        self.server.start(|| central::accepts(&socket))
    }

    /// Writes the server's configuration file, with these subnets of the node and those of the
    /// whole cluster.
    pub fn configure_server(&self, subnets: &[IpNet]) -> Result<()> {
        let subnets = subnets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let cluster = "10.244.0.0/16,fd00:10:244::/48";
        let text = format!("[default]\nnode-subnets={subnets}\ncluster-subnets={cluster}\n");
        Ok(fs::write(self.path("/etc/openvswitch/ovn_k8s.conf"), text)?)
    }

    /// Removes the stamp that the server leaves: as if none had run since the node was started, so
    /// STATUS does not forgive its absence.
    pub fn forget_server(&self) -> Result<()> {
        let stamp = self.path(Path::new(SERVER_SOCKET).with_extension("synced"));
        fs::remove_file(&stamp).with_context(|| format!("remove {}", stamp.display()))
    }

    /// Links the plugin into `/opt/cni/bin`. If it is not built, the lab still attaches pods by
    /// hand.
    fn install_plugin(&self) -> Result<()> {
        let Ok(plugin) = executable::under_test(executable::PLUGIN) else { return Ok(()) };
        symlink(plugin, self.path(mounts::PLUGINS).join(executable::PLUGIN))
            .context("install the plugin in /opt/cni/bin")
    }

    /// A further daemon of this node, not running yet. Its log is beside the others.
    pub fn new_daemon(
        &self,
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<String>>,
    ) -> Daemon {
        let (pid, program) = (self.holder.pid, program.into());
        let file = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = Path::new(mounts::LOGS).join(&self.name).join(format!("{file}.out"));
        Daemon::new(
            format!("{file} on {}", self.name),
            log,
            move || Ok(enter(pid, &program)),
            arguments,
        )
    }

    /// The same in a UTS namespace of its own, in which the host has the node's name.
    pub fn new_named_daemon(
        &self,
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<String>>,
    ) -> Daemon {
        let (pid, name, program) = (self.holder.pid, self.name.clone(), program.into());
        let file = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = Path::new(mounts::LOGS).join(&self.name).join(format!("{file}.out"));
        let command = move || {
            let mut command = enter(pid, "unshare");
            command
                .args(["--uts", "--", "sh", "-c", "hostname \"$0\" && exec \"$@\"", &name])
                .arg(&program);
            Ok(command)
        };
        Daemon::new(format!("{file} on {}", self.name), log, command, arguments)
    }

    /// Runs a program with its arguments on the node, to its end; its standard output.
    pub fn run(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String> {
        let mut words = words.into_iter();
        let program = words.next().context("a command has a program")?;
        command::output(self.command(program).args(words))
    }

    /// Adds a connection to the kernel's table, as if its packets had been seen: `-s ADDRESS -d
    /// ADDRESS` and more in the words of conntrack(8). No packet filter is needed for that.
    pub fn track(&self, connection: &str) -> Result<()> {
        let common = "conntrack -I -p tcp --sport 40000 --dport 443 --state ESTABLISHED -t 600";
        self.run(common.split_whitespace().chain(connection.split_whitespace()))
            .map(drop)
            .context("install conntrack with: apt-get install conntrack")
    }

    /// Runs a shell script on the node; it ends at its first failure.
    pub fn shell(&self, script: &str) -> Result<String> {
        self.run(["sh", "-euc", script])
    }

    /// The log of the node's server so far.
    pub fn server_log(&self) -> Result<String> {
        let file = self.path(SERVER_LOG);
        fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))
    }

    /// The CNI configuration that the server writes for runtimes.
    pub fn cni_conf(&self) -> PathBuf {
        self.path(CNI_CONF_DIR).join(CNI_CONF_FILE)
    }

    /// `ovs-vsctl` on the node, with a time limit of 30 s.
    pub fn vsctl(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String> {
        command::output(self.command("ovs-vsctl").arg("--timeout=30").args(arguments))
    }

    /// Runs a program with its arguments in the network namespace of `pod` and the node's mount
    /// namespace.
    pub fn run_in_pod(
        &self,
        pod: &Pod,
        words: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<String> {
        let mut words = words.into_iter();
        let program = words.next().context("a command has a program")?;
        command::output(self.pod_command(pod, program).args(words))
    }

    /// A command on the node, to be completed by the caller. nsenter(1) executes `program`, so the
    /// process has the id of the program itself.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        enter(self.holder.pid, program)
    }

    /// The same, in the network namespace of `pod`.
    pub fn pod_command(&self, pod: &Pod, program: impl AsRef<OsStr>) -> Command {
        nsenter(self.holder.pid, &self.path(&pod.netns), program)
    }

    /// Runs `work` in the node's namespaces, on a thread of its own, which passes them on to what
    /// it starts.
    ///
    /// # Errors
    /// If the namespaces cannot be entered, or `work` fails.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        netns::on_node(self.holder.pid, work)
    }

    /// Where the lab's root sees the node's file `path` (absolute, as the node sees it).
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        // /var/run is an absolute link: from outside it would lead to the lab's own /run.
        let path = path
            .strip_prefix("/var/run")
            .map_or(path.to_path_buf(), |rest| Path::new("/run").join(rest));
        Path::new("/proc")
            .join(self.holder.pid.to_string())
            .join("root")
            .join(path.strip_prefix("/").unwrap_or(&path))
    }

    /// Process id of the holder of the node's namespaces, for `nsenter -t PID -m -n`.
    pub fn pid(&self) -> u32 {
        self.holder.pid
    }

    /// Versions of the daemons that run on the node, as they report them.
    pub fn versions(&self) -> Result<Versions> {
        let switch = self.run(["ovs-appctl", "--target=ovs-vswitchd", "version"])?;
        let controller = self.run(["ovn-appctl", "--target=ovn-controller", "version"])?;
        Ok(Versions { open_vswitch: last_word(&switch)?, ovn: last_word(&controller)? })
    }

    /// The version of the ovs-vswitchd that runs on the node, in numbers.
    pub fn switch_version(&self) -> Result<[u32; 3]> {
        let text = last_word(&self.run(["ovs-appctl", "--target=ovs-vswitchd", "version"])?)?;
        let numbers: Vec<u32> = text.split('.').map_while(|number| number.parse().ok()).collect();
        numbers.try_into().map_err(|_| anyhow!("not a version of Open vSwitch: {text}"))
    }

    /// A counter of ovs-vswitchd (`coverage/show`). Counters that are zero are not shown, and the
    /// kernel's datapath has none for packets.
    pub fn coverage(&self, counter: &str) -> Result<u64> {
        let counters = self.run(["ovs-appctl", "--target=ovs-vswitchd", "coverage/show"])?;
        let line = counters.lines().find(|line| line.split_whitespace().next() == Some(counter));
        let total = line.and_then(|line| line.rsplit(' ').next());
        total.map_or(Ok(0), |total| {
            total.parse().with_context(|| format!("the counter {counter}: {total}"))
        })
    }

    /// Creates the network namespaces of `pods`.
    pub fn add_namespaces(&self, pods: &[Pod]) -> Result<()> {
        netns::add(self.holder.pid, &names(pods))
    }

    /// Deletes the network namespaces of `pods`. The kernel removes the interfaces in them a moment
    /// later.
    pub fn remove_namespaces(&self, pods: &[Pod]) -> Result<()> {
        netns::remove(self.holder.pid, &names(pods))
    }

    /// Writes the pod's manifest, with its annotation, into [`MANIFESTS`]; replaces an older one
    /// atomically.
    pub fn write_manifest(&self, pod: &Pod) -> Result<()> {
        self.write_manifest_text(pod, &pod.manifest(Some(&pod.annotation())))
    }

    /// The same with any text.
    pub fn write_manifest_text(&self, pod: &Pod, text: &str) -> Result<()> {
        if let Some(pods) = self.pods.get() {
            return pods.put(pod, text);
        }
        let dir = self.path(MANIFESTS);
        // The server ignores hidden files, and so sees the manifest once it is complete.
        let hidden = dir.join(format!(".{}", pod.manifest_name()));
        fs::write(&hidden, text).with_context(|| format!("write {}", hidden.display()))?;
        fs::rename(&hidden, dir.join(pod.manifest_name())).context("put the manifest in place")
    }

    /// Writes manifests to `pods` from now on. The caller tells the server so.
    pub fn keep_pods_in(&self, pods: Box<dyn PodSink>) -> Result<()> {
        self.pods
            .set(pods)
            .ok()
            .with_context(|| format!("the pods of {} are kept elsewhere already", self.name))
    }

    /// Removes the pod's manifest.
    pub fn remove_manifest(&self, pod: &Pod) -> Result<()> {
        if let Some(pods) = self.pods.get() {
            return pods.remove(pod);
        }
        let file = self.path(MANIFESTS).join(pod.manifest_name());
        fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))
    }
}

fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(Pod::netns_name).collect()
}

fn enter(pid: u32, program: impl AsRef<OsStr>) -> Command {
    nsenter(pid, &PathBuf::from(format!("/proc/{pid}/ns/net")), program)
}

fn nsenter(pid: u32, netns: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--mount=/proc/{pid}/ns/mnt"))
        .arg(format!("--net={}", netns.display()))
        .arg("--")
        .arg(program);
    command
}
