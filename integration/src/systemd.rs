//! A real systemd as the first process of a node. It starts the units of `conf/` as on a machine
//! that boots.
//!
//! It has its own namespaces for processes, mounts, control groups and the name of the host; the
//! network and the disks are the node's. Each boot begins with an empty `/run`. Open vSwitch and
//! OVN are units of the test, with the names and the order that distributions give them.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::{Daemon, Datapath, Node, command, eventually, executable, inside, mounts};

/// How long systemd may take until it answers, and how long a node may take until it is off.
const PATIENCE: Duration = Duration::from_secs(20);
/// Where a boot finds its units: on the node's disk, so that they survive it.
const UNITS: &str = "/var/lib/openvswitch/units";
/// systemd(1), where Debian and Fedora have it.
const PROGRAM: &str = "/lib/systemd/systemd";
/// The units of systemd's own that `default.target` needs; all others of the machine stay out.
const OWN_UNITS: [&str; 17] = [
    "basic.target",
    "final.target",
    "local-fs.target",
    "multi-user.target",
    "network-online.target",
    "network.target",
    "paths.target",
    "poweroff.target",
    "shutdown.target",
    "slices.target",
    "sockets.target",
    "sysinit.target",
    "systemd-poweroff.service",
    "timers.target",
    "umount.target",
    "exit.target",
    "systemd-exit.service",
];

/// Open vSwitch as its package starts it, but the kernel module is loaded already, or not there.
const OPEN_VSWITCH: &str = "[Unit]\nAfter=network.target\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -euc 'mkdir -p /run/openvswitch; \
    [ -e /etc/openvswitch/conf.db ] || \
    ovsdb-tool create /etc/openvswitch/conf.db /usr/share/openvswitch/vswitch.ovsschema; \
    ovsdb-server /etc/openvswitch/conf.db --remote=punix:/run/openvswitch/db.sock \
    --pidfile --log-file --detach; ovs-vsctl --no-wait init; \
    ovs-vswitchd unix:/run/openvswitch/db.sock OPTIONS --pidfile --log-file --detach'\n\
    [Install]\nWantedBy=multi-user.target\n";
const OVN_HOST: &str = "[Unit]\nAfter=openvswitch-switch.service\nRequires=openvswitch-switch.service\n\
    [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -euc 'mkdir -p /run/ovn; \
    ovn-controller unix:/run/openvswitch/db.sock --pidfile=/run/ovn/ovn-controller.pid --log-file --detach'\n\
    [Install]\nWantedBy=multi-user.target\n";
/// The unit of Kubernetes' packages with kubeadm's drop-in: its place in the order matters. In
/// place of the kubelet, a shell records its start.
const KUBELET: &str = "[Unit]\nWants=network-online.target\nAfter=network-online.target\n[Service]\n\
    ExecStart=/bin/sh -c 'echo started > /run/kubelet; exec sleep infinity'\nRestart=always\n\
    StartLimitInterval=0\nRestartSec=10\n\
    [Install]\nWantedBy=multi-user.target\n";

/// A node on which systemd runs, until this is dropped or the power is cut.
#[derive(Debug)]
pub struct Booted<'n> {
    node: &'n Node,
    systemd: Daemon,
}

impl<'n> Booted<'n> {
    /// Puts the units of `conf/` on the node's disk with those of the test, all enabled, and
    /// `drop_ins`: `UNIT.d/NAME.conf` and its text. The node's own daemons must not run.
    pub fn install(node: &Node, drop_ins: &[(&str, &str)]) -> Result<()> {
        ensure!(
            Path::new(PROGRAM).exists(),
            "{PROGRAM} is missing; install it with: integration/prerequisites.sh test"
        );
        let (units, wants) = (node.path(UNITS), node.path(UNITS).join("multi-user.target.wants"));
        fs::create_dir_all(&wants)?;
        for name in OWN_UNITS {
            symlink(Path::new("/lib/systemd/system").join(name), units.join(name))?;
        }
        symlink("multi-user.target", units.join("default.target"))?;
        let conf = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../conf"));
        let ours = ["ovnkube-node.service", "ovnkube-master.service"]
            .map(|name| (name, fs::read_to_string(conf.join(name))));
        let options = Datapath::of_lab().switch_options().join(" ");
        let mut all = vec![
            ("openvswitch-switch.service", OPEN_VSWITCH.replace("OPTIONS", &options)),
            ("ovn-host.service", OVN_HOST.to_owned()),
            ("kubelet.service", KUBELET.to_owned()),
        ];
        for (name, text) in ours {
            all.push((name, text.with_context(|| format!("conf/{name}"))?));
        }
        for (name, text) in all {
            fs::write(units.join(name), text)?;
            // What `systemctl enable` does for `WantedBy=multi-user.target`.
            symlink(Path::new("..").join(name), wants.join(name))?;
        }
        for (name, text) in drop_ins {
            let file = units.join(name);
            fs::create_dir_all(file.parent().context("a drop-in is in a directory")?)?;
            fs::write(file, text)?;
        }
        Ok(())
    }

