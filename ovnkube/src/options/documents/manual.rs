//! The manual pages.

use std::io;

use clap_mangen::{
    Man,
    roff::{Roff, bold, italic, roman},
};
use contract::{
    error::Code,
    paths::{CNI_CONF_DIR, CNI_CONF_FILE, PLUGIN, PLUGIN_LOG, SERVER_LOG, SERVER_SOCKET},
};

use super::super::{
    command_line::{command, heading},
    kind::Kind,
    spec::{Effect, Group, Spec},
    table,
};

const PROJECT: &str = "OVN-Kubernetes";

/// `ovnkube(8)`
pub(super) fn of_server() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let man = Man::new(command())
        .title("ovnkube")
        .section("8")
        .manual(PROJECT)
        .source(concat!("ovnkube ", env!("CARGO_PKG_VERSION")));
    // Only the title is clap_mangen's: its list of options would lack the other sources of each.
    man.render_title(&mut text)?;
    let mut page = Roff::new();
    section(&mut page, "NAME");
    page.text([roman("ovnkube - connects the pods of Kubernetes through OVN")]);
    section(&mut page, "SYNOPSIS");
    page.text([bold("ovnkube --init-node"), roman(" "), italic("NODE"), roman(" [option…]")]);
    page.control("br", []);
    page.text([
        bold("ovnkube --init-master"),
        roman(" "),
        italic("NODE"),
        roman(" ["),
        bold("--init-node"),
        roman(" "),
        italic("NODE"),
        roman("] [option…]"),
    ]);
    page.control("br", []);
    page.text([bold("ovnkube --remove-node"), roman(" "), italic("NODE"), roman(" [option…]")]);
    page.control("br", []);
    page.text([bold("ovnkube --cleanup-node"), roman(" "), italic("NODE"), roman(" [option…]")]);
    page.control("br", []);
    page.text([bold("ovnkube --print-config"), roman(" [option…]")]);
    for (command, what) in [("nics-to-bridge", "INTERFACE"), ("bridges-to-nic", "BRIDGE")] {
        page.control("br", []);
        page.text([
            bold(format!("ovnkube {command}")),
            roman(" ["),
            bold("--db="),
            italic("ENDPOINT"),
            roman("] "),
            italic(what),
            roman("…"),
        ]);
    }
    section(&mut page, "DESCRIPTION");
    paragraph(
        &mut page,
        "With --init-node it serves one node of a cluster: it prepares Open vSwitch for ovn-controller, \
         installs the CNI plugin and its configuration, and tells the plugin which network each pod has, as \
         soon as that is known.",
    );
    paragraph(
        &mut page,
        "nics-to-bridge makes each interface the uplink of a new bridge of Open vSwitch, brINTERFACE, and \
         moves its addresses and routes there; bridges-to-nic moves them back and removes the bridge. If a \
         step fails, those before it are undone.",
    );
    paragraph(
        &mut page,
        "With --init-master it is the control plane: it gives every node its part of the pods' addresses, \
         and every pod its own, and writes what nodes and pods need into OVN's northbound database. Several \
         may run: one leads, the others stand by. --init-cluster-manager and --init-ovnkube-controller are \
         its two halves, for processes of their own. In one process with --init-node, all are given the same \
         name.",
    );
    paragraph(
        &mut page,
        "Options are --name VALUE, --name=VALUE, and both with one dash; true-or-false options are --name, \
         --name=true or --name=false. What is not on the command line is looked for in the configuration \
         file, in the environment, in the files of a pod's service account, and in external_ids of Open \
         vSwitch's database, in this order; the default comes last. A value on the command line wins even \
         where it is the default. An empty value counts as none. All errors are reported together.",
    );
    section(&mut page, "OPTIONS");
    for group in Group::ALL {
        page.control("SS", [group.title()]);
        for spec in table::all().filter(|spec| heading(spec) == group) {
            option(&mut page, spec);
        }
    }
    page.control("SS", ["Others"]);
    entry(&mut page, "-h, --help", "", "Print the options; -h leaves out those without effect");
    entry(&mut page, "-V, --version", "", "Print the version");
    section(&mut page, "ENVIRONMENT");
    for (spec, variable) in table::all().filter_map(|spec| Some((spec, spec.environment?))) {
        entry(&mut page, variable, "", &format!("As {}", spec.flag()));
    }
    entry(
        &mut page,
        "KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT",
        "",
        "The API server's address, as Kubernetes tells it to every pod",
    );
    section(&mut page, "FILES");
    files(
        &mut page,
        &[
            ("/etc/openvswitch/ovn_k8s.conf", "Options: ovn_k8s.conf(5)"),
            (SERVER_LOG, "The log"),
            (SERVER_SOCKET, "Where the plugin asks"),
            (
                &format!("{CNI_CONF_DIR}/{CNI_CONF_FILE}"),
                "The CNI configuration, written once the server answers",
            ),
            ("/var/run/secrets/kubernetes.io/serviceaccount", "token and ca.crt of a pod's service account"),
        ],
    );
    section(&mut page, "EXIT STATUS");
    files(
        &mut page,
        &[
            ("0", "It was told to stop, or is done"),
            (
                "1",
                "It could not start, or go on (for the control plane: another one leads now); \
                 the log says why",
            ),
            ("2", "The options cannot be used"),
        ],
    );
    see_also(
        &mut page,
        &["ovn_k8s.conf(5)", "ovn-k8s-cni-overlay(8)", "ovn-controller(8)", "ovs-vswitchd(8)"],
    );
    page.to_writer(&mut text)?;
    Ok(text)
}

