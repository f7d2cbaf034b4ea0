//! A cluster of three databases by the entry point of the image, `conf/image/ovnkube.sh`, as the
//! chart runs it: each member is process 1 of its own "container", with a directory of its own,
//! which outlives it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use integration::{Daemon, command, eventually, inside, mounts};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

/// An election takes one to two seconds, the removal of a replaced member five to ten.
const SOON: Duration = Duration::from_secs(60);
const SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";
const DATABASE: &str = "OVN_Northbound";
const MEMBERS: [usize; 3] = [1, 2, 3];

#[test]
fn a_cluster_of_databases_outlives_the_loss_of_a_member_of_its_disk_of_the_leader_and_of_all_at_once()
 {
    inside(|| {
        let cluster = Cluster::new()?;
        // The others only join: without the first, there is no cluster.
        cluster.start(2)?;
        cluster.start(3)?;
        eventually("the others wait for a cluster", SOON, || {
            MEMBERS[1..].iter().try_for_each(|&member| {
                let row = cluster.row(member)?;
                ensure!(row["connected"] == false, "{row}");
                Ok(())
            })
        })?;
        cluster.start(1)?;
        cluster.all_are_connected()?;
        cluster.write("at-first")?;

        // A follower is lost, and comes back.
        let leader = cluster.leader()?;
        let follower =
            MEMBERS.into_iter().find(|&member| member != leader).context("a follower")?;
        cluster.kill(follower)?;
        cluster.write("without-a-follower")?;
        cluster.start(follower)?;
        cluster.has(follower, "without-a-follower")?;

        // The leader is told to end: another one leads.
        cluster.stop(leader)?;
        cluster.write("with-another-leader")?;
        ensure!(cluster.leader()? != leader);
        cluster.start(leader)?;
        cluster.has(leader, "with-another-leader")?;

        // The founder loses its disk: it joins the cluster, and does not found another.
        let before = cluster.row(1)?["cid"].clone();
        cluster.kill(1)?;
        cluster.lose_disk(1)?;
        cluster.start(1)?;
        cluster.has(1, "with-another-leader")?;
        ensure!(cluster.row(1)?["cid"] == before, "it is of another cluster: {}", cluster.row(1)?);
        cluster.has_three_members()?;
        // So one member may be lost again.
        cluster.kill(2)?;
        cluster.write("after-the-replacement")?;
        cluster.start(2)?;

        // A loss of power everywhere.
        MEMBERS.into_iter().try_for_each(|member| cluster.kill(member))?;
        MEMBERS.into_iter().try_for_each(|member| cluster.start(member))?;
        cluster.all_are_connected()?;
        MEMBERS.into_iter().try_for_each(|member| cluster.has(member, "after-the-replacement"))?;
        cluster.write("in-the-end")
    });
}

#[test]
fn the_founder_without_its_disk_founds_nothing_while_the_others_do_not_answer() {
    inside(|| {
        let cluster = Cluster::new()?;
        MEMBERS.into_iter().try_for_each(|member| cluster.start(member))?;
        cluster.all_are_connected()?;
        cluster.write("before")?;
        MEMBERS.into_iter().try_for_each(|member| cluster.kill(member))?;
        cluster.lose_disk(1)?;
        cluster.start(1)?;
        let waits =
            "waiting for tcp:127.0.0.2:6641 tcp:127.0.0.3:6641, to ask whether there is a cluster";
        cluster.says(1, waits)?;
        ensure!(!cluster.file(1).exists());
        // It can be told to end meanwhile.
        cluster.stop(1)?;
        cluster.start(1)?;
        cluster.start(2)?;
        cluster.start(3)?;
        cluster.has(1, "before")
    });
}

#[test]
fn a_file_that_is_not_this_members_is_refused_and_the_others_go_on() {
    inside(|| {
        let cluster = Cluster::new()?;
        MEMBERS.into_iter().try_for_each(|member| cluster.start(member))?;
        cluster.all_are_connected()?;
        let file = cluster.file(3);
        let (path, kept) = (file.to_string_lossy(), file.with_extension("kept"));
        let files = [
            (
                vec!["create-cluster", &path, SCHEMA, "tcp:127.0.0.3:6643"],
                "and the member at tcp:127.0.0.1:6641 is of",
            ),
            (
                vec!["create-cluster", &path, SCHEMA, "tcp:127.0.0.9:6643"],
                "is of the member at tcp:127.0.0.9:6643, and this node is at tcp:127.0.0.3:6643",
            ),
            (
                vec!["create", &path, SCHEMA],
                "is of a database without a cluster; to make the first member of a cluster of it",
            ),
        ];
        for (make, message) in files {
            cluster.stop(3)?;
            fs::rename(&file, &kept)?;
            run("ovsdb-tool", make)?;
            let before = fs::read(&file)?;
            cluster.start(3)?;
            cluster.has_ended(3)?;
            cluster.says(3, message)?;
            ensure!(fs::read(&file)? == before, "the file has changed");
            cluster.write("without-the-third")?;
            cluster.has(1, "without-the-third")?;
            fs::rename(&kept, &file)?;
            cluster.start(3)?;
            cluster.all_are_connected()?;
        }

        // Nor is a member's file that of a database with one address.
        cluster.stop(3)?;
        cluster.members[2].set_environment(environment(3, &address(3)));
        cluster.start(3)?;
        cluster.has_ended(3)?;
        cluster.says(3, "is of a member of a cluster, and this database has one address")
    });
}

