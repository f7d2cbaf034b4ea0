//! The rows of the fault matrix: the fault that is injected, and what has to hold. Pure.

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// From 1; the tests of row NN are called `row_NN_…`, with two digits at least.
    pub number: u8,
    /// What is injected.
    pub fault: &'static str,
    /// What has to hold, besides the checks of every row.
    pub expected: &'static str,
    /// What this project does instead of a part of `expected`, on purpose, and why.
    pub instead: Option<&'static str>,
    /// Who holds the row, if not `make faults`.
    pub elsewhere: Option<Elsewhere>,
    /// Why the row has no test yet: the missing part.
    pub absent: Option<&'static str>,
}

/// A test of another command, which holds a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elsewhere {
    /// `make test`, or `make test-cluster` if it needs the image of the executables.
    pub command: &'static str,
    /// The test's function.
    pub test: &'static str,
}

const fn row(number: u8, fault: &'static str, expected: &'static str) -> Row {
    Row { number, fault, expected, instead: None, elsewhere: None, absent: None }
}

impl Row {
    /// The expectation stays as it is; beside it, what holds instead, and why.
    const fn instead(self, instead: &'static str) -> Self {
        Self { instead: Some(instead), ..self }
    }

    /// The row is held by this test of that command.
    const fn elsewhere(self, command: &'static str, test: &'static str) -> Self {
        Self { elsewhere: Some(Elsewhere { command, test }), ..self }
    }
}

/// STATUS without Open vSwitch or its bridge.
const RUNNING_PODS_TOO: &str = "STATUS 51 instead of 50: running pods may be affected, too, \
    and only a fault of the node's own Open vSwitch is told so (decisions/status-in-a-moment.md)";

