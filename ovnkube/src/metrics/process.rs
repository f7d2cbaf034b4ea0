//! The standard `process_*` metrics (Prometheus, "Writing client libraries"), read from proc(5).

use std::fs;

use nix::unistd::{SysconfVar, sysconf};
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
    units: Units,
}

/// The units of the kernel's numbers.
#[derive(Debug, Clone, Copy)]
struct Units {
    ticks_per_second: f64,
    /// Bytes.
    page: f64,
}

/// The fields of `/proc/self/stat` that are metrics.
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
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name, help| known(registry, Gauge::new(name, help));
        let process = Self {
            cpu: known(registry, Counter::new("process_cpu_seconds_total", "User and system time."))?,
            open_fds: gauge("process_open_fds", "Open file descriptors.")?,
            max_fds: gauge("process_max_fds", "File descriptors that may be open.")?,
            resident: gauge("process_resident_memory_bytes", "Memory that is resident.")?,
            virtual_memory: gauge("process_virtual_memory_bytes", "Address space.")?,
            start_time: gauge("process_start_time_seconds", "Start of the process, since the epoch.")?,
            units: Units::of_this_machine(),
        };
        // Read once: the kernel moves `btime` when the clock is set, and the start of a process must not
        // move.
        if let (Some(stat), Some(boot)) = (process.stat(), boot_time()) {
            process.start_time.set(boot + stat.started);
        }
        Ok(process)
    }

    /// Reads everything again. A metric whose file cannot be read keeps its value.
    pub(super) fn look(&self) {
        if let Some(Stat { cpu, started: _, virtual_bytes, resident_bytes }) = self.stat() {
            // A counter can only grow, by the difference to its last value.
            self.cpu.inc_by((cpu - self.cpu.get()).max(0.0));
            self.virtual_memory.set(virtual_bytes);
            self.resident.set(resident_bytes);
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // Less the descriptor of the directory itself.
            let open = u32::try_from(entries.count().saturating_sub(1)).unwrap_or(u32::MAX);
            self.open_fds.set(open.into());
        }
        if let Some(limit) = fs::read_to_string("/proc/self/limits").ok().as_deref().and_then(max_open_files)
        {
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
    /// The second field, the program's name in brackets, may contain spaces and brackets: the third follows
    /// the last bracket.
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

/// Boot of the machine, in seconds since the epoch.
fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// The soft limit; `None` if it is unlimited.
fn max_open_files(limits: &str) -> Option<f64> {
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_brackets_in_its_name_is_read_too() {
        let units = Units { ticks_per_second: 100.0, page: 4096.0 };
        let line = "12 (a) b) (c) S 1 12 12 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 4200 8192000 500 \
                    18446744073709551615";
        let stat = Stat { cpu: 2.0, started: 42.0, virtual_bytes: 8_192_000.0, resident_bytes: 2_048_000.0 };
        assert_eq!(Stat::parse(line, units), Some(stat));
        assert_eq!(Stat::parse("12 (a) S", units), None);
    }

    #[test]
    fn this_process_is_seen() {
        let process = Process::register(&Registry::new()).unwrap();
        process.look();
        assert!(process.open_fds.get() >= 3.0 && process.open_fds.get() <= process.max_fds.get());
        assert!(process.resident.get() > 1e6 && process.resident.get() < process.virtual_memory.get());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - process.start_time.get();
        assert!((-2.0..3600.0).contains(&age), "{age}");
    }
}
