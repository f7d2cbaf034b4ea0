//! The texts with which daemons answer on their control sockets. What cannot be read is left out.

use std::collections::BTreeMap;

/// A stopwatch of `stopwatch/show`, in milliseconds.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Stopwatch {
    pub(super) samples: f64,
    pub(super) maximum: f64,
    pub(super) minimum: f64,
    pub(super) percentile: f64,
    pub(super) short_average: f64,
    pub(super) long_average: f64,
}

/// The totals of `coverage/show` by event. Events that have not happened are not shown.
pub(super) fn coverage(text: &str) -> BTreeMap<&str, f64> {
    fn event(line: &str) -> Option<(&str, f64)> {
        let (_, total) = line.split_once("total:")?;
        Some((line.split_whitespace().next()?, total.trim().parse().ok()?))
    }
    text.lines().filter_map(event).collect()
}

/// The stopwatches of `stopwatch/show` by name.
pub(super) fn stopwatches(text: &str) -> BTreeMap<&str, Stopwatch> {
    let mut found: BTreeMap<&str, Stopwatch> = BTreeMap::new();
    let mut name = "";
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("Statistics for '") {
            name = title.trim_end_matches('\'');
            continue;
        }
        let Some((what, value)) = line.trim().split_once(": ") else { continue };
        let Some(value) = value.split(' ').next().and_then(|text| text.parse().ok()) else {
            continue;
        };
        let watch = found.entry(name).or_default();
        match what {
            "Total samples" => watch.samples = value,
            "Maximum" => watch.maximum = value,
            "Minimum" => watch.minimum = value,
            "95th percentile" => watch.percentile = value,
            "Short term average" => watch.short_average = value,
            "Long term average" => watch.long_average = value,
            _ => {}
        }
    }
    found
}

/// Words of the form `NAME:NUMBER`, as `memory/show` and lines of `dpctl/show` have them.
pub(super) fn numbers(text: &str) -> BTreeMap<&str, f64> {
    fn pair(word: &str) -> Option<(&str, f64)> {
        let (name, value) = word.rsplit_once(':')?;
        Some((name, value.parse().ok()?))
    }
    text.split_whitespace().filter_map(pair).collect()
}

/// The versions in the two lines of `version`: the program's, and Open vSwitch's library's.
pub(super) fn versions(text: &str) -> (String, String) {
    let last = |line: Option<&str>| {
        line.and_then(|line| line.split_whitespace().next_back()).unwrap_or_default().to_owned()
    };
    let mut lines = text.lines();
    (last(lines.next()), last(lines.find(|line| line.starts_with("Open vSwitch Library"))))
}

/// The lines `NAME: VALUE` of `cluster/status`.
pub(super) fn fields(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name, value.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_stopwatches_are_read_and_what_is_none_is_left_out() {
        let text = "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  \
                    hash=1234:\n\
                    rconn_sent      0.2/sec  0.100/sec  0.0058/sec   total: 21\n\
                    100 events never hit\n";
        assert_eq!(coverage(text), [("rconn_sent", 21.0)].into());
        let text = "Statistics for 'ovn-northd-loop'\n  Total samples: 93\n  Maximum: 12 msec\n  \
                    Minimum: 1 msec\n  95th percentile: 3.500000 msec\n  \
                    Short term average: 0.5 msec\n  Long term average: 0.25 msec\n\
                    Statistics for 'lflows_igmp'\n  Total samples: 0\n";
        let watches = stopwatches(text);
        assert_eq!(watches.len(), 2);
        let of_loop = Stopwatch {
            samples: 93.0,
            maximum: 12.0,
            minimum: 1.0,
            percentile: 3.5,
            short_average: 0.5,
            long_average: 0.25,
        };
        assert_eq!(watches["ovn-northd-loop"], of_loop);
        let memory = numbers("handlers:2 ports:5 udpif keys:0 revalidators:1 none:x");
        assert_eq!((memory["handlers"], memory["revalidators"]), (2.0, 1.0));
        assert_eq!(numbers("lookups: hit:14 missed:3 hit/pkt:0.61")["hit/pkt"], 0.61);
        assert_eq!(
            versions("ovn-controller 23.03.1\nOpen vSwitch Library 3.1.0\n"),
            ("23.03.1".to_owned(), "3.1.0".to_owned())
        );
        assert_eq!(fields("Role: leader\nTerm: 3\n")["Role"], "leader");
    }
}
