//! The programs that the plugin talks to are running but silent: no call may hang.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash as _, Hasher as _},
    io::{BufRead as _, BufReader, ErrorKind},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Outcome, Pod,
    faults::{AT_ONCE, SHORTLY, Site, failed_with, row},
    node::SERVER_SOCKET,
    process::allow_descriptors,
};
use serde_json::Value;
use tokio::net::UnixStream;

const DATABASE: &str = "/run/openvswitch/db.sock";
/// The directory of the locks that keep calls for one interface apart.
const CALLS: &str = "/run/ovn-kubernetes/cni/calls";
const PERL: &str = "/usr/bin/perl";
/// Limits of row 63 with a hanging server: `SOON` for DEL and STATUS, `CHECKED` for CHECK.
const SOON: Duration = Duration::from_secs(2);
const CHECKED: Duration = Duration::from_secs(5);
/// How long the plugin waits for the database's answer, and what a busy machine adds.
const DATABASE_GRACE: Duration = Duration::from_secs(16);

/// Connects until the kernel's backlog is full; the connections stay unaccepted as long as they
/// live.
fn fill_backlog(socket: &Path) -> Result<Vec<UnixStream>> {
    // Each unaccepted connection costs this process a descriptor.
    allow_descriptors()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut waiting = Vec::new();
        loop {
            match UnixStream::connect(socket).await {
                Ok(stream) => waiting.push(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(waiting),
                Err(error) => return Err(error).context(format!("{} connections", waiting.len())),
            }
        }
    })
}

fn within(limit: Duration, outcome: &Outcome) -> Result<()> {
    ensure!(outcome.duration < limit, "it took {:?}: {}", outcome.duration, outcome.stdout);
    Ok(())
}

/// An attached pod, with the result of its ADD.
fn attached(site: &Site<'_>) -> Result<(Pod, Value)> {
    let pod = site.new_pod()?;
    let result = site.add(&pod)?.success()?;
    Ok((pod, result))
}

// --- 63: the server hangs
// ----------------------------------------------------------------------------------

#[test]
fn row_63_no_call_hangs_with_a_server_that_is_stopped_and_whose_backlog_is_full() {
    row(63).within(Duration::from_secs(60)).test(|site| {
        let (runtime, (gone, _), (checked, result)) =
            (site.node.runtime(), attached(site)?, attached(site)?);
        let waiting = site.new_pod()?;
        site.node.server.pause()?;
        let backlog = fill_backlog(&site.node.path(SERVER_SOCKET))?;
        ensure!(backlog.len() >= 128, "a backlog of {} connections", backlog.len());
        for what in ["there", "gone already"] {
            let outcome = site.del(&gone)?;
            outcome.success().context(what)?;
            within(SOON, &outcome)?;
            site.nothing_of(&gone)?;
        }
        let outcome = runtime.check(&checked, &result)?;
        failed_with(&outcome, 11, &["node-local server", "hangs"])?;
        within(CHECKED, &outcome)?;
        // For a minute a silent server counts as one that restarts.
        runtime.status()?.success()?;
        site.node.forget_server()?;
        let outcome = runtime.status()?;
        failed_with(&outcome, 50, &["node-local server", "hangs"])?;
        within(SOON, &outcome)?;
        let outcome = runtime.gc(&[&site.bystanders[0], &site.bystanders[1], &checked])?;
        outcome.success()?;
        within(SOON, &outcome)?;
        let outcome = site.add_within(2, &waiting)?;
        site.failed(&waiting, &outcome, 11, &["stage annotation"])?;
        within(SHORTLY, &outcome)?;

        // Now the backlog has room, but no process accepts.
        drop(backlog);
        site.node.server.resume()?;
        site.until_healthy()?;
        site.node.server.pause()?;
        let outcome = runtime.check(&checked, &result)?;
        failed_with(&outcome, 11, &["node-local server", "hangs"])?;
        within(CHECKED, &outcome)?;
        // The server may have written its stamp again.
        let _ = site.node.forget_server();
        let outcome = runtime.status()?;
        failed_with(&outcome, 50, &["node-local server"])?;
        within(SOON, &outcome)?;
        let outcome = site.del(&checked)?;
        outcome.success()?;
        within(SOON, &outcome)?;
        site.node.server.resume()
    });
}

// --- 64: the database hangs
// --------------------------------------------------------------------------------

#[test]
fn row_64_no_call_hangs_with_a_database_that_is_stopped_and_whose_backlog_is_full() {
    row(64).traffic_may_stop().within(Duration::from_secs(150)).test(|site| {
        let (runtime, (gone, _), (checked, result)) =
            (site.node.runtime(), attached(site)?, attached(site)?);
        for is_full in [false, true] {
            let waiting = site.new_pod()?;
            site.node.ovsdb_server.pause()?;
            let backlog =
                if is_full { fill_backlog(&site.node.path(DATABASE))? } else { Vec::new() };
            // At the same time, because each of them waits.
            let adding = site.start_add_within(3, &waiting)?;
            let deleting = runtime.call("DEL", Some(&gone)).start()?;
            let collecting = {
                let valid = serde_json::json!([]);
                let runtime = runtime
                    .with("cniVersion", "1.1.0".into())
                    .with("cni.dev/valid-attachments", valid);
                runtime.call("GC", None).start()?
            };
            let outcome = runtime.check(&checked, &result)?;
            failed_with(&outcome, 11, &["database of Open vSwitch"])?;
            within(DATABASE_GRACE, &outcome)?;
            for call in [deleting, collecting] {
                let outcome = call.wait()?;
                failed_with(&outcome, 11, &["database of Open vSwitch"])?;
                within(DATABASE_GRACE, &outcome)?;
            }
            let outcome = adding.wait()?;
            failed_with(&outcome, 11, &["stage"])?;
            within(DATABASE_GRACE, &outcome)?;
            let outcome = runtime.status()?;
            failed_with(&outcome, 51, &["database of Open vSwitch"])?;
            within(SHORTLY, &outcome)?;
            drop(backlog);
            site.node.ovsdb_server.resume()?;
            site.until_healthy()?;
            site.del(&waiting)?.success()?;
        }
        site.del(&gone)?.success()?;
        site.nothing_of(&gone)?;
        site.del(&checked)?.success().map(drop)
    });
}