#[test]
fn rows_are_written_while_the_disk_of_a_member_is_full_and_it_has_them_once_there_is_room() {
    inside(|| {
        let cluster = Cluster::new()?;
        let disk = root(3).join("var/lib/openvswitch");
        fs::create_dir_all(&disk)?;
        run("mount", ["-t", "tmpfs", "-o", "size=512k", "tmpfs", &disk.to_string_lossy()])?;
        MEMBERS.into_iter().try_for_each(|member| cluster.start(member))?;
        cluster.all_are_connected()?;
        cluster.write("with-room")?;
        let ballast = disk.join("ballast");
        // As much as goes in.
        let full =
            fs::write(&ballast, vec![0; 1 << 20]).err().context("there is no end of the disk")?;
        ensure!(full.kind() == std::io::ErrorKind::StorageFull, "{full}");
        for number in 0..40 {
            cluster.write(&format!("without-room-{number}"))?;
        }
        cluster.says(3, "No space left on device")?;
        fs::remove_file(&ballast)?;
        cluster.kill(3)?;
        cluster.start(3)?;
        // Open vSwitch 3.1 does not read any more what it has written by halves: the member joins
        // as a new one.
        cluster.has(3, "without-room-39")
    });
}

/// Where a database has one address, the entry point has it run by ovn-ctl.
#[test]
fn a_database_with_one_address_keeps_its_rows_when_its_container_is_another_one() {
    inside(|| {
        let cluster = Cluster::new()?;
        let directory = |name: &str| root(1).join(name).to_string_lossy().into_owned();
        let mut environment = environment(1, &address(1));
        for (variable, name) in [
            ("OVN_RUNDIR", "var/run/ovn"),
            ("OVN_LOGDIR", "var/log/ovn"),
            ("OVN_DBDIR", "var/lib/openvswitch"),
            ("OVN_SYSCONFDIR", "etc"),
        ] {
            fs::create_dir_all(directory(name))?;
            environment.push((variable.to_owned(), directory(name)));
        }
        cluster.members[0].set_environment(environment);
        cluster.start(1)?;
        eventually("a row is written", SOON, || {
            run(
                "ovn-nbctl",
                ["--timeout=10", &format!("--db={}", address(1)), "--may-exist", "ls-add", "kept"],
            )
        })?;
        cluster.stop(1)?;
        cluster.start(1)?;
        cluster.has(1, "kept")?;
        cluster.kill(1)?;
        cluster.start(1)?;
        cluster.has(1, "kept")
    });
}

struct Cluster {
    members: [Daemon; 3],
}

impl Cluster {
    fn new() -> Result<Self> {
        run("ip", ["link", "set", "lo", "up"])?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf/image/ovnkube.sh");
        for member in MEMBERS {
            let share = root(member).join("usr/share");
            fs::create_dir_all(&share)?;
            std::os::unix::fs::symlink("/usr/share/ovn", share.join("ovn"))?;
        }
        let members = MEMBERS.map(|member| {
            let log = Path::new(mounts::LOGS).join(format!("member{member}.out"));
            let daemon = Daemon::new(
                format!("member{member}"),
                log,
                || Ok(Command::new("unshare")),
                [
                    "--fork",
                    "--pid",
                    "--mount-proc",
                    "--kill-child",
                    &script.to_string_lossy(),
                    "nb-ovsdb",
                ]
                .map(str::to_owned),
            );
            daemon.set_environment(environment(member, &addresses()));
            daemon
        });
        Ok(Self { members })
    }

    fn start(&self, member: usize) -> Result<()> {
        let daemon = &self.members[member - 1];
        // What it says is what it says from now on.
        fs::create_dir_all(mounts::LOGS)?;
        fs::write(daemon.log(), "")?;
        daemon.spawn()
    }

    /// As a kubelet ends a pod.
    fn stop(&self, member: usize) -> Result<()> {
        self.end(member, Signal::SIGTERM)
    }

    /// As the power goes.
    fn kill(&self, member: usize) -> Result<()> {
        self.end(member, Signal::SIGKILL)
    }