/// Every row, by ascending numbers.
pub const ROWS: &[Row] = &[
    row(
        1,
        "no server: ADD",
        "code 11 after at most 1 s, in which it tries again; the message names the socket",
    ),
    row(2, "no server: DEL", "it needs none: port and link are gone, exit status 0"),
    row(
        3,
        "a socket file without a listener",
        "as without a server; the next server takes the place of its own dead socket, and of nothing else",
    ),
    row(
        4,
        "server stopped (SIGSTOP) during ADD",
        "code 11 at the deadline; resumed, it drops the requests of callers that have gone",
    ),
    row(5, "kill -9 before anything is made", "nothing is left, DEL succeeds"),
    row(
        6,
        "kill -9 between link and port",
        "DEL removes the link by its name; without a DEL, the server does",
    ),
    row(
        7,
        "kill -9 between port and result",
        "DEL removes port and link; a runtime that keeps the sandbox keeps its network",
    ),
    row(
        8,
        "server restarts with 100 live pods",
        "no packet is lost, no row is written, STATUS is 0 again within 1 s",
    ),
    row(
        9,
        "server restarts during 32 ADDs",
        "each succeeds or has code 11, none outlives its deadline, no port is there twice",
    ),
    row(
        10,
        "ovsdb-server: kill -9, started again",
        "waiting ADDs succeed within their deadline or have code 11, no row is there twice, STATUS 50",
    )
    .instead(RUNNING_PODS_TOO),
    row(
        11,
        "ovsdb-server restarts with an empty database",
        "STATUS 51; once br-int is back, so are the ports of live pods and their traffic",
    ),
    row(
        12,
        "the reply to a commit is lost",
        "what was committed is found again: removed, or kept by its owner",
    ),
    row(
        13,
        "every answer of the database comes 3 s late",
        "ADD takes at most that much longer per round trip and succeeds; no request is repeated; \
         other pods are not affected",
    ),
    row(
        14,
        "the name of the port is taken in the database",
        "one's own row is taken over; a foreign one is named (code 5) and left alone",
    )
    .instead("code 102, a taken name: 5 is the specification's code for input and output"),
    row(
        15,
        "the database answers garbage, or without end",
        "the connection ends, no program panics, memory stays below 64 MB",
    ),
    row(
        16,
        "ovs-vswitchd: kill -9",
        "code 11 at the deadline, which says that it does not respond, and for how long there was no ofport; \
         STATUS 50; once it is back, waiting ADDs succeed",
    )
    .instead(RUNNING_PODS_TOO),
    row(17, "ovs-vswitchd stopped for 10 s", "ADDs within their deadline succeed late"),
    row(
        18,
        "the link vanishes beneath its port",
        "ADD fails at once with the text of Open vSwitch, nothing is left",
    ),
    row(19, "no br-int", "code 11 at once, STATUS 50; once it is back, ADD succeeds")
        .instead(RUNNING_PODS_TOO),
    row(
        20,
        "ovn-controller killed",
        "code 11 at the deadline, which names it; running pods keep their flows",
    ),
    row(21, "ovn-controller restarts during a burst of ADDs", "all succeed, running pods notice nothing"),
    row(
        22,
        "the logical port comes late, or never",
        "ADD waits for it until its deadline, then code 11; it succeeds within 50 ms when the port comes",
    ),
    row(
        23,
        "ovn-northd or the southbound database is down",
        "as without a logical port; STATUS stays 0, a metric tells of it",
    ),
    row(24, "ovn-installed of an older row", "it is ignored"),
    row(
        25,
        "API server down when the server starts",
        "DEL, CHECK and STATUS are answered; ADD has code 11 until pods are known",
    ),
    row(
        26,
        "API server down later",
        "pods that are known are attached, others are waited for; the watch goes on",
    ),
    row(27, "watch: 410, cut short, 429, 500", "listed again after a pause, no change is lost"),
    row(
        28,
        "401 after a token was replaced",
        "the token is read again, the request repeated once, at once; the log tells of it",
    ),
    row(
        29,
        "the annotation comes after 0.5, 5 and 29 s",
        "ADD returns within 50 ms of it, besides OVN's own time",
    ),
    row(30, "the annotation never comes", "code 11 at the deadline; nothing was made"),
    row(
        31,
        "annotations: malformed, of another subnet, with another pod's address, of 1 MiB",
        "a code of 100 and above, an Event, no storm of retries, no panic",
    ),
    row(
        32,
        "the pod's UID is not that of the call",
        "the right one is waited for; never the wrong one's network",
    ),
    row(
        33,
        "a new sandbox while the old one's ADD waits",
        "the new one wins; DEL of the old one leaves the new port alone",
    ),
    row(
        34,
        "DEL during ADD of the same interface",
        "the ADD ends and is undone, then DEL succeeds; nothing appears after it",
    ),
    row(35, "100 ADDs of the same interface at once", "exactly one succeeds"),
    row(36, "the pod has that interface already", "an error; the interface is not touched"),
    row(
        37,
        "the host's name for the link is taken",
        "an error or another name; the foreign link is not touched",
    ),
    row(38, "DEL: namespace empty, missing, a file, another pod's", "success; the other pod is not touched"),
    row(39, "DEL twice, of strangers, with garbage, in old versions", "success each time"),
    row(40, "container ids of 1, 64 and 255 characters, dots, ../x", "valid ones work, others have code 4"),
    row(41, "log directory full, read-only or missing", "ADD and DEL succeed; a counter of lost lines grows"),
    row(42, "the runtime's cache is on a full disk", "DEL without an earlier result succeeds"),
    row(43, "/run full or read-only when the server starts", "a clear fatal error; STATUS 50"),
    row(
        44,
        "64 descriptors for the server, 100 ADDs at once",
        "it waits for free ones without spinning; all are served",
    ),
    row(45, "no more threads", "ADD has code 11, the server lives").instead(
        "ADD succeeds: neither the plugin nor the server needs a new thread for it, so nothing has to fail",
    ),
    row(46, "40 MB of memory for 500 pods", "enough in a steady state; queues are bounded"),
    row(
        47,
        "the wall clock jumps by an hour",
        "nothing fires early or late; credentials are looked at again",
    ),
    row(
        48,
        "10 MB requests, slow ones, half-closed ones, 1,000 idle ones",
        "at most 1 MiB a request and 5 s for it, bounded connections; real ADDs are not affected",
    ),
    row(49, "a peer that is not root", "refused, logged once"),
    row(
        50,
        "a storm of link changes",
        "the p99 of ADDs grows to three times at most; with 8 at once none times out",
    ),
    row(51, "netlink: ENOBUFS, EINTR, EBUSY, EEXIST", "tried again or told; no endless loop"),
    row(52, "the namespace is deleted during ADD", "undone; code 3 or 8"),
    row(53, "the ports of all live pods are deleted", "they are back within 2 s, pods reach each other"),
    row(
        54,
        "the node restarts: links gone, database kept",
        "stale rows go before a new ADD of the same port; no pod takes another's",
    ),
    row(
        55,
        "GC with 50 valid attachments of 60",
        "10 are removed; a failure of one does not stop the others; other networks stay",
    ),
    row(56, "GC with an empty list during ADD", "the ADD is protected"),
    row(57, "STATUS under rows 1, 10, 16, 20 and 25", "50 or 51 within 200 ms; it never hangs"),
    row(
        58,
        "CHECK after tampering",
        "a code of 100 and above that names the difference; additions of others are tolerated",
    ),
    row(
        59,
        "plugin and server of different versions; replaced during a burst",
        "they understand each other; no call fails",
    ),
    row(60, "SIGTERM during ADDs", "they end within 20 s, STATUS 50; the configuration stays"),
    row(61, "server killed every 500 ms for 60 s, 8 pods at a time", "a consistent state, nothing is left"),
    row(62, "10,000 cycles of ADD and DEL", "memory, descriptors and the size of the database are flat"),
    row(
        63,
        "server stopped, its backlog full",
        "DEL succeeds within 2 s, CHECK has code 11 within 5 s, STATUS 50 within 2 s; no call hangs",
    ),
    row(
        64,
        "ovsdb-server stopped, its backlog full",
        "DEL, CHECK and GC have code 11, STATUS 51, ADD ends at its deadline; no call hangs",
    ),
    row(
        65,
        "other users of the host at the locks of calls for one interface",
        "no call waits for them, and they cannot reach the locks",
    ),
    row(
        66,
        "a pod is given another's address, or is deleted after its own was",
        "the connections of the pod that works with it stay",
    ),
    row(
        67,
        "southbound database and server restart, API server away for a minute, \
         on a runtime that asks for STATUS",
        "STATUS is 0 throughout",
    ),
    row(
        68,
        "OVN's run-time directory is elsewhere, or out of sight",
        "STATUS is 0 all the same, and 50 when ovn-controller really is gone",
    ),
    row(
        69,
        "the CNI configuration is removed or changed, again and again",
        "it is back, and the server does not fight",
    ),
    row(
        70,
        "networks that are not supported: a primary user-defined one, one twice in a pod",
        "code 2, named; what is attached goes on",
    ),
    row(
        71,
        "a node boots without an API server",
        "the kubelet starts, which may run it as a static pod; both units count as started",
    ),
    row(
        72,
        "a node boots without a default route and without a kubeconfig",
        "nothing ends; each is used as soon as it is there",
    ),
    row(
        73,
        "a node reboots, or its power is cut; /run is empty, the database is kept",
        "it is ready again, the kubelet runs",
    ),
    row(
        74,
        "the node's address changes while it runs, or while it is off",
        "tunnels end at the new one, unless an administrator gave it",
    ),
    row(
        75,
        "no pod of this node is known any more: another node's name, another cluster, \
         manifests that are not mounted",
        "nothing is removed until it is confirmed; log, Event and /readyz say what is suspected",
    ),
    row(
        76,
        "500 leftovers of a reboot are removed",
        "ADDs meanwhile take what they always take; \
         a port of a living pod that vanishes meanwhile is back within 2 s",
    ),
    row(
        77,
        "all files of OVN's databases are deleted: 500 nodes, 10,000 pods (short: 10 nodes, 166 pods)",
        "every row is written again, no pod is created anew, packets stop for no longer than OVN has no rows",
    ),
    row(
        78,
        "annotations of a node are lost or garbled, also while no control plane runs",
        "no packet is lost; they are repaired, or said to need it",
    ),
    row(
        79,
        "a pod's annotation is lost or garbled while no control plane runs",
        "it keeps its address, and no packet is lost",
    ),
    row(
        80,
        "an admission policy refuses the annotations of one pod",
        "others start meanwhile; an event on the pod says why it does not",
    ),
    row(
        81,
        "a pod is replaced by another of its name",
        "nothing that was meant for it is written on the other",
    ),
    row(
        82,
        "control plane: kill -9 of the leader while 200 pods a second come and go, \
         started again with the same arguments",
        "it leads within 2 s; annotation, port and interface agree for every pod, \
         no address was ever with two",
    ),
    row(
        83,
        "the same with another one that stands by, Lease 15/10/2 s",
        "the other leads within 15 s; the same for every pod",
    ),
    row(
        84,
        "control plane: the leader is stopped (SIGSTOP) past its Lease, then goes on",
        "another one leads; the former leader changes nothing and ends; the same for every pod",
    ),
    row(
        85,
        "control plane: SIGTERM of the leader",
        "what is under way is done, then another one leads at once; the same for every pod",
    ),
    row(
        86,
        "control plane: the northbound database is another zone's (NB_Global.name)",
        "nothing in it is changed, /readyz names the zone; \
         once the name is right, everything is as it should be",
    ),
    row(
        87,
        "control plane: the northbound database is another cluster's, while it runs and at its start",
        "nothing in it is changed, no packet is lost; /readyz names both clusters",
    ),
    row(
        88,
        "control plane: the kubeconfig is another cluster's, while it runs and at its start",
        "nothing is changed, no packet is lost; with the right one new pods start",
    ),
    row(
        89,
        "gateway: all nftables rules of the node are flushed while a client outside talks to a node port",
        "node ports and pods' connections to the world work again within 10 s, \
         connections to the node itself go on",
    ),
    row(
        90,
        "gateway: all flows of its bridge are deleted while a pod and the world talk, five times",
        "they are back within 5 s; no connection ends",
    ),
    row(
        91,
        "gateway: ovs-vswitchd is killed, and started again",
        "connections to the node go on, on the kernel's datapath those of pods to the world, too; \
         new ones work within 10 s",
    ),
    row(
        92,
        "gateway: the node's server is killed at any step of the set-up",
        "the node reaches its network; the next start completes the set-up, or --cleanup-node undoes it",
    ),
    row(
        93,
        "gateway: routes and neighbours of the server are deleted while a client outside talks to node ports",
        "they are back within 5 s, the client keeps its endpoint",
    ),
    row(
        94,
        "the DaemonSet is rolled out, and GC is called, on a runtime that asks for STATUS",
        "no node becomes NotReady, no Service loses an endpoint, no packet and no pod's attachment is lost",
    )
    .elsewhere(
        "make test-cluster",
        "no_node_leaves_service_while_the_daemon_set_is_rolled_out_under_containerd_2",
    ),
    row(
        95,
        "a connection table of 300,000 entries",
        "DEL removes the pod's connections and no others; it costs less than half a second of processor time",
    )
    .elsewhere(
        "make test",
        "row_95_of_a_quarter_of_a_million_connections_del_removes_those_of_the_pod_without_a_list",
    )
    .instead("250,000 entries: a namespace has room for 262,144, and only the host's own can raise that"),
    row(
        96,
        "control plane: the leader's machine stands still past its Lease, its clocks with it (a paused VM)",
        "another one leads; the former leader changes nothing in the northbound database and ends; \
         the same for every pod",
    ),
    row(
        97,
        "zones: files of a zone's databases are lost, southbound, northbound and both, \
         while its pods talk",
        "they come back with all rows before ovn-controller sees them; no connection ends",
    )
    .elsewhere(
        "make test",
        "databases_of_a_zone_that_are_lost_come_back_filled_while_its_pods_talk",
    ),
    row(
        98,
        "zones: a node of one zone is cloned into another, with its chassis",
        "packets of the node that had it go on in its zone; the clone is told, \
         and is reached again once it has a chassis of its own",
    ),
    row(
        99,
        "zones: a node id is with two nodes of two zones, while no cluster manager runs",
        "no packet is lost, the one that came later is told; \
         the cluster manager gives it another one",
    ),
    row(
        100,
        "zones: an address on the transit switch is with two nodes of two zones, \
         while no cluster manager runs and a controller starts",
        "no packet is lost, no row changes; the cluster manager gives the right one back",
    ),
    row(
        101,
        "zones: the clocks of one zone are an hour ahead, then an hour behind",
        "no packet is lost; new pods of either zone reach those of the other within the usual time",
    ),
    row(
        102,
        "zones: API server, cluster manager, and controller and databases of the other zone \
         are away",
        "the zone's databases are not written, also after a start of its controller; \
         its pods reach each other and those of the other zone",
    ),
];

