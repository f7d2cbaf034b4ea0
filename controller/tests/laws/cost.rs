//! Law 5: what one pod costs does not depend on how many there are.

use controller::observation::{Observation, Seen};

use crate::{
    cluster::{all_nodes, all_pods, config, node, pod, pod_key},
    database::Northbound,
    running::Running,
};

const PODS_OF_A_NODE: u32 = 100;
const EVENTS: u32 = 40;

/// What an event costs, on average.
#[derive(Debug)]
struct Cost {
    rows: f64,
    transactions: f64,
    /// Computed by this thread, which is the controller's and its connection's.
    microseconds: u64,
}

/// Pods that come and go in a cluster of so many others.
async fn cost(pods: u32) -> Cost {
    let northbound = Northbound::start();
    let mut controller = Running::start(northbound.endpoint(), config());
    let on = |number: u32| 1 + number / PODS_OF_A_NODE;
    controller.observe(all_nodes((1..=on(pods)).map(node)));
    controller.observe(all_pods((0..pods).map(|number| pod(number, on(number), 0))));
    controller.converged().await;

    let count = |controller: &Running| {
        (controller.counted("ovnkube_controller_nb_rows_written_total"), controller.counted("ovnkube_controller_nb_transactions_total"))
    };
    let (rows, transactions) = count(&controller);
    let begun = cpu_time();
    for event in 0..EVENTS {
        let number = pods - 1 - event / 2;
        let seen = if event % 2 == 0 { Seen::Deleted(pod_key(number)) } else { Seen::Applied(pod(number, on(number), event)) };
        controller.observe(Observation::Pods(seen));
        let total = controller.transactions();
        let wanted = total.get() + 1;
        controller.reaches("the pod's rows", |progress| progress.converged && total.get() >= wanted).await;
    }
    let computed = cpu_time() - begun;
    let (rows_now, transactions_now) = count(&controller);
    let average = |total: f64| total / f64::from(EVENTS);
    Cost {
        rows: average(rows_now - rows),
        transactions: average(transactions_now - transactions),
        microseconds: computed / 1000 / u64::from(EVENTS),
    }
}

/// What this thread has computed, in nanoseconds (first field of /proc/thread-self/schedstat).
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn law_5_a_pod_costs_the_same_among_a_hundred_and_among_ten_thousand() {
    let (few, many) = (cost(100).await, cost(10_000).await);
    eprintln!("{few:?}\n{many:?}");
    for cost in [&few, &many] {
        // The port and the set of its switch that holds it; to remove it takes the set alone.
        assert!(cost.rows <= 2.0 && cost.transactions <= 1.0, "{cost:?}");
    }
    assert!(many.microseconds < few.microseconds * 3 / 2 + 100, "{few:?} {many:?}");
}
