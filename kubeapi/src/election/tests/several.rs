//! Processes that stand for one Lease or for two, against an API server that only stores Leases.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tokio::time::sleep;

use super::*;
use crate::{connection::Connection, scripted};

const MASTER: &str = "ovn-kubernetes-master";
const GLOBAL: &str = "ovn-kubernetes-master-global";

/// The stored Leases, by name.
#[derive(Default)]
struct Kept {
    leases: BTreeMap<String, Value>,
    written: u64,
    /// Lease and holder, one entry for each change of a holder.
    holders: Vec<(String, String)>,
}

impl Kept {
    fn write(&mut self, name: &str, mut lease: Value) -> Value {
        self.written += 1;
        lease["metadata"]["resourceVersion"] = self.written.to_string().into();
        let holder =
            |lease: &Value| lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        if self.leases.get(name).map(holder).unwrap_or_default() != holder(&lease) {
            self.holders.push((name.to_owned(), holder(&lease)));
        }
        self.leases.insert(name.to_owned(), lease.clone());
        lease
    }
}

#[derive(Clone)]
struct Cluster {
    client: Connection,
    kept: Arc<Mutex<Kept>>,
}

impl Cluster {
    async fn start() -> Self {
        let (mut api, client) = scripted::start().await;
        let kept = Arc::<Mutex<Kept>>::default();
        let of_server = Arc::clone(&kept);
        tokio::spawn(async move {
            loop {
                let asked = api.asked().await;
                if asked.is_watch() {
                    asked.status(403, "leases is forbidden: may not watch").await;
                    continue;
                }
                let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
                let name = asked
                    .path
                    .trim_end_matches('?')
                    .strip_prefix(PATH)
                    .unwrap()
                    .trim_start_matches('/')
                    .to_owned();
                let answer = {
                    let mut kept = of_server.lock().unwrap();
                    let before = kept.leases.get(&name).cloned();
                    match (asked.method.as_str(), before) {
                        ("GET", Some(lease)) => Ok(lease),
                        ("PUT", Some(lease))
                            if lease["metadata"]["resourceVersion"]
                                != body["metadata"]["resourceVersion"] =>
                        {
                            Err(409)
                        }
                        ("PUT", Some(_)) => Ok(kept.write(&name, body)),
                        ("POST", _) => {
                            let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                            if kept.leases.contains_key(&name) {
                                Err(409)
                            } else {
                                Ok(kept.write(&name, body))
                            }
                        }
                        _ => Err(404),
                    }
                };
                match answer {
                    Ok(lease) => asked.json(&lease).await,
                    Err(code) => asked.status(code, "no").await,
                }
            }
        });
        Self { client, kept }
    }

    fn stand(&self, identity: &str, leases: &[&str]) -> Process {
        self.stand_with(identity, leases, &OwnLease::Wait)
    }

    fn stand_with(&self, identity: &str, leases: &[&str], own_lease: &OwnLease) -> Process {
        self.stand_after(&Leadership::always(), identity, leases, own_lease)
    }

    fn stand_after(
        &self,
        ready: &Leadership,
        identity: &str,
        leases: &[&str],
        own_lease: &OwnLease,
    ) -> Process {
        let mut candidates = leases.iter().map(|lease| ElectionConfig {
            lease: (*lease).to_owned(),
            own_lease: own_lease.clone(),
            ..candidate(identity)
        });
        let candidates =
            ElectionConfigs { first: candidates.next().unwrap(), second: candidates.next() };
        let metrics = Metrics::register(&Registry::new(), "test").unwrap();
        let (leadership, elector) =
            LeaderElector::start_after(ready, self.client.clone(), candidates, metrics);
        Process { leadership, elector }
    }

    /// Another process takes the Lease.
    fn take(&self, lease: &str) {
        self.kept.lock().unwrap().write(lease, held_by("m9", "0", 9));
    }

    fn holders(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.kept.lock().unwrap().holders)
    }
}

struct Process {
    leadership: Leadership,
    elector: LeaderElector,
}

impl Process {
    fn leads(&self) -> bool {
        self.leadership.is_leader()
    }
}

