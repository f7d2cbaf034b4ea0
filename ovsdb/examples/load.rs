//! Measures the time and memory that a replica of a large northbound database takes.
//!
//! Starts a private `ovsdb-server` in a temporary directory, and fills it with 20,000 logical
//! switch ports. Then a new process loads them, five times. Prints rows, seconds and peak memory of
//! each run, and fails if the median exceeds the limits.
//!
//! Most of the time is the server's, which writes 8.7 MB of JSON on one thread. The CPU seconds of
//! the loading process, which are printed as well, hardly depend on other load. If they are as
//! usual, a busy machine is the cause of a failure.
//!
//! ```text
//! cargo run --release -p ovsdb --example load
//! ```

#![expect(clippy::print_stdout, reason = "a tool: its result is what it prints")]

#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../tests/it/daemon.rs"]
mod daemon;
#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../tests/it/eventually.rs"]
mod eventually;

use std::{
    collections::BTreeMap,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use daemon::{Daemon, NORTHBOUND_SCHEMA, schema};
use ovsdb::{
    Connection, Datum, Endpoint, Monitor, Mutation, Options, Row, Transaction, Uuid, Where,
};

const PORTS: usize = 20_000;
/// The limits on the median of the runs.
const MAX_SECONDS: f64 = 0.6;
const MAX_KIBIBYTES: u64 = 150 * 1024;
const DATABASE: &str = "OVN_Northbound";

ovsdb::table! {
    /// The columns of a port that a client is likely to use.
    struct LogicalSwitchPort in "Logical_Switch_Port" {
        name: String,
        kind: String = "type",
        options: BTreeMap<String, String>,
        parent_name: Option<String>,
        tag: Option<i64>,
        addresses: Vec<String>,
        port_security: Vec<String>,
        up: Option<bool>,
        enabled: Option<bool>,
        dhcpv4_options: Option<Uuid>,
        external_ids: BTreeMap<String, String>,
    }

    struct LogicalSwitch in "Logical_Switch" {
        name: String,
        ports: Vec<Uuid>,
        external_ids: BTreeMap<String, String>,
    }
}

/// The measurements of one process.
struct Measured {
    rows: usize,
    seconds: f64,
    own_seconds: f64,
    kibibytes: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    if let [_, command, endpoint] = std::env::args().collect::<Vec<_>>().as_slice()
        && command == "measure"
    {
        let Measured { rows, seconds, own_seconds, kibibytes } =
            measure(&endpoint.parse()?).await?;
        println!("{rows} {seconds} {own_seconds} {kibibytes}");
        return Ok(ExitCode::SUCCESS);
    }

    let daemon = Daemon::with_schema(schema(NORTHBOUND_SCHEMA)).await;
    fill(&daemon.open(DATABASE).await).await?;
    let mut runs = (0..5)
        .map(|_| measure_in_a_fresh_process(&daemon.endpoint()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for Measured { rows, seconds, own_seconds, kibibytes } in &runs {
        let mebibytes = f64::from(u32::try_from(*kibibytes)?) / 1024.0;
        println!("{rows} rows, {seconds:.3} s ({own_seconds:.3} s of own CPU), {mebibytes:.1} MiB");
    }
    runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let median = &runs[runs.len() / 2];
    let good =
        median.rows == PORTS && median.seconds < MAX_SECONDS && median.kibibytes < MAX_KIBIBYTES;
    println!(
        "{}: limits are {PORTS} rows, {MAX_SECONDS} s, {} MiB",
        if good { "ok" } else { "FAILED" },
        MAX_KIBIBYTES / 1024
    );
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Adds ports with the columns and ids that a cloud's controller writes, 200 on each switch.
async fn fill(connection: &Connection) -> anyhow::Result<()> {
    for switch in 0..PORTS / 200 {
        let mut transaction = Transaction::new();
        let ports: Vec<_> = (0..200)
            .map(|port| {
                let (mac, address) = (
                    format!("0a:58:0a:80:{switch:02x}:{port:02x}"),
                    format!("10.128.{switch}.{port}"),
                );
                let row = Row::new()
                    .with("name", format!("customers-{switch}_webservers-7c5ddbdf54-{port:05}"))
                    .with("addresses", format!("{mac} {address}"))
                    .with("port_security", format!("{mac} {address}"))
                    .with("up", true)
                    .with(
                        "options",
                        Datum::map([
                            ("requested-chassis", format!("host-{switch}")),
                            ("iface-id-ver", Uuid::nil().to_string()),
                        ]),
                    )
                    .with(
                        "external_ids",
                        Datum::map([
                            ("customers", format!("customers-{switch}")),
                            ("vm", "true".to_owned()),
                        ]),
                    );
                transaction.insert("Logical_Switch_Port", row)
            })
            .collect();
        let row = Row::new().with("name", format!("host-{switch}"));
        let switch = transaction.insert("Logical_Switch", row);
        transaction.mutate(
            "Logical_Switch",
            ovsdb::Condition::equal("_uuid", &switch),
            vec![Mutation::insert("ports", ports)],
        );
        connection.transact(transaction).await.context("filling the database")?;
    }
    Ok(())
}

fn measure_in_a_fresh_process(endpoint: &Endpoint) -> anyhow::Result<Measured> {
    let output =
        Command::new(std::env::current_exe()?).args(["measure", &endpoint.to_string()]).output()?;
    ensure!(
        output.status.success(),
        "the measuring process: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout)?;
    let [rows, seconds, own_seconds, kibibytes] = text.split_whitespace().collect::<Vec<_>>()[..]
    else {
        anyhow::bail!("{text:?}")
    };
    Ok(Measured {
        rows: rows.parse()?,
        seconds: seconds.parse()?,
        own_seconds: own_seconds.parse()?,
        kibibytes: kibibytes.parse()?,
    })
}

/// Measures from before the connection to typed rows.
async fn measure(endpoint: &Endpoint) -> anyhow::Result<Measured> {
    let begun = Instant::now();
    let connection = Connection::open(endpoint, DATABASE, Options::default()).await?;
    let monitor = Monitor::new()
        .table::<LogicalSwitchPort>(Where::all())
        .table::<LogicalSwitch>(Where::all());
    let monitored = connection.monitor(monitor).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let rows = monitored.rows::<LogicalSwitchPort>().count();
    Ok(Measured {
        rows,
        seconds,
        own_seconds: cpu_time()?.as_secs_f64(),
        kibibytes: peak_memory()?,
    })
}

/// The CPU time of this process, which has one thread (the first field of /proc/self/schedstat, in
/// nanoseconds).
fn cpu_time() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(Duration::from_nanos(text.split_whitespace().next().context("an empty schedstat")?.parse()?))
}

/// The peak resident memory, in KiB (proc(5), `VmHWM`).
fn peak_memory() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
