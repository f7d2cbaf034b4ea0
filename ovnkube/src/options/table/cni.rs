//! How container runtimes find the plugin, and how the plugin finds the server.

use contract::paths::{CNI_CONF_DIR, CNI_CONF_FILE, PLUGIN, SERVER_SOCKET};

use super::super::{
    kind::Kind,
    spec::{Group, OldKey, Spec},
    values,
};

const SECTION: &str = "cni";
const CONF_FILE_KIND: Kind =
    Kind::Checked { value_name: "NAME", check: |text| values::conf_file(text).map(drop) };
const FILE_NAME: Kind =
    Kind::Checked { value_name: "NAME", check: |text| values::file_name(text).map(drop) };
const WHOLE_PATH: Kind =
    Kind::Checked { value_name: "PATH", check: |text| values::whole_path(text).map(drop) };

options! { Group::Cni;
    CONF_DIR = Spec::new("cni-conf-dir", Kind::Path).value("DIR").key(SECTION, "conf-dir")
        .default(CNI_CONF_DIR)
        .old_keys(&[OldKey::python("cni-conf-path")])
        .help("Directory where the container runtime looks for CNI configurations");
    CONF_FILE = Spec::new("cni-conf-file", CONF_FILE_KIND).key(SECTION, "conf-file").default(CNI_CONF_FILE)
        .help("File to write there; a name that ends with .conf gives the older form, of a single plugin");
    CHAIN = Spec::new("cni-chain", WHOLE_PATH).key(SECTION, "chain")
        .help("File or directory with the plugins that runtimes call after ours, such as portmap, bandwidth, \
               tuning: each an object with its type");
    BIN_DIR = Spec::new("cni-bin-dir", Kind::Path).value("DIR").key(SECTION, "bin-dir")
        .default("/opt/cni/bin")
        .old_keys(&[OldKey::python("cni-link-path")])
        .help("Directory where the container runtime looks for plugins; the plugin is installed there");
    PLUGIN_NAME = Spec::new("cni-plugin", FILE_NAME).key(SECTION, "plugin").default(PLUGIN)
        .old_keys(&[OldKey::python("cni-plugin")])
        .help("File name of the CNI plugin");
    PLUGIN_SOURCE = Spec::new("cni-plugin-source", Kind::Path).key(SECTION, "plugin-source")
        .help("The plugin to install; without it, the one that the package or image brought, if there is \
               one");
    NETNS_LINK = Spec::new("cni-netns-link", Kind::Switch).key(SECTION, "netns-link").default("false")
        .help("Have the plugin link each pod's network namespace to /var/run/netns/CONTAINER-ID, for ip netns exec");
    SOCKET = Spec::new("cni-socket", WHOLE_PATH).key(SECTION, "socket").default(SERVER_SOCKET)
        .help("Where the CNI plugin finds this server");
    WIN_HNSNETWORK_ID = Spec::new("win-hnsnetwork-id", Kind::Text).value("ID")
        .key(SECTION, "win-hnsnetwork-id")
        .help("Network of containers on Windows").never("is for Windows");
}