    /// Switches the node on and returns as soon as systemd answers.
    pub fn start(node: &'n Node) -> Result<Self> {
        let script = boot_script(&node.name)?;
        let unshare = "--mount --pid --uts --ipc --fork --kill-child --propagation private";
        let words = unshare
            .split(' ')
            .map(str::to_owned)
            .chain(["--", "sh", "-euc", &script].map(str::to_owned));
        let systemd = node.new_daemon("unshare", words);
        systemd.spawn()?;
        let booted = Self { node, systemd };
        eventually("systemd answers", PATIENCE, || booted.systemctl(["list-jobs"]).map(drop))
            .with_context(|| fs::read_to_string(booted.systemd.log()).unwrap_or_default())?;
        Ok(booted)
    }

    /// Cuts the power: SIGKILL to systemd ends everything on the node, and no program can write
    /// anything any more.
    pub fn cut_power(self) -> Result<()> {
        let first = self.first()?;
        // The kernel kills the rest of the process namespace with its first process
        // (pid_namespaces(7)).
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(first),
            nix::sys::signal::Signal::SIGKILL,
        )?;
        eventually("the node is off", PATIENCE, || {
            ensure!(!self.systemd.is_running(), "unshare still waits");
            Ok(())
        })
    }

    /// Stops every unit, then the machine. Start no program on the node meanwhile: systemd pauses
    /// all processes there for a moment (SIGSTOP), nsenter(1) then pauses itself, too, and nothing
    /// continues it.
    pub fn power_off(self) -> Result<()> {
        // SIGRTMIN+4 starts `poweroff.target` (systemd(1)). From outside, so that no process enters
        // the node.
        command::output(self.node.command("kill").args([
            "-s",
            "RTMIN+4",
            &self.first()?.to_string(),
        ]))?;
        eventually("the node is off", PATIENCE, || {
            ensure!(
                !self.systemd.is_running(),
                "{}",
                fs::read_to_string(self.systemd.log()).unwrap_or_default()
            );
            Ok(())
        })
    }

    /// `systemctl` on the booted node.
    pub fn systemctl<'w>(&self, words: impl IntoIterator<Item = &'w str>) -> Result<String> {
        self.run(["systemctl", "--no-pager"].into_iter().chain(words))
    }

    /// Runs a program on the booted node.
    pub fn run<'w>(&self, words: impl IntoIterator<Item = &'w str>) -> Result<String> {
        let pid = self.first()?.to_string();
        command::output(
            self.node
                .command("nsenter")
                .args(["--target", &pid, "--all", "--", "timeout", "20"])
                .args(words),
        )
    }

    /// Properties of a unit: `show` of systemctl(1), one line each.
    pub fn property(&self, unit: &str, name: &str) -> Result<String> {
        Ok(self.systemctl(["show", "--value", "--property", name, unit])?.trim().to_owned())
    }

    /// Where the lab sees a file of the booted node.
    pub fn path(&self, path: &str) -> Result<PathBuf> {
        Ok(PathBuf::from(format!("/proc/{}/root", self.first()?))
            .join(path.trim_start_matches('/')))
    }

    /// Process id of systemd in the lab's namespace: the only child of unshare(1).
    fn first(&self) -> Result<i32> {
        let unshare = self.systemd.pid().context("the node is off")?;
        let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"))?;
        Ok(children.split_whitespace().next().context("systemd has not started")?.parse()?)
    }
}

impl Drop for Booted<'_> {
    fn drop(&mut self) {
        if let Ok(first) = self.first() {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(first),
                nix::sys::signal::Signal::SIGKILL,
            );
        }
    }
}

/// Script from the node's namespaces to systemd: a control group, an empty `/run`, the executable
/// under test as `/usr/bin/ovnkube`, the plugin in its place: no links, for a unit with a `/tmp` of
/// its own sees no executable below the lab's.
fn boot_script(name: &str) -> Result<String> {
    let (lab, group, server) =
        (mounts::LAB, inside::cgroup()?, executable::under_test(executable::SERVER)?);
    Ok(format!(
        "group=/sys/fs/cgroup; [ -e $group/cgroup.controllers ] || group=$group/unified
        group=$group/{group}; mkdir -p $group; group=$(mktemp -d $group/boot.XXXXXX); echo $$ > $group/cgroup.procs
        mount -t proc proc /proc
        mount --bind {lab} /mnt; mount -t tmpfs -o mode=0755 tmpfs /run; mkdir -p {lab} /run/lock /run/usr /run/work
        mount --move /mnt {lab}
        mount -t overlay -o lowerdir=/usr/bin,upperdir=/run/usr,workdir=/run/work overlay /usr/bin
        rm -f /usr/bin/ovnkube; touch /usr/bin/ovnkube; mount --bind {server} /usr/bin/ovnkube
        plugin=/opt/cni/bin/{plugin}; [ ! -L $plugin ] || cp --remove-destination $(readlink $plugin) $plugin
        hostname {name}; hostname >/run/hostname; [ ! -e /etc/hostname ] || mount --bind /run/hostname /etc/hostname
        mount -t tmpfs tmpfs /tmp
        exec unshare --cgroup sh -euc 'mount -t cgroup2 cgroup2 /sys/fs/cgroup
            exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=lab SYSTEMD_UNIT_PATH={UNITS} SYSTEMD_GENERATOR_PATH=/run/none \\
                SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/none {PROGRAM} --system --log-target=console --show-status=false'",
        server = server.display(),
        plugin = executable::PLUGIN
    ))
}
