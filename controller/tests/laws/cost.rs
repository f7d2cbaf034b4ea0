//! Law 5: the cost of one pod does not depend on the number of pods, and foreign rows are cheap.

use std::time::Duration;

use controller::watch_event::{Seen, WatchEvent};
use nix::time::{ClockId, clock_gettime};
use ovsdb::{Condition, Connection, Mutation, NamedUuid, Row, Transaction};

use crate::{
    cluster::{all_nodes, all_pods, config, node, pod, pod_key},
    database::Northbound,
    running::Running,
};

const PODS_OF_A_NODE: u32 = 100;
/// Half of the events remove a pod, half bring it back. An even number, many enough for a median.
const EVENTS: u32 = 80;

/// A cluster with `pods` pods, of which some come and go.
struct Cluster {
    pods: u32,
    controller: Running,
    /// CPU time for each pod that went, and for each that came.
    gone: Vec<Duration>,
    come: Vec<Duration>,
    northbound: Northbound,
}

/// Rows and transactions per event on average, and the median of the CPU time.
#[derive(Debug)]
struct Cost {
    rows: f64,
    transactions: f64,
    gone: Duration,
    come: Duration,
}

impl Cluster {
    async fn of(pods: u32) -> Self {
        let northbound = Northbound::start();
        let mut controller = Running::without_services(northbound.endpoint(), config());
        controller.observe(all_nodes((1..=node_of(pods)).map(node)));
        controller.observe(all_pods((0..pods).map(|number| pod(number, node_of(number), 0))));
        controller.converged().await;
        Self { pods, controller, gone: Vec::new(), come: Vec::new(), northbound }
    }

    async fn happen(&mut self, event: u32) {
        let number = self.pods - 1 - event / 2;
        let goes = event.is_multiple_of(2);
        let seen = if goes {
            Seen::Deleted(pod_key(number))
        } else {
            Seen::Applied(pod(number, node_of(number), event))
        };
        let total = self.controller.transactions();
        let wanted = total.get() + 1;
        let begun = computed();
        self.controller.observe(WatchEvent::Pods(seen));
        self.controller
            .reaches("the pod's rows", |progress| progress.converged && total.get() >= wanted)
            .await;
        let took = computed() - begun;
        if goes { self.gone.push(took) } else { self.come.push(took) }
    }

    fn counted(&self) -> (f64, f64) {
        let count =
            |what: &str| self.controller.counted(&format!("ovnkube_controller_nb_{what}_total"));
        (count("rows_written"), count("transactions"))
    }

    fn cost(self, (rows, transactions): (f64, f64)) -> Cost {
        let (rows_now, transactions_now) = self.counted();
        let average = |total: f64| total / f64::from(EVENTS);
        Cost {
            rows: average(rows_now - rows),
            transactions: average(transactions_now - transactions),
            gone: median(self.gone),
            come: median(self.come),
        }
    }
}

fn node_of(pod: u32) -> u32 {
    1 + pod / PODS_OF_A_NODE
}

/// CPU time of this thread so far. All controllers and their connections run on it, and the time of
/// other programs does not count.
pub(crate) fn computed() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

pub(crate) fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}

/// A busy machine makes the same work slower: caches are cold and a core is shared. So the two
/// clusters take turns, to be slowed down alike. The median is compared: work that grows with the
/// cluster is in each event.
#[tokio::test]
async fn law_5_a_pod_costs_the_same_among_a_hundred_and_among_ten_thousand() {
    let (mut few, mut many) = (Cluster::of(100).await, Cluster::of(10_000).await);
    let before = (few.counted(), many.counted());
    for event in 0..EVENTS {
        few.happen(event).await;
        many.happen(event).await;
    }
    let (few, many) = (few.cost(before.0), many.cost(before.1));
    eprintln!("{few:?}\n{many:?}");
    for cost in [&few, &many] {
        // The port, and the set of its switch that holds it; a removal changes only the set.
        assert!(cost.rows <= 2.0 && cost.transactions <= 1.0, "{cost:?}");
    }
    let same = |few: Duration, many: Duration| many < few * 3 / 2 + Duration::from_micros(100);
    assert!(same(few.gone, many.gone) && same(few.come, many.come), "{few:?} {many:?}");
}

/// To find the owner of a switch, all of its ports were visited, each time a port came whose row
/// followed the switch's.
#[tokio::test]
async fn a_port_that_comes_to_a_switch_of_others_costs_no_more_than_one_that_comes_to_ours() {
    let mut cluster = Cluster::of(2 * PODS_OF_A_NODE).await;
    let connection = cluster.northbound.open().await;
    let mut transaction = Transaction::new();
    transaction.insert("Logical_Switch", Row::new().with("name", "foreign"));
    connection.transact(transaction).await.unwrap();
    let switches = ["foreign", "n1"];
    for switch in switches {
        add_foreign(&connection, switch, 0..5000).await;
    }
    let mut took = [Vec::new(), Vec::new()];
    for event in 0..EVENTS {
        for (place, switch) in (0..).zip(switches) {
            let begun = computed();
            add_foreign(&connection, switch, 10_000 + event..10_001 + event).await;
            // When its own transaction is answered, the controller has seen the port.
            cluster.happen(2 * event + place).await;
            took[usize::from(place == 1)].push(computed() - begun);
        }
    }
    let [foreign, ours] = took.map(median);
    eprintln!("{foreign:?} {ours:?}");
    assert!(foreign < ours * 6 / 5 + Duration::from_micros(100), "{foreign:?} {ours:?}");
}

/// Adds foreign ports to a switch.
async fn add_foreign(connection: &Connection, switch: &str, numbers: std::ops::Range<u32>) {
    let mut transaction = Transaction::new();
    let port = |number: u32| Row::new().with("name", format!("{switch}-{number}"));
    let ports: Vec<NamedUuid> =
        numbers.map(|number| transaction.insert("Logical_Switch_Port", port(number))).collect();
    transaction.mutate(
        "Logical_Switch",
        Condition::equal("name", switch),
        vec![Mutation::insert("ports", ports)],
    );
    connection.transact(transaction).await.unwrap();
}
