//! OVN's databases: the southbound one for a node's ovn-controller, both for the control plane.

use super::super::{
    kind::Kind,
    spec::{Group, OldKey, Spec},
    values,
};

const NORTH: &str = "ovnnorth";
const SOUTH: &str = "ovnsouth";
const DATABASES: Kind =
    Kind::Checked { value_name: "ADDRESS", check: |text| values::databases(text).map(drop) };
const SERVERS: &str = "is set where the database's server runs, since 2019";

/// A file of the database's server, by its path on the server's host.
const fn server_file(
    name: &'static str,
    section: &'static str,
    key: &'static str,
    help: &'static str,
) -> Spec {
    Spec::new(name, Kind::Path).key(section, key).help(help)
}

options! { Group::Databases;
    SB_ADDRESS = Spec::new("sb-address", DATABASES).key(SOUTH, "address").environment("OVN_SOUTH").external_id("ovn-remote")
        .default("unix:/var/run/ovn/ovnsb_db.sock")
        .help("Southbound database: tcp:IP:PORT, ssl:IP:PORT, several with commas between, or unix:PATH. With it, \
               the control plane removes the chassis of deleted nodes");
    SB_CLIENT_PRIVKEY = Spec::new("sb-client-privkey", Kind::Path).key(SOUTH, "client-privkey")
        .help("For ssl: ovn-controller's private key (PEM); without it /etc/openvswitch/ovnsb-privkey.pem");
    SB_CLIENT_CERT = Spec::new("sb-client-cert", Kind::Path).key(SOUTH, "client-cert")
        .help("For ssl: its certificate (PEM); without it /etc/openvswitch/ovnsb-cert.pem");
    SB_CLIENT_CACERT = Spec::new("sb-client-cacert", Kind::Path).key(SOUTH, "client-cacert")
        .help("For ssl: certificates (PEM) of the CAs that sign the database's; without it \
               /etc/openvswitch/ovnsb-ca.cert");
    SB_RUN_DIR = Spec::new("sb-run-dir", Kind::Path).value("DIR").key(SOUTH, "run-dir")
        .default("/var/run/ovn")
        .help("Where the southbound database's local socket is, which is used where no address is given");
    SB_CERT_COMMON_NAME = Spec::new("sb-cert-common-name", Kind::Text).value("NAME")
        .key(SOUTH, "cert-common-name")
        .help("For ssl: the name that the southbound database's certificate has to have; without it every \
               certificate of the right CA is accepted. The control plane's check: ovn-controller has its \
               own");
    NB_ADDRESS = Spec::new("nb-address", DATABASES).key(NORTH, "address").environment("OVN_NORTH").external_id("ovn-nb")
        .old_keys(&[OldKey::python("unix-socket").prefix("unix:")])
        .default("unix:/var/run/ovn/ovnnb_db.sock")
        .help("Northbound database: as --sb-address, for the control plane");
    NB_CLIENT_PRIVKEY = Spec::new("nb-client-privkey", Kind::Path).key(NORTH, "client-privkey")
        .old_keys(&[
            OldKey::python("private-key"),
            OldKey::same("egressip-healthcheck-tls", "client-privkey"),
        ])
        .help("For ssl: private key (PEM); without it /etc/openvswitch/ovnnb-privkey.pem");
    NB_CLIENT_CERT = Spec::new("nb-client-cert", Kind::Path).key(NORTH, "client-cert")
        .old_keys(&[OldKey::python("certificate"), OldKey::same("egressip-healthcheck-tls", "client-cert")])
        .help("For ssl: certificate (PEM); without it /etc/openvswitch/ovnnb-cert.pem");
    NB_CLIENT_CACERT = Spec::new("nb-client-cacert", Kind::Path).key(NORTH, "client-cacert")
        .old_keys(&[OldKey::python("ca-cert"), OldKey::same("egressip-healthcheck-tls", "client-cacert")])
        .help("For ssl: certificates (PEM) of the CAs that sign the database's; without it \
               /etc/openvswitch/ovnnb-ca.cert");
    NB_CERT_COMMON_NAME = Spec::new("nb-cert-common-name", Kind::Text).value("NAME")
        .key(NORTH, "cert-common-name")
        .old_keys(&[OldKey::same("egressip-healthcheck-tls", "cert-common-name")])
        .help("For ssl: the name that the northbound database's certificate has to have; without it every \
               certificate of the right CA is accepted");
    NB_RUN_DIR = Spec::new("nb-run-dir", Kind::Path).value("DIR").key(NORTH, "run-dir")
        .default("/var/run/ovn")
        .help("Where the northbound database's local socket is, which is used where no address is given");
    NB_DB_LOCATION = Spec::new("nb-db-location", Kind::Path).key(NORTH, "db-location")
        .default("/etc/ovn/ovnnb_db.db")
        .help("The northbound database's file, whose size --ovn-metrics-bind-address tells");
    SB_DB_LOCATION = Spec::new("sb-db-location", Kind::Path).key(SOUTH, "db-location")
        .default("/etc/ovn/ovnsb_db.db")
        .help("The southbound database's file, whose size --ovn-metrics-bind-address tells");
    NB_ELECTION_TIMER = Spec::new("nb-raft-election-timer", Kind::NUMBER).value("SECONDS")
        .key(NORTH, "election-timer")
        .help("Election timer of the northbound cluster").never(SERVERS);
    SB_ELECTION_TIMER = Spec::new("sb-raft-election-timer", Kind::NUMBER).value("SECONDS")
        .key(SOUTH, "election-timer")
        .help("Election timer of the southbound cluster").never(SERVERS);
    OPEN_DATABASES = Spec::new("open-databases", Kind::Switch).key("default", "open-databases").default("false")
        .help("Have the databases of this host listen on the ports of --nb-address and --sb-address (6641 and 6642 \
               without them), unless they have a connection on that port. Without ssl: everybody who reaches the port \
               may write. With false, neither --net-controller nor the files of a server open one");
    NB_SERVER_PRIVKEY = server_file("nb-server-privkey", NORTH, "server-privkey",
        "Private key (PEM) of the database's server, for ssl: in --nb-address: with the two other \
               files the database is opened as by --open-databases");
    NB_SERVER_CERT = server_file("nb-server-cert", NORTH, "server-cert",
        "Certificate (PEM) of --nb-server-privkey");
    NB_SERVER_CACERT = server_file("nb-server-cacert", NORTH, "server-cacert",
        "Certificates (PEM) of the CAs that sign the certificates of its clients");
    SB_SERVER_PRIVKEY = server_file("sb-server-privkey", SOUTH, "server-privkey",
        "Private key (PEM) of the database's server, for ssl: in --sb-address: with the two other \
               files the database is opened as by --open-databases");
    SB_SERVER_CERT = server_file("sb-server-cert", SOUTH, "server-cert",
        "Certificate (PEM) of --sb-server-privkey");
    SB_SERVER_CACERT = server_file("sb-server-cacert", SOUTH, "server-cacert",
        "Certificates (PEM) of the CAs that sign the certificates of its clients");
    DB_TXN_TIMEOUT = Spec::new("db-txn-timeout", Kind::Span).key("default", "db-txn-timeout").default("100s")
        .help("How long a database may take for an answer to --remove-node; the controller waits as long as \
               the database is there");
    BOOTSTRAP_CA_CERT = Spec::new("bootstrap-ca-cert", Kind::Switch).key(NORTH, "bootstrap-ca-cert")
        .default("false")
        .help("For ssl: where the file of --nb-client-cacert or --sb-client-cacert is not there, trust the \
               CA that the database shows at the first connection and write it there. Only for a network \
               that can be trusted at that moment");
}
