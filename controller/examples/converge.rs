//! Benchmark: time and CPU that the controller takes from a known cluster to a northbound database
//! that shows it.
//!
//! Starts a private `ovsdb-server` with an empty database, and a controller that observes 500 nodes
//! and 10,000 pods with annotations. Then starts another controller, which finds everything right,
//! and adds pods one by one. Fails if a limit is exceeded.
//!
//! ```text
//! cargo run --release -p controller --example converge [NODES PODS]
//! ```

#![expect(clippy::print_stdout, reason = "a tool: its result is what it prints")]
#![expect(clippy::unwrap_used, reason = "parts of the tests, which fail by panicking")]

#[path = "../tests/laws/cluster.rs"]
mod cluster;
#[path = "../tests/laws/running.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod running;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use cluster::{all_nodes, all_pods, config, node, pod};
use controller::watch_event::{Seen, WatchEvent};
use ovsdb::Endpoint;
use running::Running;
use testkit::{Database, Scratch};

const SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";
/// CPU limit of this process while it fills an empty database: the goal for 500 nodes and 10,000
/// pods.
const MOST_CPU: Duration = Duration::from_secs(2);
/// Enough for a 99th percentile that is not the maximum.
const SINGLE_PODS: u32 = 200;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let numbers: Vec<u32> = std::env::args()
        .skip(1)
        .map(|number| number.parse().expect("numbers of nodes and pods"))
        .collect();
    let (nodes, pods) = if let [nodes, pods] = numbers[..] { (nodes, pods) } else { (500, 10_000) };
    // At most a hundred: `pod` gives distinct addresses to a hundred pods of a node.
    let per_node = (pods / nodes).clamp(1, 100);
    let scratch = Scratch::new();
    let _server = Database::of_schema(scratch.path(), "nb", SCHEMA);
    let endpoint = Endpoint::Unix(scratch.join("nb.sock"));

    let mut controller = Running::without_services(endpoint.clone(), config());
    let filled = converge(&mut controller, per_node, pods).await;
    println!("from an empty database:  {filled}");
    let mut again = Running::without_services(endpoint, config());
    controller.kill().await;
    let restarted = converge(&mut again, per_node, pods).await;
    println!("restart:                 {restarted}");

    let mut latencies = Vec::new();
    for number in pods..pods + SINGLE_PODS {
        let (committed, begun) = (again.transactions(), Instant::now());
        let wanted = committed.get() + 1;
        again.observe(WatchEvent::Pods(Seen::Applied(pod(number, 1 + number / per_node, 0))));
        again.reaches("the pod", |progress| progress.converged && committed.get() >= wanted).await;
        latencies.push(begun.elapsed());
    }
    latencies.sort();
    let (half, most) = (latencies[latencies.len() / 2], latencies[latencies.len() * 99 / 100]);
    println!(
        "one pod after the other: {half:.1?} (p50), {most:.1?} (p99) \
         until its rows are committed and compared"
    );

    let good = filled.cpu < MOST_CPU && restarted.transactions == 0;
    println!(
        "{}: limits are {MOST_CPU:?} of CPU for the first, no transaction for the second",
        if good { "ok" } else { "FAILED" }
    );
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Measured {
    seconds: Duration,
    cpu: Duration,
    transactions: u64,
    rows: f64,
}

/// Observes the cluster and waits until the database shows it.
async fn converge(controller: &mut Running, per_node: u32, pods: u32) -> Measured {
    // Including the nodes of the pods that come later.
    let all_nodes = all_nodes((0..=(pods + SINGLE_PODS) / per_node).map(|number| node(1 + number)));
    let all_pods = all_pods((0..pods).map(|number| pod(number, 1 + number / per_node, 0)));
    let (begun, cpu) = (Instant::now(), cpu_time());
    controller.observe(all_nodes);
    controller.observe(all_pods);
    controller.converged().await;
    Measured {
        seconds: begun.elapsed(),
        cpu: cpu_time() - cpu,
        transactions: controller.transactions().get(),
        rows: controller.counted("ovnkube_controller_nb_rows_written_total"),
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seconds, cpu, transactions, rows } = self;
        write!(f, "{seconds:.2?} ({cpu:.2?} of own CPU), {transactions} transactions, {rows} rows")
    }
}

/// CPU time of this thread, the only one (first field of /proc/thread-self/schedstat, in
/// nanoseconds).
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}