// --- 65: strangers
// -----------------------------------------------------------------------------------------

/// Listens on an abstract name, fills its own backlog, prints "ready", and stays.
const HOLD: &str = r#"
    use Socket; use Fcntl;
    my $name = pack_sockaddr_un("\0$ARGV[0]");
    socket(my $listener, PF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
    bind($listener, $name) or die "bind: $!";
    listen($listener, 0) or die "listen: $!";
    my @waiting;
    while (1) {
        socket(my $stream, PF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
        fcntl($stream, F_SETFL, O_NONBLOCK);
        connect($stream, $name) or last;
        push @waiting, $stream;
    }
    $| = 1; print "ready\n"; sleep 3600;
"#;

/// An unprivileged process of the host's network namespace that holds the abstract name by which
/// earlier versions kept calls for `eth0` of this pod apart.
fn stranger(site: &Site<'_>, pod: &Pod) -> Result<Child> {
    let mut hasher = DefaultHasher::new();
    (pod.sandbox.as_str(), "eth0").hash(&mut hasher);
    let name = format!("ovn-k8s-cni/v{:014x}", hasher.finish() >> 8);
    let mut command = site.node.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", PERL, "-e", HOLD, &name]);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    BufReader::new(child.stdout.as_mut().context("a pipe")?).read_line(&mut said)?;
    ensure!(said == "ready\n", "{said:?}");
    Ok(child)
}

#[test]
fn row_65_a_stranger_that_listens_where_calls_were_kept_apart_holds_nobody_up() {
    row(65).test(|site| {
        let (pod, new) = (site.attached_pod()?, site.new_pod()?);
        let mut strangers = [stranger(site, &pod)?, stranger(site, &new)?];
        let ended = (|| {
            for outcome in [site.del(&pod)?, site.add(&new)?, site.del(&new)?] {
                outcome.success()?;
                within(AT_ONCE, &outcome)?;
            }
            Ok(())
        })();
        strangers
            .iter_mut()
            .try_for_each(|child| child.kill().and_then(|()| child.wait()).map(drop))?;
        ended
    });
}

#[test]
fn row_65_a_stranger_cannot_reach_where_calls_are_kept_apart_and_nothing_stays_there() {
    row(65).test(|site| {
        let pod = site.new_pod_without_annotation()?;
        let adding = site.node.runtime().call("ADD", Some(&pod)).start()?;
        site.are_waited_for(std::slice::from_ref(&pod))?;
        let directory = site.node.path(CALLS);
        let files =
            || Ok::<_, anyhow::Error>(fs::read_dir(&directory)?.collect::<Result<Vec<_>, _>>()?);
        let held = files()?;
        ensure!(held.len() == 1, "{held:?}");
        let metadata = fs::metadata(&directory)?;
        ensure!((metadata.uid(), metadata.mode() & 0o7777) == (0, 0o700), "{metadata:?}");
        let file = held[0].file_name().into_string().map_err(|name| anyhow::anyhow!("{name:?}"))?;
        for attempt in [
            format!("echo D >{CALLS}/{file}"),
            format!("mkfifo {CALLS}/x"),
            format!("ls {CALLS}"),
            format!("flock {CALLS} true"),
        ] {
            let script = [
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "sh",
                "-c",
                &attempt,
            ];
            ensure!(site.node.run(script).is_err(), "a stranger may {attempt}");
        }
        site.del(&pod)?.success()?;
        adding.wait()?.failure()?;
        ensure!(files()?.is_empty(), "{:?}", files()?);
        Ok(())
    });
}

#[test]
fn row_65_a_directory_that_is_not_roots_alone_is_not_used() {
    row(65).test(|site| {
        let pod = site.attached_pod()?;
        let directory = site.node.path(CALLS);
        for (owner, mode) in [(65534, 0o700), (0, 0o777)] {
            chown(&directory, Some(owner), None)?;
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode))?;
            for outcome in [site.del(&pod)?, site.add(&pod)?] {
                outcome.success()?;
                within(AT_ONCE, &outcome)?;
            }
            ensure!(fs::read_dir(&directory)?.next().is_none(), "files were made there");
        }
        let log =
            fs::read_to_string(site.node.path("/var/log/openvswitch/ovn-k8s-cni-overlay.log"))?;
        ensure!(
            log.contains("has owner 65534 and mode 0700, not 0 and 0700"),
            "the log does not say why:\n{log}"
        );
        chown(&directory, Some(0), None)?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).map_err(Into::into)
    });
}
