//! Starts variants of the plugin in turns, and prints what one start of each takes. A server in
//! this process answers them, so no daemon runs. `integration/allocator.sh` builds the variants.
#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use integration::eventually;
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};
use serde_json::{Value, json};

/// Compare variants of the plugin.
#[derive(Parser)]
struct Arguments {
    /// How often each variant makes each call.
    #[arg(long, default_value_t = 2000)]
    rounds: usize,
    /// Network namespace of a pod. Without it, no ADD succeeds.
    #[arg(long)]
    netns: Option<PathBuf>,
    /// The variants. Figures of all others are also printed relative to the first.
    #[arg(required = true)]
    variants: Vec<PathBuf>,
}

/// One kind of call.
struct Call {
    name: &'static str,
    verb: &'static str,
    netns: PathBuf,
    succeeds: bool,
}

/// What one process took from its start to its end.
struct Sample {
    /// Microseconds.
    wall: f64,
    /// Microseconds of user and system time.
    cpu: f64,
    /// Page faults that needed no disk.
    faults: f64,
}

fn main() -> Result<()> {
    let Arguments { rounds, netns, variants } = Arguments::parse();
    ensure!(rounds > 0, "a median needs a round");
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("server.sock");
    let listener = UnixListener::bind(&socket)?;
    thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| drop(thread::spawn(|| serve(stream))))
    });
    let conf = conf(directory.path(), &socket).to_string();

    let own = PathBuf::from("/proc/self/ns/net");
    let mut calls = vec![
        Call { name: "VERSION", verb: "VERSION", netns: own.clone(), succeeds: true },
        // The namespace of the caller is not that of a pod.
        Call { name: "ADD, refused", verb: "ADD", netns: own.clone(), succeeds: false },
    ];
    if let Some(netns) = netns {
        // unshare(1) enters its namespace a moment after it has started.
        eventually("a namespace of its own", Duration::from_secs(5), || {
            ensure!(
                fs::read_link(&netns)? != fs::read_link(&own)?,
                "{} is this process's",
                netns.display()
            );
            Ok(())
        })?;
        calls.push(Call { name: "ADD, the server's result", verb: "ADD", netns, succeeds: true });
    }
    for call in calls {
        let mut samples: Vec<Vec<Sample>> =
            variants.iter().map(|_| Vec::with_capacity(rounds)).collect();
        for round in 0..rounds {
            // Each variant is first in turn: the first finds caches that another call has left.
            for turn in 0..variants.len() {
                let index = (round + turn) % variants.len();
                samples[index].push(call.sample(&variants[index], &conf)?);
            }
        }
        print(&call, &variants, &samples);
    }
    Ok(())
}

fn conf(directory: &Path, socket: &Path) -> Value {
    json!({
        "cniVersion": "1.1.0",
        "name": "ovn-kubernetes",
        "type": "ovn-k8s-cni-overlay",
        "serverSocket": socket,
        "ovsdbEndpoint": format!("unix:{}", directory.join("db.sock").display()),
        "logFile": directory.join("plugin.log"),
    })
}

impl Call {
    /// Runs a variant to its end.
    fn sample(&self, variant: &Path, conf: &str) -> Result<Sample> {
        let mut command = Command::new(variant);
        command
            .env_clear()
            .env("CNI_COMMAND", self.verb)
            .env("CNI_CONTAINERID", "c0ffee")
            .env("CNI_NETNS", &self.netns)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0")
            .env("CNI_PATH", "/opt/cni/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let before = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let began = Instant::now();
        let mut child = command.spawn().with_context(|| format!("start {}", variant.display()))?;
        // Ignored: VERSION reads no input, and may have ended.
        let _ = child.stdin.take().context("a pipe")?.write_all(conf.as_bytes());
        let output = child.wait_with_output()?;
        let wall = began.elapsed().as_secs_f64() * 1e6;
        // Children are counted once they were waited for, and this is the only one.
        let after = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        if output.status.success() != self.succeeds {
            bail!(
                "{} of {}: {}",
                self.name,
                variant.display(),
                String::from_utf8_lossy(&output.stdout)
            );
        }
        let cpu =
            (after.user_time() + after.system_time()) - (before.user_time() + before.system_time());
        let faults = after.minor_page_faults() - before.minor_page_faults();
        Ok(Sample { wall, cpu: cpu.num_microseconds() as f64, faults: faults as f64 })
    }
}

fn print(call: &Call, variants: &[PathBuf], samples: &[Vec<Sample>]) {
    println!("{}, {} times each; medians", call.name, samples[0].len());
    let medians = |of: fn(&Sample) -> f64| -> Vec<f64> {
        samples.iter().map(|samples| median(samples.iter().map(of).collect())).collect()
    };
    let (wall, cpu, faults) = (
        medians(|sample| sample.wall),
        medians(|sample| sample.cpu),
        medians(|sample| sample.faults),
    );
    for (index, variant) in variants.iter().enumerate() {
        let name = variant.file_name().unwrap_or_default().to_string_lossy();
        println!(
            "  {name:10} wall {:7.0} us ({:+5.0})   user and system {:7.0} us ({:+5.0})   page faults {:4.0}",
            wall[index],
            wall[index] - wall[0],
            cpu[index],
            cpu[index] - cpu[0],
            faults[index]
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Answers requests for a pod with a finished result, as upstream's server in privileged mode does,
/// and reports with nothing. Ends with the connection.
fn serve(stream: UnixStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            (reader.read_line(&mut head).ok()? > 0).then_some(())?;
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        reader.read_exact(&mut vec![0; length.unwrap_or(0)]).ok()?;
        let body = if head.starts_with("POST / ") { result() } else { String::new() };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

fn result() -> String {
    json!({"Result": {
        "cniVersion": "1.1.0",
        "interfaces": [
            {"name": "c0ffee", "mac": "9a:7c:11:22:33:44"},
            {"name": "eth0", "mac": "0a:58:0a:f4:01:05", "sandbox": "/var/run/netns/a"},
        ],
        "ips": [{"interface": 1, "address": "10.244.1.5/24", "gateway": "10.244.1.1"}],
        "dns": {},
    }})
    .to_string()
}
