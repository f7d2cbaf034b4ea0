//! Each in a network namespace of its own, with connections that conntrack(8) makes.

use std::process::Command;

use nix::sys::resource::{UsageWho, getrusage};

use super::*;

/// Runs a shell script in the namespace of this thread.
fn shell(script: &str) -> String {
    let output = Command::new("sh").args(["-euc", script]).output().expect("sh");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {errors} (conntrack: apt-get install conntrack)");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `body` in a new namespace.
fn alone(body: impl FnOnce() + Send + 'static) {
    let tried = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
            .expect("a network namespace: this test runs as root");
        body();
    });
    tried.join().unwrap();
}

fn flush_now(way: Way, addresses: &[IpAddr]) -> Flushed {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(flush_by(way, addresses)).unwrap()
}

/// Makes connections of 10.244.1.3, and returns how many are tracked then.
fn make(count: usize) -> usize {
    shell(&format!(
        "list=$(mktemp); trap 'rm $list' EXIT
         seq {count} | awk '{{ printf \"-I -p tcp --state ESTABLISHED -t 600 -s 10.244.1.3 -d 172.%d.%d.%d \
             --sport %d --dport 443\\n\", 16 + int($1 / 65536), int($1 / 256) % 256, $1 % 256, 1024 + $1 % 60000 }}' \
             > $list
         conntrack -R $list"
    ));
    shell("conntrack -C").trim().parse().unwrap()
}

#[test]
fn connections_of_an_address_go_and_others_stay_whichever_way_the_kernel_knows() {
    for way in [Way::AtOnce, Way::Listed] {
        alone(move || {
            let (v4, v6) = ("10.244.1.3", "fd00::3");
            for (from, to) in [
                (v4, "10.96.0.1"),
                ("192.0.2.1", v4),
                (v6, "fd00:96::1"),
                ("10.244.1.4", "10.96.0.1"),
                ("fd00::4", "fd00:96::1"),
            ] {
                for zone in ["", "--zone 7"] {
                    shell(&format!(
                        "conntrack -I -p udp -t 600 --sport 40000 --dport 53 -s {from} -d {to} {zone}"
                    ));
                }
            }
            // Of a Service: only the reply comes from the address.
            shell(&format!(
                "conntrack -I -p udp -t 600 --sport 40000 --dport 53 -s 192.0.2.1 -d 10.96.0.10 \
                 -r {v4} -q 192.0.2.1 --reply-port-src 5353 --reply-port-dst 40000"
            ));
            let flushed = flush_now(way, &[v4.parse().unwrap(), v6.parse().unwrap()]);
            let left = shell("conntrack -L");
            let of_others = |line: &&str| line.contains("10.244.1.4") || line.contains("fd00::4");
            assert_eq!(
                left.lines().count(),
                left.lines().filter(of_others).count(),
                "{way:?}: {left}"
            );
            assert_eq!(left.lines().count(), 4, "{way:?}: {left}");
            match way {
                Way::Listed => {
                    assert_eq!(flushed, Flushed { at_once: 0, connections: 7, listed: 9 })
                }
                // An older kernel than 6.11 has used the other way.
                Way::AtOnce => {
                    assert!(flushed.at_once == 2 || flushed.connections == 7, "{flushed:?}")
                }
            }
        });
    }
}

/// The kernel's filter by an IPv6 address hands over every connection but those that are looked
/// for.
#[test]
fn ipv6_connections_to_an_endpoint_that_is_gone_stayed() {
    alone(|| {
        for client in ["fd00::8", "fd00::9"] {
            shell(&format!(
                "conntrack -I -p udp -t 600 --sport 40000 --dport 53 -s {client} -d fd00:96::a \
                 -r fd00::3 -q {client} --reply-port-src 5353 --reply-port-dst 40000"
            ));
        }
        shell("conntrack -I -p udp -t 600 --sport 40000 --dport 53 -s fd00::8 -d fd00:96::b");
        let stale = Stale {
            address: Some("fd00:96::a".parse().unwrap()),
            port: 53,
            end: StaleEnd::Endpoint("[fd00::3]:5353".parse().unwrap()),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(flush_stale(&[stale])).unwrap(), 2);
        let left = shell("conntrack -L -f ipv6");
        assert!(left.lines().count() == 1 && left.contains("fd00:96::b"), "{left}");
    });
}

#[test]
fn connections_are_removed_while_they_are_listed_and_not_kept_in_memory() {
    const COUNT: usize = 100_000;
    alone(|| {
        assert_eq!(make(COUNT), COUNT);
        let peak = || getrusage(UsageWho::RUSAGE_SELF).unwrap().max_rss();
        let before = peak();
        let begun = std::time::Instant::now();
        let flushed = flush_now(Way::Listed, &["10.244.1.3".parse().unwrap()]);
        let (kilobytes, took) = (peak() - before, begun.elapsed());
        assert_eq!(
            flushed,
            Flushed { at_once: 0, connections: COUNT, listed: COUNT },
            "after {took:?}"
        );
        assert_eq!(shell("conntrack -C").trim(), "0");
        // The list alone took 80 MB when it was kept.
        assert!(kilobytes < 8_000, "{kilobytes} kB more, and {took:?}");
    });
}

#[test]
fn a_kernel_that_cannot_list_one_zone_is_named_where_it_tracks_very_many_connections() {
    let why = zones_are_slow("6.1.0-50-amd64", 500_000).expect("slow");
    assert!(why.contains("500000 connections") && why.contains("6.1.0-50-amd64"), "{why}");
    for release in ["5.14.0-427.el9.x86_64", "6.7"] {
        assert!(zones_are_slow(release, 100_000).is_some(), "{release}");
    }
    for (release, count) in [
        ("6.1.0", 99_999),
        ("6.8.0", 500_000),
        ("6.12.117+deb13-amd64", 500_000),
        ("7.2", 500_000),
        ("?", 500_000),
    ] {
        assert_eq!(zones_are_slow(release, count), None, "{release}");
    }
}
