//! Open vSwitch on this node, and the settings for ovn-controller in its database.

use contract::paths;

use super::super::{
    kind::Kind,
    networks,
    spec::{Group, OldKey, Spec},
    values,
};

const SECTION: &str = "default";
const ENDPOINT_KIND: Kind =
    Kind::Checked { value_name: "ENDPOINT", check: |text| values::endpoint(text).map(drop) };
const WHOLE_DIRECTORY: Kind =
    Kind::Checked { value_name: "DIR", check: |text| values::whole_path(text).map(drop) };
const ENCAP_TYPE_KIND: Kind =
    Kind::Checked { value_name: "TYPE", check: |text| values::encap_type(text).map(drop) };
const ADDRESSES: Kind =
    Kind::Checked { value_name: "IP", check: |text| values::addresses(text).map(drop) };

const ZONE_NAME: Kind =
    Kind::Checked { value_name: "NAME", check: |text| networks::zone(text).map(drop) };
const DATABASES: Kind =
    Kind::Checked { value_name: "ADDRESS", check: |text| values::databases(text).map(drop) };

options! { Group::OpenVSwitch;
    OVSDB_ENDPOINT = Spec::new("ovsdb-endpoint", ENDPOINT_KIND).key("ovspaths", "endpoint")
        .default("unix:/var/run/openvswitch/db.sock")
        .help("Open vSwitch's database: unix:PATH or tcp:HOST:PORT");
    OVS_RUN_DIR = Spec::new("ovs-run-dir", Kind::Path).value("DIR").key("ovspaths", "run-dir")
        .default("/var/run/openvswitch")
        .old_keys(&[OldKey::python("rundir")])
        .help("Open vSwitch's run-time directory, where db.sock is unless --ovsdb-endpoint says otherwise");
    OVN_RUN_DIR = Spec::new("ovn-run-dir", WHOLE_DIRECTORY).key("ovspaths", "ovn-run-dir")
        .default(paths::OVN_RUN_DIR)
        .help("Directory of ovn-controller's process id and control socket, such as /var/run/ovn-ic");
    HOST_OVS_RUN_DIR = Spec::new("host-ovs-run-dir", WHOLE_DIRECTORY).key("ovspaths", "host-run-dir")
        .help("--ovs-run-dir as the CNI plugin on the host sees it, where this server is in a container and \
               sees it elsewhere");
    HOST_OVN_RUN_DIR = Spec::new("host-ovn-run-dir", WHOLE_DIRECTORY).key("ovspaths", "host-ovn-run-dir")
        .help("The same for --ovn-run-dir");
    OTHER_ZONE = Spec::new("other-zone", ZONE_NAME).key(SECTION, "other-zone")
        .help("Another zone that the node may be in, besides that of --zone: the node moves while \
               this server runs when its annotation k8s.ovn.org/zone-wanted says so, which \
               ovnkube zones migrate writes. Without the annotation it stays where it is");
    OTHER_SB_ADDRESS = Spec::new("other-sb-address", DATABASES).key("ovnsouth", "other-address")
        .help("Southbound database of that zone, as --sb-address; ssl: takes the same files");
    ENCAP_TYPE = Spec::new("encap-type", ENCAP_TYPE_KIND).key(SECTION, "encap-type").default("geneve")
        .external_id("ovn-encap-type")
        .help("How packets travel between nodes: geneve or vxlan");
    ENCAP_IP = Spec::new("encap-ip", ADDRESSES).key(SECTION, "encap-ip").external_id("ovn-encap-ip")
        .help("This node's address for such packets; without it, the node's InternalIP, or else the address \
               of the default route's interface");
    ENCAP_PORT = Spec::new("encap-port", Kind::PORT).value("PORT").key(SECTION, "encap-port").default("6081")
        .external_id("ovn-encap-port")
        .help("UDP port of such packets. OVN has it from the southbound database (Encap, options:dst_port), \
               which this server does not write: another port than 6081 is reported. The flows of a gateway's \
               bridge let this port past all translations");
    INACTIVITY_PROBE = Spec::new("inactivity-probe", Kind::NUMBER).value("MILLISECONDS")
        .key(SECTION, "inactivity-probe")
        .default("100000").external_id("ovn-remote-probe-interval")
        .help("Idle time after which ovn-controller probes its connection to the southbound database, and, \
               if this is given, the control plane that to the northbound one; 0 for never");
    OPENFLOW_PROBE = Spec::new("openflow-probe", Kind::NUMBER).value("SECONDS").key(SECTION, "openflow-probe")
        .default("180")
        .external_id("ovn-openflow-probe-interval")
        .help("The same for ovn-controller's connection to ovs-vswitchd");
    OFCTRL_WAIT_BEFORE_CLEAR = Spec::new("ofctrl-wait-before-clear", Kind::NUMBER).value("MILLISECONDS")
        .key(SECTION, "ofctrl-wait-before-clear").default("0").external_id("ovn-ofctrl-wait-before-clear")
        .help("How long ovn-controller keeps the old flows when it starts, while it computes new ones");
    MONITOR_ALL = Spec::new("monitor-all", Kind::Switch).key(SECTION, "monitor-all").default("true")
        .external_id("ovn-monitor-all")
        .help("Let ovn-controller follow the whole southbound database rather than ask for parts of it");
    LFLOW_CACHE = Spec::new("enable-lflow-cache", Kind::Switch).key(SECTION, "enable-lflow-cache")
        .default("true")
        .external_id("ovn-enable-lflow-cache").help("Let ovn-controller cache logical flows");
    LFLOW_CACHE_LIMIT = Spec::new("lflow-cache-limit", Kind::NUMBER).key(SECTION, "lflow-cache-limit")
        .default("0")
        .external_id("ovn-limit-lflow-cache").help("Most entries of that cache; 0 for no limit");
    LFLOW_CACHE_LIMIT_KB = Spec::new("lflow-cache-limit-kb", Kind::NUMBER).value("KILOBYTES")
        .key(SECTION, "lflow-cache-limit-kb")
        .default("0").external_id("ovn-memlimit-lflow-cache-kb")
        .help("Most memory of that cache; 0 for no limit");
}