/// `ovn_k8s.conf(5)`
pub(super) fn of_file() -> io::Result<Vec<u8>> {
    let mut page = page("ovn_k8s.conf", "5");
    section(&mut page, "NAME");
    page.text([roman("ovn_k8s.conf - options of OVN-Kubernetes on a node")]);
    section(&mut page, "DESCRIPTION");
    paragraph(
        &mut page,
        "/etc/openvswitch/ovn_k8s.conf is read by ovnkube(8) if it is there; another file, with \
         --config-file, has to be there. It has sections, [name], and in them lines key = value. Names count \
         in any case, and with underscores for hyphens. A key alone is true. What stands behind # or ; is a \
         comment, unless it is in double quotes, within which \\\", \\\\, \\n and \\t can be used. A \
         backslash at the end of a line lets the value go on in the next. Of several lines with the same \
         key, the last counts.",
    );
    paragraph(
        &mut page,
        "An unknown key or section is named in the log, with its line and the name that comes nearest; a \
         value that cannot be used is an error.",
    );
    for name in sections() {
        page.control("SH", [format!("[{name}]").as_str()]);
        for spec in table::all().filter(|spec| spec.key.is_some_and(|key| key.section == name)) {
            let key = spec.key.map_or("", |key| key.name);
            entry(&mut page, key, value_name(spec), &about(spec, &format!("As {}.", spec.flag())));
        }
    }
    section(&mut page, "OLDER NAMES");
    paragraph(
        &mut page,
        "These mean the same. Values in single quotes, as the Python programs wrote them, are taken without \
         the quotes.",
    );
    for (spec, old) in table::all().flat_map(|spec| spec.old_keys.iter().map(move |old| (spec, old))) {
        let what = spec.key.map_or_else(|| spec.flag(), |key| format!("[{}] {}", key.section, key.name));
        entry(&mut page, &format!("[{}] {}", old.key.section, old.key.name), "", &what);
    }
    see_also(&mut page, &["ovnkube(8)"]);
    Ok(page.to_roff().into_bytes())
}