async fn leads_within(process: &Process, seconds: u64, others: &[&Process]) {
    for _ in 0..seconds * 10 {
        let leaders =
            others.iter().filter(|other| other.leads()).count() + usize::from(process.leads());
        assert!(leaders <= 1, "{leaders} processes lead");
        if process.leads() {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("it does not lead: {:?}", process.leadership.place());
}

/// Each of them stood for a Lease of its own, and both wrote to one database.
#[tokio::test(start_paused = true)]
async fn a_process_of_both_roles_and_a_controller_alone_never_lead_together() {
    let cluster = Cluster::start().await;
    let (both, alone) = (cluster.stand("m1", &[MASTER, GLOBAL]), cluster.stand("m2", &[GLOBAL]));
    sleep(Duration::from_secs(1)).await;
    // The process that acquired the Lease first leads.
    let (first, second) = if both.leads() { (both, alone) } else { (alone, both) };
    for _ in 0..3000 {
        assert!(
            first.leads() && !second.leads(),
            "{:?} {:?}",
            first.leadership.place(),
            second.leadership.place()
        );
        sleep(Duration::from_millis(100)).await;
    }
    first.elector.release().await;
    leads_within(&second, 40, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_of_both_roles_leads_with_both_leases_and_lets_go_of_the_first_one_last() {
    let cluster = Cluster::start().await;
    let alone = cluster.stand("m2", &[GLOBAL]);
    leads_within(&alone, 1, &[]).await;
    let both = cluster.stand("m1", &[MASTER, GLOBAL]);
    // It has the first Lease before another process asks for it.
    sleep(Duration::from_secs(1)).await;
    let manager = cluster.stand("m3", &[MASTER]);
    sleep(Duration::from_secs(200)).await;
    assert!(alone.leads() && !both.leads() && !manager.leads());
    let says = both.leadership.place();
    let held = "m2 holds the lease ovn/ovn-kubernetes-master-global, \
                and this process the one that comes first: no process has both";
    assert_eq!(
        says,
        LeadershipState::Unknown(held.to_owned()),
        "it is no standby: it keeps others from leading"
    );
    alone.elector.release().await;
    leads_within(&both, 40, &[&manager]).await;
    // Both are renewed.
    sleep(Duration::from_secs(1000)).await;
    assert!(both.leads() && !manager.leads());
    assert!(matches!(manager.leadership.place(), LeadershipState::StandsBy(_)));

    cluster.holders();
    both.leadership.resign();
    assert!(!both.leads());
    both.elector.release().await;
    let gave_up = [GLOBAL, MASTER].map(|lease| (lease.to_owned(), String::new()));
    assert_eq!(cluster.holders(), gave_up);
    leads_within(&manager, 40, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn losing_either_lease_ends_leading() {
    for lease in [MASTER, GLOBAL] {
        let cluster = Cluster::start().await;
        let mut both = cluster.stand("m1", &[MASTER, GLOBAL]);
        leads_within(&both, 1, &[]).await;
        cluster.take(lease);
        let lost = both.elector.lost().await;
        assert_eq!(lost, Lost::Taken { lease: format!("ovn/{lease}"), holder: "m9".to_owned() });
        sleep(Duration::from_millis(1)).await;
        assert!(!both.leads());
        // It renews no Lease any more, and stops when it is told to.
        both.elector.release().await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_leases_of_a_dead_leader_run_out_together() {
    let cluster = Cluster::start().await;
    let dead = cluster.stand("m1", &[MASTER, GLOBAL]);
    leads_within(&dead, 1, &[]).await;
    let second = cluster.stand("m2", &[MASTER, GLOBAL]);
    sleep(Duration::from_secs(1)).await;
    drop(dead);
    let began = Instant::now();
    leads_within(&second, 200, &[]).await;
    assert!(began.elapsed() <= Duration::from_secs(137 + 1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_started_again_has_both_leases_at_once() {
    let cluster = Cluster::start().await;
    let dead = cluster.stand("m1", &[MASTER, GLOBAL]);
    leads_within(&dead, 1, &[]).await;
    drop(dead);
    let again = cluster.stand_with("m1", &[MASTER, GLOBAL], &OwnLease::Resume(None));
    leads_within(&again, 1, &[]).await;
}

/// A pid file shows only that no other process with this pid file is alive. A process with other
/// roles has another pid file.
#[tokio::test(start_paused = true)]
async fn a_pidfile_does_not_take_the_lease_of_a_living_process_of_the_same_name() {
    let mark = Mark { boot: "b1".to_owned(), file: "25:7".to_owned(), machine: None };
    let with_lock = |held: bool| {
        OwnLease::Resume(Some(HostLock { mark: mark.clone(), held: watch::channel(held).1 }))
    };
    let cluster = Cluster::start().await;
    let alone = cluster.stand_with("m1", &[GLOBAL], &with_lock(true));
    leads_within(&alone, 1, &[]).await;
    let both = cluster.stand_with("m1", &[MASTER, GLOBAL], &with_lock(false));
    sleep(Duration::from_secs(300)).await;
    assert!(alone.leads() && !both.leads());
    drop((alone, both));
    let again = cluster.stand_with("m1", &[GLOBAL], &with_lock(true));
    leads_within(&again, 1, &[]).await;
}

/// Of two control planes, one had no database. It could win, and then held up everything.
#[tokio::test(start_paused = true)]
async fn a_process_that_is_not_ready_leaves_the_lease_to_another_one_and_stands_by() {
    let cluster = Cluster::start().await;
    let (ready, begin) = Leadership::once("there is no database");
    let first = cluster.stand_after(&ready, "m1", &[MASTER], &OwnLease::Wait);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(cluster.holders(), []);
    assert!(
        matches!(first.leadership.place(), LeadershipState::Unknown(why) if why.contains("no database"))
    );

    let second = cluster.stand("m2", &[MASTER]);
    second.leadership.won().await;
    begin();
    sleep(Duration::from_secs(600)).await;
    assert!(
        matches!(first.leadership.place(), LeadershipState::StandsBy(who) if who.contains("m2"))
    );
    second.leadership.resign();
    second.elector.release().await;
    first.leadership.won().await;
}