/// The row with this number.
pub fn find(number: u8) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.number == number)
}

/// The number in a test's name: `server::row_16_what_holds` is of row 16, and `row_102_…` of 102.
pub fn number_of(test: &str) -> Option<u8> {
    let name = test.rsplit("::").next()?;
    let (number, rest) = name.strip_prefix("row_")?.split_once('_')?;
    let row = find(number.parse().ok()?).filter(|_| !rest.is_empty())?;
    // One spelling: `make faults` looks for it.
    (format!("{:02}", row.number) == number).then_some(row.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_numbered_from_1_without_a_gap() {
        let numbers: Vec<u8> = ROWS.iter().map(|row| row.number).collect();
        assert!(numbers.iter().copied().eq((1..=u8::MAX).take(numbers.len())), "{numbers:?}");
    }

    #[test]
    fn a_row_that_another_command_holds_names_a_test_that_exists() {
        for row in ROWS {
            let Some(Elsewhere { command, test }) = row.elsewhere else { continue };
            let tests = match command {
                "make test" => concat!(
                    include_str!("../../tests/lab/connections.rs"),
                    include_str!("../../tests/lab/zones/filled.rs")
                ),
                "make test-cluster" => include_str!("../../tests/lab/cluster/runtimes.rs"),
                other => panic!("row {}: {other}", row.number),
            };
            assert!(
                tests.contains(&format!("#[test]\nfn {test}() {{")),
                "row {}: {test}",
                row.number
            );
        }
    }

    #[test]
    fn a_test_belongs_to_the_row_that_its_name_begins_with() {
        assert_eq!(number_of("server::row_04_a_paused_server"), Some(4));
        assert_eq!(number_of("row_62_a_soak"), Some(62));
        assert_eq!(number_of("zones::row_102_a_zone_alone"), Some(102));
        for wrong in [
            "row_4_x",
            "row_016_x",
            "row_+4_x",
            "row_00_x",
            "row_16",
            "row_16_",
            "arow_16_x",
            "row_166_x",
            "row_1600_x",
            "row_é6_x",
        ] {
            assert_eq!(number_of(wrong), None, "{wrong}");
        }
    }
}
