//! The control plane's leader dies, stops, ends or has the wrong database, while 200 pods a second
//! come and go. API server and databases are real; most pods are on nodes without a kubelet, some
//! on a real one.

mod burst;
mod northbound;
mod other_cluster;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use integration::{
    Cluster, Daemon, central::Central, cluster::attached::is_ready, eventually, executable,
    faults::shim::Shim, mounts,
};

use burst::Burst;
use northbound::Passage;

const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/ovn-kubernetes/leases/ovn-kubernetes-master";
/// Appended to `LEASE`: the controller's Lease, without which a process of both roles does not
/// lead.
const OF_CONTROLLER: &str = "-global";
/// Duration, deadline and retry period of the Leases: client-go's defaults, so that a takeover fits
/// into a test.
const SHORT: [&str; 3] = [
    "--ha-election-lease-duration=15",
    "--ha-election-renew-deadline=10",
    "--ha-election-retry-period=2",
];
/// How soon a leader that was killed leads again on the same host (row 82).
const LEADS_AGAIN: Duration = Duration::from_secs(2);
/// How soon another one takes over with those durations (row 83).
const TAKES_OVER: Duration = Duration::from_secs(15);
/// What a busy API server adds at most: 16.2 to 16.7 s were measured at a load of 20.
const RETRY: Duration = Duration::from_secs(2);
/// How soon a control plane stands by after its start.
const STANDS_BY: Duration = Duration::from_secs(30);
/// What other work on the machine may add to a time.
const BUSY: Duration = Duration::from_secs(8);
const SETTLED: Duration = Duration::from_secs(90);

// --- 82
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_82_a_leader_that_is_killed_and_started_again_leads_at_once() {
    Cluster::of_nodes(1).test(|cluster| {
        let burst = Burst::under_way(cluster)?;
        best_is_within(LEADS_AGAIN, |round| {
            if round > 0 {
                burst.in_the_middle(cluster)?;
            }
            let before = leases(cluster)?;
            cluster.master.kill()?;
            let killed = Instant::now();
            cluster.master.spawn()?;
            eventually("it leads again", LEADS_AGAIN + BUSY, || {
                let now = leases(cluster)?;
                let is_new = |(now, before): (&Lease, &Lease)| {
                    now.holder == "master-1" && now.acquired != before.acquired
                };
                ensure!(now.iter().zip(&before).all(is_new), "a Lease is as it was: {now:?}");
                Ok(())
            })?;
            Ok(killed.elapsed())
        })?;
        burst.end(cluster)
    });
}

// --- 83
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_83_a_leader_that_is_killed_is_followed_by_another_as_soon_as_its_lease_allows() {
    Cluster::of_nodes(1).master_options(&SHORT).test(|cluster| {
        let second = stand_by(cluster)?;
        let burst = Burst::under_way(cluster)?;
        // In turn: who led is started again, and stands by for the other.
        let masters = [(&cluster.master, "master-1", 1), (&second, "master-2", 2)];
        best_is_within(TAKES_OVER + RETRY, |round| {
            let ((leader, ..), (standby, name, number)) =
                (masters[round % 2], masters[(round + 1) % 2]);
            if round > 0 {
                standby.spawn()?;
                eventually("it stands by", STANDS_BY, || cluster.master_is_ready(number))?;
                burst.in_the_middle(cluster)?;
            }
            leader.kill()?;
            let killed = Instant::now();
            eventually("the other leads", TAKES_OVER + BUSY, || is_held_by(cluster, name))?;
            Ok(killed.elapsed())
        })?;
        burst.end(cluster)?;
        second.stop()
    });
}

// --- 84
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_84_a_leader_that_was_stopped_past_its_lease_changes_nothing_any_more() {
    Cluster::of_nodes(1).master_options(&SHORT).test(|cluster| {
        let second = stand_by(cluster)?;
        let burst = Burst::under_way(cluster)?;
        cluster.master.pause()?;
        eventually("the other leads", Duration::from_secs(15) + BUSY, || {
            is_held_by(cluster, "master-2")
        })?;
        burst.in_the_middle(cluster)?;
        cluster.master.resume()?;
        eventually("the former leader ends", BUSY, || {
            ensure!(!cluster.master.is_running(), "it runs");
            Ok(())
        })?;
        burst.end(cluster)?;
        is_held_by(cluster, "master-2")?;
        second.stop()
    });
}

// --- 96
// ----------------------------------------------------------------------------------------------------

/// A hypervisor stops a machine with all its clocks: by them, the former leader still leads.
#[test]
fn row_96_a_leader_whose_machine_stood_still_past_its_lease_changes_nothing_any_more() {
    Cluster::of_nodes(1).master_options(&SHORT).test(|cluster| {
        let (clocks, passage) = (Shim::for_program(executable::SERVER)?, Passage::open()?);
        let master = &cluster.master;
        master.stop()?;
        master.set_environment(clocks.environment());
        let over_passage = format!("--nb-address={}", passage.endpoint());
        master.set_arguments(master.arguments().into_iter().chain([over_passage]));
        master.spawn()?;
        eventually("it leads", SETTLED, || cluster.master_is_ready(1))?;
        let second = stand_by(cluster)?;
        let burst = Burst::under_way(cluster)?;
        master.pause()?;
        let stands_still = Instant::now();
        eventually("the other leads", Duration::from_secs(15) + BUSY, || {
            is_held_by(cluster, "master-2")
        })?;
        burst.in_the_middle(cluster)?;
        let before = passage.transactions();
        ensure!(
            before.committed > 0,
            "the leader has written nothing over the passage: {before:?}"
        );
        clocks.set_clocks_back(stands_still.elapsed())?;
        master.resume()?;
        let resumed = Instant::now();
        eventually("the former leader ends", BUSY, || {
            ensure!(!master.is_running(), "it runs");
            Ok(())
        })?;
        let after = passage.transactions();
        eprintln!(
            "row 96: it stood still for {:?} and ended after {:?}; {before:?}, then {after:?}",
            resumed - stands_still,
            resumed.elapsed()
        );
        let log = master_log()?;
        ensure!(
            !log.contains("could not be renewed within"),
            "by its own clock its time was over:\n{log}"
        );
        ensure!(
            after.committed == before.committed,
            "it wrote after the other led: {before:?}, {after:?}"
        );
        burst.end(cluster)?;
        is_held_by(cluster, "master-2")?;
        second.stop()
    });
}