/// `ovn-k8s-cni-overlay(8)`
pub(super) fn of_plugin() -> io::Result<Vec<u8>> {
    let mut page = page(PLUGIN, "8");
    section(&mut page, "NAME");
    page.text([roman("ovn-k8s-cni-overlay - CNI plugin that connects a pod to OVN")]);
    section(&mut page, "SYNOPSIS");
    page.text([
        bold("CNI_COMMAND="),
        italic("VERB"),
        roman(" … "),
        bold("ovn-k8s-cni-overlay"),
        roman(" < "),
        italic("configuration"),
    ]);
    section(&mut page, "DESCRIPTION");
    paragraph(
        &mut page,
        "A container runtime starts it for every pod, with its request in the environment and the network's \
         configuration as JSON on standard input; the answer is JSON on standard output. It speaks the CNI \
         specification from 0.1.0 to 1.1.0: ADD, DEL, CHECK, STATUS, GC and VERSION. It asks ovnkube(8) \
         which network the pod has; DEL needs no server.",
    );
    section(&mut page, "ENVIRONMENT");
    files(
        &mut page,
        &[
            ("CNI_COMMAND", "The verb"),
            ("CNI_CONTAINERID", "The sandbox"),
            ("CNI_NETNS", "Path of its network namespace"),
            ("CNI_IFNAME", "The pod's interface"),
            (
                "CNI_ARGS",
                "K8S_POD_NAMESPACE, K8S_POD_NAME, K8S_POD_UID; pairs NAME=VALUE with semicolons between",
            ),
        ],
    );
    section(&mut page, "CONFIGURATION");
    paragraph(&mut page, "Keys beside those of the specification. ovnkube(8) writes the configuration.");
    files(
        &mut page,
        &[
            ("mtu", "MTU of the pod, instead of --mtu"),
            ("logFile, logLevel", "The log, and err, warn, info, dbg or klog's number"),
            ("timeoutSeconds", "How long an ADD may take; 55"),
            ("topology, netAttachDefName", "Another network than the cluster's own"),
            ("serverSocket", "Where ovnkube(8) is asked"),
            ("ovsdbEndpoint", "Open vSwitch's database: unix:PATH or tcp:HOST:PORT"),
            ("ovnRunDir", "Run-time directory of ovn-controller"),
        ],
    );
    section(&mut page, "EXIT STATUS");
    paragraph(&mut page, "0, or 1 with an object of code, msg and details on standard output. Codes:");
    for (_, number, name) in Code::table() {
        entry(&mut page, &number.to_string(), "", name);
    }
    entry(&mut page, &Code::Internal.number().to_string(), "", Code::Internal.name());
    section(&mut page, "FILES");
    files(
        &mut page,
        &[
            (PLUGIN_LOG, "The log, a line for each call and more for its stages"),
            (SERVER_SOCKET, "Where ovnkube(8) is asked"),
        ],
    );
    see_also(&mut page, &["ovnkube(8)", "ovn-controller(8)", "ovs-vswitchd(8)"]);
    Ok(page.to_roff().into_bytes())
}

fn page(name: &str, number: &str) -> Roff {
    let mut page = Roff::new();
    page.control("TH", [name, number, "", concat!("ovnkube ", env!("CARGO_PKG_VERSION")), PROJECT]);
    page
}

fn section(page: &mut Roff, title: &str) {
    page.control("SH", [title]);
}

fn paragraph(page: &mut Roff, text: &str) {
    page.control("PP", []).text([roman(text.split_whitespace().collect::<Vec<_>>().join(" "))]);
}

fn option(page: &mut Roff, spec: &Spec) {
    let aliases = spec.aliases.iter().map(|alias| format!(" Also --{alias}."));
    let variable = spec.environment.map(|name| format!(" Environment: {name}."));
    let key = spec.key.map(|key| format!(" File: [{}] {}.", key.section, key.name));
    let external_id = spec.external_id.map(|name| format!(" external_ids: {name}."));
    let more: String = aliases.chain(key).chain(variable).chain(external_id).collect();
    entry(page, &spec.flag(), value_name(spec), &about(spec, more.trim_start()));
}

pub(super) fn value_name(spec: &Spec) -> &'static str {
    if matches!(spec.kind, Kind::Switch) { "" } else { spec.value_name }
}

fn about(spec: &Spec, more: &str) -> String {
    let default =
        if spec.default.is_empty() { String::new() } else { format!(" Default: {}.", spec.default) };
    let effect = match spec.effect {
        Effect::Full => String::new(),
        Effect::Later(part) => format!(" It has no effect yet: it is for {}.", part.name()),
        Effect::Never(why) => format!(" It has no effect: it {why}."),
    };
    format!("{}.{default} {more}{effect}", spec.help)
}

fn entry(page: &mut Roff, name: &str, value: &str, text: &str) {
    page.control("TP", []);
    if value.is_empty() {
        page.text([bold(name)])
    } else {
        page.text([bold(name), roman(" "), italic(value)])
    };
    page.text([roman(text)]);
}

fn files(page: &mut Roff, entries: &[(&str, &str)]) {
    for (name, text) in entries {
        entry(page, name, "", text);
    }
}

fn see_also(page: &mut Roff, pages: &[&str]) {
    section(page, "SEE ALSO");
    page.text([roman(pages.join(", "))]);
}

fn sections() -> Vec<&'static str> {
    let mut sections = Vec::new();
    for key in table::all().filter_map(|spec| spec.key) {
        if !sections.contains(&key.section) {
            sections.push(key.section);
        }
    }
    sections
}