    /// Process 1 of the member gets the signal. With it, the kernel ends all others.
    fn end(&self, member: usize, signal: Signal) -> Result<()> {
        let daemon = &self.members[member - 1];
        let parent = daemon.running_pid()?;
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
        kill(Pid::from_raw(children.trim().parse().context("the script")?), signal)?;
        self.has_ended(member)
    }

    fn has_ended(&self, member: usize) -> Result<()> {
        let daemon = &self.members[member - 1];
        eventually(&format!("member {member} has ended"), SOON, || {
            ensure!(daemon.end()?.is_some(), "it runs");
            Ok(())
        })
    }

    fn lose_disk(&self, member: usize) -> Result<()> {
        let directory = root(member).join("var/lib/openvswitch");
        fs::remove_dir_all(&directory)?;
        fs::create_dir(&directory).map_err(Into::into)
    }

    fn file(&self, member: usize) -> PathBuf {
        root(member).join("var/lib/openvswitch/ovnnb_db.db")
    }

    /// What a member says of itself.
    fn row(&self, member: usize) -> Result<Value> {
        let query = format!(
            r#"["_Server",{{"op":"select","table":"Database","where":[["name","==","{DATABASE}"]],"columns":["cid","connected","leader"]}}]"#
        );
        let answer =
            run("ovsdb-client", ["--timeout=5".into(), "query".into(), address(member), query])?;
        let answer: Value = serde_json::from_str(&answer)?;
        Ok(answer[0]["rows"][0].clone())
    }

    fn all_are_connected(&self) -> Result<()> {
        eventually("all members are connected", SOON, || {
            MEMBERS.into_iter().try_for_each(|member| {
                let row = self.row(member)?;
                ensure!(row["connected"] == true, "{member}: {row}");
                Ok(())
            })
        })
    }

    fn leader(&self) -> Result<usize> {
        eventually("one member leads", SOON, || {
            let leads = |member: &usize| self.row(*member).is_ok_and(|row| row["leader"] == true);
            match MEMBERS.into_iter().filter(leads).collect::<Vec<_>>()[..] {
                [leader] => Ok(leader),
                ref leaders => bail!("{leaders:?} lead"),
            }
        })
    }

    /// A member that has lost its disk is a new one; the one that it was has been taken out.
    fn has_three_members(&self) -> Result<()> {
        eventually("the members that are gone are not of the cluster any more", SOON, || {
            let servers = self.servers(self.leader()?)?;
            ensure!(servers.len() == 3, "{servers:#?}");
            Ok(())
        })
    }

    /// The members that one of them knows.
    fn servers(&self, member: usize) -> Result<Vec<String>> {
        let control = root(member).join("var/run/ovn/ovnnb_db.ctl");
        let target = format!("--target={}", control.display());
        let status = run("ovs-appctl", [target, "cluster/status".into(), DATABASE.into()])?;
        let (_, servers) = status.split_once("Servers:\n").context("a list of servers")?;
        Ok(servers.lines().map(str::to_owned).collect())
    }

    /// A switch, by way of the member that leads. Until there is one, ovn-nbctl gives up.
    fn write(&self, name: &str) -> Result<()> {
        eventually(&format!("{name} is written"), SOON, || {
            let db = format!("--db={}", addresses());
            run("ovn-nbctl", ["--timeout=10", &db, "--may-exist", "ls-add", name]).map(drop)
        })
    }

    /// The member answers, and has this switch.
    fn has(&self, member: usize, name: &str) -> Result<()> {
        eventually(&format!("member {member} has {name}"), SOON, || {
            let db = format!("--db={}", address(member));
            let switches = run(
                "ovn-nbctl",
                ["--timeout=5".into(), "--no-leader-only".into(), db, "ls-list".into()],
            )?;
            ensure!(switches.contains(&format!("({name})")), "{switches}");
            Ok(())
        })
    }

    fn says(&self, member: usize, words: &str) -> Result<()> {
        eventually(&format!("member {member} says {words:?}"), SOON, || {
            let said = fs::read_to_string(self.members[member - 1].log())?;
            ensure!(said.contains(words), "{said}");
            Ok(())
        })
    }
}

fn root(member: usize) -> PathBuf {
    Path::new(mounts::LAB).join(format!("member{member}"))
}

fn address(member: usize) -> String {
    format!("tcp:127.0.0.{member}:6641")
}

fn addresses() -> String {
    MEMBERS.map(address).join(",")
}

fn environment(member: usize, north: &str) -> Vec<(String, String)> {
    let root = root(member).to_string_lossy().into_owned();
    let variables = [
        ("OVN_NORTH", north.to_owned()),
        ("K8S_NODE_IP", format!("127.0.0.{member}")),
        ("OVNKUBE_ROOT", root),
    ];
    variables.map(|(name, value)| (name.to_owned(), value)).into()
}

fn run(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String> {
    command::output(Command::new(program).args(arguments))
}
