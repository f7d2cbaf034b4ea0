//! Health and metrics over TCP.

use super::super::{
    kind::Kind,
    spec::{Group, OldKey, Part, Spec},
    values,
};

const SECTION: &str = "metrics";
const BIND: Kind = Kind::Checked {
    value_name: "ADDRESS:PORT",
    check: |text| values::bind_address(text).map(drop),
};

options! { Group::Endpoints;
    METRICS = Spec::new("metrics-bind-address", BIND).key(SECTION, "bind-address")
        .old_keys(&[OldKey::same("kubernetes", "metrics-bind-address")])
        .help("Serve /metrics (Prometheus), /healthz and /readyz here; :PORT alone is every address");
    HEALTHZ = Spec::new("healthz-bind-address", BIND).key("kubernetes", "healthz-bind-address")
        .help("Serve /healthz and /readyz here");
    NODE_SERVER_PRIVKEY = Spec::new("node-server-privkey", Kind::Path).key(SECTION, "node-server-privkey")
        .help("Private key (PEM) for https on --metrics-bind-address, read again when it changes");
    NODE_SERVER_CERT = Spec::new("node-server-cert", Kind::Path).key(SECTION, "node-server-cert")
        .help("Certificate (PEM) of --node-server-privkey");
    OVN_METRICS = Spec::new("ovn-metrics-bind-address", BIND).key(SECTION, "ovn-metrics-bind-address")
        .old_keys(&[OldKey::same("kubernetes", "ovn-metrics-bind-address")])
        .help("Serve /metrics of OVN's daemons on this machine here, under upstream's names");
    EXPORT_OVS_METRICS = Spec::new("export-ovs-metrics", Kind::Switch).key(SECTION, "export-ovs-metrics")
        .default("false")
        .help("Serve those of Open vSwitch on --ovn-metrics-bind-address, too");
    CONFIG_DURATION = Spec::new("metrics-enable-config-duration", Kind::Switch)
        .key(SECTION, "enable-config-duration").default("false")
        .later(Part::Metrics).help("Measure how long changes take to be in force");
    SCALE = Spec::new("metrics-enable-scale", Kind::Switch).aliases(&["metrics-enable-eip-scale"])
        .key(SECTION, "enable-scale-metrics")
        .old_keys(&[OldKey::same(SECTION, "enable-eip-scale-metrics")]).default("false")
        .later(Part::Metrics).help("Measure what grows with the cluster");
    PPROF = Spec::new("metrics-enable-pprof", Kind::Switch).key(SECTION, "enable-pprof").default("false")
        .old_keys(&[OldKey::same("kubernetes", "metrics-enable-pprof")])
        .help("Serve profiles of the Go runtime").never("is for Go; perf(1) profiles this program");
    TLS_MIN_VERSION = Spec::new("tls-min-version", Kind::Text).value("VERSION").key("tls", "tls-min-version")
        .help("Least version of TLS that is served").never("cannot be lowered: TLS 1.2 and 1.3 are served");
    TLS_CIPHER_SUITES = Spec::new("tls-cipher-suites", Kind::Text).value("NAMES")
        .key("tls", "tls-cipher-suites")
        .help("Ciphers that are served").never("cannot be changed: only strong ciphers are served");
}
