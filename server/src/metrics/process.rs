//! What every program tells of its process, under the names of Prometheus' own clients ("Writing client libraries", standard metrics),
//! as proc(5) has it.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};
use prometheus::{Counter, Gauge};

use super::register::Register;

#[derive(Debug)]
pub(super) struct Process {
    cpu: Counter,
    open_fds: Gauge,
    max_fds: Gauge,
    resident: Gauge,
    virtual_memory: Gauge,
    start_time: Gauge,
    units: Units,
}

/// What the kernel counts in.
#[derive(Debug, Clone, Copy)]
struct Units {
    ticks_per_second: f64,
    page: f64,
}

/// `/proc/self/stat`, as far as it is of interest.
#[derive(Debug, PartialEq)]
struct Stat {
    /// Seconds.
    cpu: f64,
    /// Seconds since the machine was started.
    started: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
}

impl Process {
    pub(super) fn register(register: &Register<'_>) -> Self {
        let process = Self {
            cpu: register.counter("process_cpu_seconds_total", "User and system time."),
            open_fds: register.gauge("process_open_fds", "Open file descriptors."),
            max_fds: register.gauge("process_max_fds", "File descriptors that may be open."),
            resident: register.gauge("process_resident_memory_bytes", "Memory that is resident."),
            virtual_memory: register.gauge("process_virtual_memory_bytes", "Address space."),
            start_time: register.gauge("process_start_time_seconds", "Start of the process, since the epoch."),
            units: Units::of_this_machine(),
        };
        // It does not change: the time of the start is read once, the clock may be set later.
        if let (Some(stat), Some(boot)) = (process.stat(), boot_time()) {
            process.start_time.set(boot + stat.started);
        }
        process
    }

    /// Reads everything again. What cannot be read stays as it was.
    pub(super) fn look(&self) {
        if let Some(Stat { cpu, started: _, virtual_bytes, resident_bytes }) = self.stat() {
            self.cpu.inc_by((cpu - self.cpu.get()).max(0.0));
            self.virtual_memory.set(virtual_bytes);
            self.resident.set(resident_bytes);
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // Reading the directory opens it.
            let open = u32::try_from(entries.count().saturating_sub(1)).unwrap_or(u32::MAX);
            self.open_fds.set(open.into());
        }
        if let Some(limit) = fs::read_to_string("/proc/self/limits").ok().as_deref().and_then(max_open_files) {
            self.max_fds.set(limit);
        }
    }

    fn stat(&self) -> Option<Stat> {
        Stat::parse(&fs::read_to_string("/proc/self/stat").ok()?, self.units)
    }
}

impl Units {
    fn of_this_machine() -> Self {
        let value = |variable, usual: u32| {
            let value = sysconf(variable).ok().flatten().and_then(|value| u32::try_from(value).ok());
            f64::from(value.unwrap_or(usual))
        };
        Self { ticks_per_second: value(SysconfVar::CLK_TCK, 100), page: value(SysconfVar::PAGE_SIZE, 4096) }
    }
}

impl Stat {
    /// The program's name, in brackets, may hold anything; the third field follows the last bracket.
    fn parse(line: &str, units: Units) -> Option<Self> {
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        // Numbered from 1, as in proc(5).
        let field = |number: usize| fields.get(number.checked_sub(3)?)?.parse::<f64>().ok();
        Some(Self {
            cpu: (field(14)? + field(15)?) / units.ticks_per_second,
            started: field(22)? / units.ticks_per_second,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * units.page,
        })
    }
}

/// Start of the machine, in seconds since the epoch.
fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// The soft limit; none if there is none.
fn max_open_files(limits: &str) -> Option<f64> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_brackets_in_its_name_is_read_too() {
        let units = Units { ticks_per_second: 100.0, page: 4096.0 };
        let line = "12 (a) b) (c) S 1 12 12 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 4200 8192000 500 18446744073709551615";
        let stat = Stat { cpu: 2.0, started: 42.0, virtual_bytes: 8_192_000.0, resident_bytes: 2_048_000.0 };
        assert_eq!(Stat::parse(line, units), Some(stat));
        assert_eq!(Stat::parse("12 (a) S", units), None);
    }

    #[test]
    fn this_process_is_seen() {
        let registry = prometheus::Registry::new();
        let process = Process::register(&Register(&registry));
        process.look();
        assert!(process.open_fds.get() >= 3.0 && process.open_fds.get() <= process.max_fds.get());
        assert!(process.resident.get() > 1e6 && process.resident.get() < process.virtual_memory.get());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - process.start_time.get();
        assert!((-2.0..3600.0).contains(&age), "{age}");
    }
}
