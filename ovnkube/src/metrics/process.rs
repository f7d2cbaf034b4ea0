//! The standard `process_*` metrics (Prometheus, "Writing client libraries"), read from proc(5).

use std::fs;

use procfs::{
    ProcResult,
    process::{self, LimitValue, Stat},
};
use prometheus::{Counter, Gauge, Registry};

use super::known;

#[derive(Debug)]
pub(super) struct Process {
    cpu: Counter,
    open_fds: Gauge,
    max_fds: Gauge,
    resident: Gauge,
    virtual_memory: Gauge,
    start_time: Gauge,
}

/// What the kernel has counted, in the units of the metrics.
#[derive(Debug, PartialEq)]
struct Usage {
    /// Seconds.
    cpu: f64,
    /// Seconds since the machine was started.
    started: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
}

impl Process {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name, help| known(registry, Gauge::new(name, help));
        let process = Self {
            cpu: known(
                registry,
                Counter::new("process_cpu_seconds_total", "User and system time."),
            )?,
            open_fds: gauge("process_open_fds", "Open file descriptors.")?,
            max_fds: gauge("process_max_fds", "File descriptors that may be open.")?,
            resident: gauge("process_resident_memory_bytes", "Memory that is resident.")?,
            virtual_memory: gauge("process_virtual_memory_bytes", "Address space.")?,
            start_time: gauge(
                "process_start_time_seconds",
                "Start of the process, since the epoch.",
            )?,
        };
        // Read once: the kernel moves `btime` when the clock is set, and the start of a process
        // must not move.
        if let (Ok(usage), Ok(boot)) = (Usage::of_this_process(), procfs::boot_time_secs()) {
            process.start_time.set(boot as f64 + usage.started);
        }
        Ok(process)
    }

    /// Reads everything again. A metric whose file cannot be read keeps its value.
    pub(super) fn look(&self) {
        if let Ok(Usage { cpu, started: _, virtual_bytes, resident_bytes }) =
            Usage::of_this_process()
        {
            // A counter can only grow, by the difference to its last value.
            self.cpu.inc_by((cpu - self.cpu.get()).max(0.0));
            self.virtual_memory.set(virtual_bytes);
            self.resident.set(resident_bytes);
        }
        // Not `fd_count()` of procfs, which before Linux 6.2 counts `.`, `..` and its own
        // descriptors, too.
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // Less the descriptor of the directory itself.
            let open = u32::try_from(entries.count().saturating_sub(1)).unwrap_or(u32::MAX);
            self.open_fds.set(open.into());
        }
        let limits = process::Process::myself().and_then(|this| this.limits());
        if let Ok(LimitValue::Value(soft)) = limits.map(|limits| limits.max_open_files.soft_limit) {
            self.max_fds.set(soft as f64);
        }
    }
}

impl Usage {
    fn of_this_process() -> ProcResult<Self> {
        let stat = process::Process::myself()?.stat()?;
        Ok(Self::of(&stat, procfs::ticks_per_second(), procfs::page_size()))
    }

    fn of(stat: &Stat, ticks_per_second: u64, page: u64) -> Self {
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second as f64;
        Self {
            cpu: seconds(stat.utime + stat.stime),
            started: seconds(stat.starttime),
            virtual_bytes: stat.vsize as f64,
            resident_bytes: (stat.rss * page) as f64,
        }
    }
}

/// The standard metrics of another process: name, help, value. None if the process is not the
/// program: a pid file may be of another namespace of processes.
pub(crate) fn of_process(pid: i32, program: &str) -> Vec<(&'static str, &'static str, f64)> {
    let Ok(process) = process::Process::new(pid) else { return Vec::new() };
    let Ok(stat) = process.stat() else { return Vec::new() };
    // The kernel keeps 15 bytes of a name.
    if !program.starts_with(&stat.comm) {
        return Vec::new();
    }
    let Usage { cpu, started, virtual_bytes, resident_bytes } =
        Usage::of(&stat, procfs::ticks_per_second(), procfs::page_size());
    let mut found = vec![
        ("process_cpu_seconds_total", "User and system time.", cpu),
        ("process_virtual_memory_bytes", "Address space.", virtual_bytes),
        ("process_resident_memory_bytes", "Memory that is resident.", resident_bytes),
    ];
    if let Ok(boot) = procfs::boot_time_secs() {
        let start = boot as f64 + started;
        found.push(("process_start_time_seconds", "Start, since the epoch.", start));
    }
    // Those of another user's process are not readable.
    if let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) {
        let open = u32::try_from(entries.count()).unwrap_or(u32::MAX);
        found.push(("process_open_fds", "Open file descriptors.", open.into()));
    }
    if let Ok(limits) = process.limits() {
        let soft = |value: LimitValue| match value {
            LimitValue::Value(value) => value as f64,
            LimitValue::Unlimited => f64::INFINITY,
        };
        let open = soft(limits.max_open_files.soft_limit);
        found.push(("process_max_fds", "File descriptors that may be open.", open));
        let memory = soft(limits.max_address_space.soft_limit);
        found.push(("process_virtual_memory_max_bytes", "Most address space.", memory));
    }
    found
}

#[cfg(test)]
mod tests {
    use procfs::FromRead as _;

    use super::*;

    #[test]
    fn a_program_with_brackets_in_its_name_is_read_too() {
        let line = "12 (a) b) (c) S 1 12 12 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 4200 8192000 500 \
                    18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0";
        let usage = Usage {
            cpu: 2.0,
            started: 42.0,
            virtual_bytes: 8_192_000.0,
            resident_bytes: 2_048_000.0,
        };
        assert_eq!(Usage::of(&Stat::from_read(line.as_bytes()).unwrap(), 100, 4096), usage);
        assert!(Stat::from_read(&b"12 (a) S"[..]).is_err());
    }

    #[test]
    fn another_process_is_seen_only_if_it_is_the_program() {
        let own = i32::try_from(std::process::id()).unwrap();
        let name = fs::read_to_string("/proc/self/comm").unwrap();
        let found = of_process(own, name.trim());
        assert!(found.iter().any(|(name, _, value)| *name == "process_open_fds" && *value >= 3.0));
        assert!(of_process(own, "ovs-vswitchd").is_empty());
    }

    #[test]
    fn this_process_is_seen() {
        let process = Process::register(&Registry::new()).unwrap();
        process.look();
        assert!(process.open_fds.get() >= 3.0 && process.open_fds.get() <= process.max_fds.get());
        assert!(
            process.resident.get() > 1e6 && process.resident.get() < process.virtual_memory.get()
        );
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs_f64();
        let age = now - process.start_time.get();
        assert!((-2.0..3600.0).contains(&age), "{age}");
    }
}