// --- 85
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_85_a_leader_that_is_told_to_end_finishes_what_is_under_way_and_lets_another_lead() {
    Cluster::of_nodes(1).test(|cluster| {
        let second = stand_by(cluster)?;
        let burst = Burst::under_way(cluster)?;
        let told = Instant::now();
        cluster.master.stop()?;
        eventually("the other leads", BUSY, || is_held_by(cluster, "master-2"))?;
        eprintln!("row 85: the other leads after {:?}", told.elapsed());
        // Then back to the first, while the second is busy.
        cluster.master.spawn()?;
        burst.in_the_middle(cluster)?;
        second.stop()?;
        eventually("the first leads again", BUSY, || is_held_by(cluster, "master-1"))?;
        burst.end(cluster)
    });
}

// --- 86
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_86_nothing_is_changed_in_the_database_of_another_zone() {
    Cluster::of_nodes(1).test(|cluster| {
        let of_zone = |zone: &str| {
            cluster.lab.central.nbctl([
                "set".to_owned(),
                "NB_Global".to_owned(),
                ".".to_owned(),
                format!("name={zone}"),
            ])
        };
        cluster.api.create(PODS, &burst::real_pod(0))?;
        cluster.pods.wait("the pod runs", SETTLED, |known| {
            ensure!(known.get("default/real-0").is_some_and(is_ready), "it does not");
            Ok(())
        })?;
        cluster.master.kill()?;
        of_zone("zone-7")?;
        // The database belongs to another zone: to this controller, none of its pods exists.
        cluster.api.delete(&format!("{PODS}/real-0?gracePeriodSeconds=0"))?;
        let transactions = Central::northbound_transactions()?;
        cluster.master.spawn()?;
        let says = eventually("/readyz says whose database it is", SETTLED, || {
            match cluster.master_is_ready(1) {
                Ok(()) => Err(anyhow!("it is ready")),
                Err(error) if error.to_string().contains("zone-7") => Ok(error.to_string()),
                Err(error) => Err(error),
            }
        })?;
        ensure!(says.contains("NB_Global.name"), "{says}");
        cluster.api.create("/api/v1/nodes", &burst::node(0))?;
        eventually("the new node has its subnet: the API server's half goes on", SETTLED, || {
            cluster.subnet_of(&burst::node_name(0))
        })?;
        let written = Central::northbound_transactions()? - transactions;
        ensure!(written == 0, "{written} transactions changed it");
        of_zone("global")?;
        eventually("it is ready", SETTLED, || cluster.master_is_ready(1))?;
        cluster.northbound_must_match()
    });
}

// --- what they have in common
// ------------------------------------------------------------------------------

/// Measures three times. The best shows the product, within `limit`; the others also show that the
/// burst, the API server and the databases share the machine.
fn best_is_within(limit: Duration, take: impl FnMut(usize) -> Result<Duration>) -> Result<()> {
    let times = (0..3).map(take).collect::<Result<Vec<_>>>()?;
    eprintln!("it leads after {times:?}");
    ensure!(times.iter().any(|time| *time <= limit), "{times:?} instead of {limit:?}");
    Ok(())
}

/// A Lease as it is now.
#[derive(Debug)]
struct Lease {
    holder: String,
    acquired: String,
}

fn lease(cluster: &Cluster, path: &str) -> Result<Lease> {
    let lease = cluster.api.read(path)?;
    let text = |name: &str| lease["spec"][name].as_str().unwrap_or_default().to_owned();
    Ok(Lease { holder: text("holderIdentity"), acquired: text("acquireTime") })
}

/// The Leases of both roles.
fn leases(cluster: &Cluster) -> Result<[Lease; 2]> {
    Ok([lease(cluster, LEASE)?, lease(cluster, &format!("{LEASE}{OF_CONTROLLER}"))?])
}

fn is_held_by(cluster: &Cluster, name: &str) -> Result<()> {
    let leases = leases(cluster)?;
    ensure!(leases.iter().all(|lease| lease.holder == name), "{leases:?}");
    Ok(())
}

/// The log of `master-1`.
fn master_log() -> Result<String> {
    Ok(fs::read_to_string(Path::new(mounts::LOGS).join("kubernetes/ovnkube-master-1.log"))?)
}

/// A second control plane, which stands by.
fn stand_by(cluster: &Cluster) -> Result<Daemon> {
    let second = cluster.another_master(2);
    second.spawn()?;
    eventually("the second stands by", STANDS_BY, || cluster.master_is_ready(2))?;
    is_held_by(cluster, "master-1")?;
    Ok(second)
}
