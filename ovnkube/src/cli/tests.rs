use super::*;

fn read(line: &str) -> Invocation {
    Invocation::read(line.split_whitespace().map(OsString::from))
}

fn command(line: &str) -> Command {
    match read(line) {
        Invocation::Command(command) => *command,
        other => panic!("{line}: {other:?}"),
    }
}

fn unusable(line: &str) -> String {
    match read(line) {
        Invocation::Unusable(why) => why,
        other => panic!("{line}: {other:?}"),
    }
}

fn text(line: &str) -> String {
    match read(line) {
        Invocation::Text(text) => text,
        other => panic!("{line}: {other:?}"),
    }
}

fn bridges(line: &str) -> uplink::Command {
    match command(line) {
        Command::Bridges(command) => command,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_commands_for_bridges_are_known_under_every_name_of_the_program() {
    for program in ["ovnkube", "/usr/bin/ovn-kube-util", "ovn-k8s-util", "kubectl-ovn"] {
        let database = contract::paths::OVSDB_ENDPOINT.parse().unwrap();
        let interfaces = vec!["eth0".to_owned(), "eth1".to_owned()];
        let expected = uplink::Command::NicsToBridge { database, interfaces };
        assert_eq!(bridges(&format!("{program} nics-to-bridge eth0 eth1 eth0")), expected);
        let database = contract::paths::OVSDB_ENDPOINT.parse().unwrap();
        let expected =
            uplink::Command::BridgesToNic { database, bridges: vec!["breth0".to_owned()] };
        assert_eq!(bridges(&format!("{program} bridges-to-nic breth0")), expected);
    }
    let database = "tcp:127.0.0.1:6640".parse().unwrap();
    let expected = uplink::Command::NicsToBridge { database, interfaces: vec!["eth0".to_owned()] };
    for line in [
        "nics-to-bridge --db=tcp:127.0.0.1:6640 eth0",
        "nics-to-bridge eth0 -db tcp:127.0.0.1:6640",
    ] {
        assert_eq!(bridges(&format!("ovnkube {line}")), expected, "{line}");
    }
}

#[test]
fn a_command_line_without_a_command_is_options() {
    for line in [
        "ovnkube",
        "ovnkube --init-node policy",
        "ovnkube --init-node n1 --help",
        "ovnkube -version",
    ] {
        assert!(matches!(read(line), Invocation::Options), "{line}");
    }
}

#[test]
fn two_ends_and_a_port_are_a_question_and_options_stand_anywhere() {
    for line in [
        "ovnkube policy explain shop/cart shop/db 53/udp --nb-address unix:/x",
        "kubectl-ovn policy explain -nb-address=unix:/x -o json shop/cart shop/db 53/udp",
    ] {
        let Command::Explain { question, format, .. } = command(line) else { panic!("{line}") };
        let asks_for_json = line.contains("-o json");
        assert_eq!(format, if asks_for_json { Format::Json } else { Format::Text });
        assert_eq!(question, Question::read("shop/cart", "shop/db", "53/udp").unwrap(), "{line}");
    }
}

#[test]
fn a_command_that_is_not_there_is_refused_with_the_one_that_was_meant() {
    for (line, why) in [
        ("ovnkube polcy explain", "there is no command \"polcy\" (is it policy?)"),
        ("ovnkube explain a b", "there is no command \"explain\" (is it policy explain?)"),
        (
            "ovnkube nic-to-bridge eth0",
            "there is no command \"nic-to-bridge\" (is it nics-to-bridge?)",
        ),
        ("ovn-kube-util master-init", "there is no command \"master-init\"\n"),
        ("ovnkube gateway-init", "there is no command \"gateway-init\"\n"),
        ("ovn-k8s-overlay minion-int", "there is no command \"minion-int\" (is it minion-init?)"),
        ("ovnkube policy describe shop/cart", "there is no command \"describe\""),
    ] {
        let said = unusable(line);
        assert!(said.starts_with(why), "{line}: {said}");
    }
}

#[test]
fn arguments_that_cannot_be_used_are_named() {
    for (line, why) in [
        ("ovnkube nics-to-bridge", "<INTERFACE>..."),
        ("ovnkube bridges-to-nic", "<BRIDGE>..."),
        ("ovnkube nics-to-bridge --force eth0", "unexpected argument '--force'"),
        ("ovnkube nics-to-bridge eth0 --db", "a value is required for '--db <ENDPOINT>'"),
        ("ovnkube nics-to-bridge eth0 --db=x", "option --db: endpoint \"x\" does not begin with"),
        ("ovnkube policy explain shop/cart shop/db", "<PORT[/PROTOCOL]>"),
        ("ovnkube policy explain cart shop/db 80", "\"cart\" is no end of a connection"),
    ] {
        let said = unusable(line);
        assert!(said.contains(why), "{line}: {said}");
        assert!(said.contains("--help"), "{line}: {said}");
    }
}

#[test]
fn help_has_every_command_and_every_option() {
    for line in ["ovnkube --help", "ovnkube help", "ovnkube -h"] {
        let help = text(line);
        for command in all_commands()
            .map(|definition| (definition.make)())
            .filter(|command| !command.is_hide_set())
        {
            let name = command.get_name();
            assert!(
                help.lines().any(|line| line.trim_start().starts_with(name)),
                "{line}: {name}: {help}"
            );
        }
        assert!(help.contains("--init-node"), "{help}");
    }
    for line in [
        "ovn-kube-util",
        "ovn-k8s-util --help",
        "ovnkube nics-to-bridge -h",
        "kubectl-ovn",
        "ovnkube policy",
        "ovn-k8s-overlay -h",
        "ovn-k8s-overlay gateway-init --help",
    ] {
        assert!(text(line).contains("Usage: "), "{line}");
    }
    assert!(
        text("kubectl-ovn policy explain --help").contains("Usage: kubectl ovn policy explain")
    );
}

/// clap checks the definitions when it builds them.
#[test]
fn the_definitions_are_consistent() {
    command_of_all().debug_assert();
}

fn command_of_all() -> clap::Command {
    super::command()
}

#[test]
fn each_command_that_reports_has_its_arguments_and_options_of_the_table() {
    let Command::Status { question, .. } =
        command("ovnkube status n1 --wait --wait-timeout 7 -o json --nb-address unix:/x")
    else {
        panic!("another command")
    };
    assert_eq!(question.node.as_deref(), Some("n1"));
    assert_eq!(question.wait, Some(std::time::Duration::from_secs(7)));
    assert_eq!(question.format, Format::Json);
    let Command::Check { question, .. } = command("kubectl-ovn check --nic eth1 -mtu 8900") else {
        panic!("another command")
    };
    assert_eq!(question.nic.as_deref(), Some("eth1"));
    let line = "ovnkube connectivity test --nodes a,b --disruption --duration 2m --allowed-loss 3";
    let Command::Connectivity { question, .. } = command(line) else { panic!("another command") };
    assert_eq!(
        question.nodes,
        crate::connectivity::Nodes::Named(vec!["a".to_owned(), "b".to_owned()])
    );
    let disruption = question.disruption.unwrap();
    assert_eq!(
        (disruption.duration, disruption.allowed),
        (Some(std::time::Duration::from_secs(120)), 3)
    );
    assert!(unusable("ovnkube status -o xml").contains("possible values: text, json, yaml"));
    assert!(unusable("ovnkube statsu").contains("is it status?"));
    assert!(unusable("ovnkube connectivity test --duration 2m").contains("--disruption"));
}

#[test]
fn the_manual_has_every_command_that_is_for_people() {
    let directory = tempfile::tempdir().unwrap();
    options::documents::write(directory.path(), &super::command(), &older_programs()).unwrap();
    let manual = std::fs::read_to_string(directory.path().join("man8/ovnkube.8"))
        .unwrap()
        .replace("\\-", "-");
    for command in [
        "status",
        "check",
        "connectivity test",
        "diagnose",
        "trace",
        "policy explain",
        "nics-to-bridge",
        "bridges-to-nic",
    ] {
        assert!(manual.contains(&format!("ovnkube {command}")), "{command}");
    }
    assert!(!manual.contains("ovnkube probe"), "{manual}");
    let bash = std::fs::read_to_string(directory.path().join("completions/ovnkube.bash")).unwrap();
    assert!(bash.contains("connectivity"), "{bash}");
    for (name, text) in [
        ("ovn-k8s-overlay", "ovn-k8s-overlay gateway-init"),
        ("ovn-k8s-overlay", "--rampout-ip-subnets"),
        ("ovn-k8s-gateway-helper", "--overwrite-pidfile"),
    ] {
        let path = directory.path().join(format!("man8/{name}.8"));
        let manual = std::fs::read_to_string(path).unwrap().replace("\\-", "-");
        assert!(manual.contains(text), "{name}: {manual}");
    }
}

/// The command lines of the walk-through of 2018.
#[test]
fn arguments_of_the_overlay_commands_are_those_of_2018() {
    let line = "ovn-k8s-overlay master-init --cluster-ip-subnet=192.168.0.0/16 \
                --master-switch-subnet=192.168.1.0/24 --node-name=Kube-Master";
    let network = crate::legacy::NodeNetwork {
        cluster: "192.168.0.0/16".parse().unwrap(),
        subnet: "192.168.1.0/24".parse().unwrap(),
        node: "kube-master".to_owned(),
    };
    let init = |line: &str| match command(line) {
        Command::Init { init, .. } => init,
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(init(line), crate::legacy::Init::Master(network));
    let line = "ovn-k8s-overlay gateway-init --cluster-ip-subnet=192.168.0.0/16 \
                --bridge-interface breth0 --physical-ip 10.33.74.20/24 --node-name n \
                --default-gw 10.33.74.1";
    let crate::legacy::Init::Gateway(gateway) = init(line) else { panic!("{line}") };
    assert_eq!(gateway.uplink, Some(crate::legacy::Uplink::Bridge("breth0".to_owned())));
    assert_eq!(gateway.next_hop, Some("10.33.74.1".parse().unwrap()));
}

#[test]
fn an_overlay_command_without_a_value_or_of_another_family_is_refused_in_one_sentence() {
    let rest = "--minion-switch-subnet 192.168.2.0/24 --node-name n";
    for (cluster, why) in [
        ("", "the following required arguments were not provided"),
        ("--cluster-ip-subnet=", "--cluster-ip-subnet has no value"),
        (
            "--cluster-ip-subnet=10.0.0.0/8 --cluster-ip-subnet=10.0.0.0/8",
            "cannot be used multiple times",
        ),
        ("--cluster-ip-subnet=fd00::/48", "these commands know IPv4 only"),
        ("--cluster-ip-subnet=192.168", "is no IPv4 network"),
        ("--cluster-ip-subnet=10.0.0.0/8 --node-nam=m", "unexpected argument"),
    ] {
        let line = format!("ovn-k8s-overlay minion-init {cluster} {rest}");
        let said = unusable(&line);
        assert!(said.contains(why), "{line}: {said}");
    }
}

#[test]
fn a_daemon_takes_the_options_of_open_vswitch() {
    let line = "/usr/bin/ovn-k8s-gateway-helper --physical-bridge=breth0 --physical-interface=eth0 \
                --pidfile --detach --log-file=/tmp/a.log -vfile:info -vconsole:emer -v";
    let Command::GatewayHelper { helper, .. } = command(line) else { panic!("{line}") };
    let daemon = helper.daemon;
    assert_eq!((helper.bridge.as_str(), helper.nic.as_str()), ("breth0", "eth0"));
    assert!(daemon.detach && !daemon.monitor && !daemon.overwrite_pidfile);
    assert_eq!(daemon.pidfile, Some(None));
    assert_eq!(daemon.log_file, Some(Some("/tmp/a.log".into())));
    assert_eq!(daemon.levels, ["file:info", "console:emer", "dbg"]);
    for (line, why) in [
        ("ovn-k8s-gateway-helper --physical-bridge=b", "--physical-interface <INTERFACE>"),
        ("ovn-k8s-gateway-helper --overlay", "unexpected argument '--overlay'"),
    ] {
        let said = unusable(line);
        assert!(said.contains(why), "{line}: {said}");
    }
    assert!(text("ovn-k8s-gateway-helper -h").contains("--physical-bridge"));
}

#[test]
fn a_trace_has_two_ends_and_at_most_one_protocol() {
    use contract::wire::TraceProtocol;
    for (line, protocol) in [
        ("", TraceProtocol::Icmp),
        ("--icmp", TraceProtocol::Icmp),
        ("--tcp 80 --size 1500", TraceProtocol::Tcp(80)),
        ("--udp 53 -o json", TraceProtocol::Udp(53)),
    ] {
        let Command::Trace { question, .. } =
            command(&format!("ovnkube trace shop/cart svc/shop/db {line}"))
        else {
            panic!("{line}")
        };
        assert_eq!(question.protocol, protocol, "{line}");
        assert_eq!(question.from.to_string(), "shop/cart");
        assert_eq!(question.to.to_string(), "svc/shop/db");
    }
    for (line, why) in [
        ("trace shop/cart", "TO"),
        ("trace shop/cart shop/db --tcp 80 --icmp", "cannot be used with"),
        ("trace shop/cart shop/db --tcp 0", "0"),
        ("trace shop/cart shop/db --tcp 80 --size 70000", "70000"),
        ("trace svc/shop/db shop/cart --tcp 80", "a Service sends nothing"),
        ("trace cart shop/db", "no end of a connection"),
    ] {
        let refused = unusable(&format!("ovnkube {line}"));
        assert!(refused.contains(why), "{line}: {refused}");
    }
}

#[test]
fn a_diagnosis_is_about_one_pod() {
    let Command::Diagnose { question, .. } = command("ovnkube diagnose shop/cart-0 -o yaml") else {
        panic!("another command")
    };
    assert_eq!(question.pod.to_string(), "shop/cart-0");
    for line in ["diagnose", "diagnose cart-0", "diagnose shop/CART", "diagnose shop/a/b"] {
        unusable(&format!("ovnkube {line}"));
    }
}

#[test]
fn nodes_move_by_name_or_all_at_once_and_not_both() {
    use crate::zones::{Direction, Scope};
    let migration = |line: &str| match command(&format!("ovnkube zones migrate {line}")) {
        Command::Zones { migration, .. } => migration,
        other => panic!("{line}: {other:?}"),
    };
    let named = migration("n2 n1 --wait-timeout 7 --k8s-apiserver https://a");
    assert_eq!(named.scope, Scope::Named(vec!["n2".to_owned(), "n1".to_owned()]));
    assert_eq!(named.direction, Direction::Own);
    assert_eq!(named.patience.as_secs(), 7);
    let all = migration("--all --back --dry-run");
    assert_eq!((all.scope, all.direction, all.is_dry), (Scope::All, Direction::Back, true));
    for line in ["", "n1 --all"] {
        assert!(!unusable(&format!("ovnkube zones migrate {line}")).is_empty(), "{line}");
    }
}
