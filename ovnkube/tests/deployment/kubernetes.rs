//! The node's manifests: their rights are enough, and no more; their command line and probes fit
//! the executable.

use std::{collections::BTreeMap, ffi::OsString};

use contract::{
    annotations::OF_NODES,
    node_identity::{GROUP, NODE_OF_TOKEN, USER_PREFIX},
    paths::{CNI_CONF_DIR, SERVER_SOCKET},
};
use ovnkube::options::{Environment, Options, Program};
use server::node::PodsFrom;

use crate::manifests::{Manifests, conf, read};

#[test]
fn the_service_account_may_read_nodes_pods_and_services_annotate_nodes_request_certificates_write_events_and_nothing_else()
 {
    let manifests = Manifests::plain();
    let may: Vec<String> = manifests
        .role
        .rules
        .iter()
        .flatten()
        .flat_map(|rule| {
            assert!(rule.non_resource_urls.is_none() && rule.resource_names.is_none());
            let verbs = rule.verbs.join(",");
            rule.resources.iter().flatten().map(move |resource| format!("{resource}: {verbs}"))
        })
        .collect();
    assert_eq!(
        may,
        [
            "nodes: get,list,watch",
            "pods: get,list,watch",
            "services: list,watch",
            "endpointslices: list,watch",
            "servicecidrs: list,watch",
            "nodes/status: patch",
            "certificatesigningrequests: create,list,watch",
            "events: create,patch",
        ]
    );
    let name = manifests.account.metadata.name;
    let [subject, group] = &manifests.binding.subjects.unwrap()[..] else { panic!("two subjects") };
    assert_eq!(
        (Some(&subject.name), &subject.namespace),
        (name.as_ref(), &manifests.account.metadata.namespace)
    );
    assert_eq!((group.kind.as_str(), group.name.as_str()), ("Group", GROUP));
    assert_eq!(Some(manifests.binding.role_ref.name), manifests.role.metadata.name);
    assert_eq!(
        manifests.daemon_set.spec.unwrap().template.spec.unwrap().service_account_name,
        name
    );
    assert_eq!(manifests.namespace.metadata.name, manifests.account.metadata.namespace);
}

/// A container breakout on one node could write the addresses, the chassis and the gateway of every
/// other node.
#[test]
fn a_nodes_server_may_write_no_other_node_than_its_own() {
    let Manifests { account, role, policy, policy_binding, .. } = Manifests::plain();
    let spec = policy.spec.unwrap();
    assert_eq!(spec.failure_policy.as_deref(), Some("Fail"));
    // Everything of nodes that the role may write is what the policy is about.
    let [rule, requests] = &spec.match_constraints.clone().unwrap().resource_rules.unwrap()[..]
    else {
        panic!("two rules")
    };
    assert_eq!(requests.resources.as_ref().unwrap(), &["certificatesigningrequests"]);
    let about = rule.resources.clone().unwrap();
    let reads = ["get", "list", "watch"];
    let written = role
        .rules
        .unwrap()
        .into_iter()
        .filter(|rule| rule.verbs.iter().any(|verb| !reads.contains(&verb.as_str())));
    let of_nodes: Vec<String> = written
        .flat_map(|rule| rule.resources.unwrap_or_default())
        .filter(|resource| resource.starts_with("nodes"))
        .collect();
    assert!(
        !of_nodes.is_empty() && of_nodes.iter().all(|resource| about.contains(resource)),
        "{of_nodes:?}"
    );
    // A patch is an update.
    assert_eq!(rule.operations.as_ref().unwrap(), &["UPDATE"]);
    let [condition] = &spec.match_conditions.clone().unwrap()[..] else { panic!("one condition") };
    let account = account.metadata;
    let user = format!(
        "system:serviceaccount:{}:{}",
        account.namespace.unwrap(),
        account.name.as_deref().unwrap()
    );
    let user = format!("request.userInfo.username == \"{user}\" || ");
    assert!(condition.expression.starts_with(&user), "{}", condition.expression);
    for part in [USER_PREFIX, GROUP] {
        assert!(condition.expression.contains(&format!("\"{part}\"")), "{}", condition.expression);
    }
    // What it may annotate: what it writes, or older nodes have written, and nothing of the cluster
    // manager.
    let expression = |name: &str| {
        let variables = spec.variables.as_ref().unwrap();
        variables.iter().find(|variable| variable.name == name).unwrap().expression.clone()
    };
    let may = expression("ofServer");
    for annotation in OF_NODES {
        let is_its =
            annotation.written_by.ends_with("node") || annotation.written_by.ends_with("nodes");
        assert_eq!(
            may.contains(&format!("\"{}\"", annotation.name)),
            is_its,
            "{}",
            annotation.name
        );
    }
    assert!(expression("node").contains(&format!("\"{NODE_OF_TOKEN}\"")));
    let binding = policy_binding.spec.unwrap();
    assert_eq!(binding.policy_name, policy.metadata.name);
    assert_eq!(binding.validation_actions.unwrap(), ["Deny"]);
    assert!(binding.match_resources.is_none(), "it is bound to all nodes");
}

/// Pods of other ranges counted as hosts, and the kernel translated to them past OVN.
#[test]
fn the_nodes_are_told_the_subnets_that_the_control_plane_is_told() {
    let subnets = |text: &str| {
        let mut lines = text.lines().map(str::trim);
        lines.find_map(|line| line.strip_prefix("cluster-subnets=")).unwrap().to_owned()
    };
    let of_nodes = subnets(&Manifests::plain().config.data.unwrap()["ovn_k8s.conf"]);
    assert_eq!(of_nodes, subnets(&read(&conf("kubernetes/ovn-kubernetes-control-plane.yaml"))));
}

#[test]
fn the_container_has_one_capability_and_writes_only_where_it_must() {
    let manifests = Manifests::plain();
    let security = manifests.container().security_context.clone().unwrap();
    let capabilities = security.capabilities.unwrap();
    assert_eq!(
        (capabilities.drop.unwrap(), capabilities.add.unwrap()),
        (vec!["ALL".to_owned()], ["DAC_OVERRIDE", "NET_ADMIN"].map(str::to_owned).into())
    );
    assert_eq!((security.privileged, security.allow_privilege_escalation), (None, Some(false)));
    assert_eq!(security.read_only_root_filesystem, Some(true));
    let pod = manifests.daemon_set.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    assert_eq!((pod.host_pid, pod.host_ipc, pod.host_network), (None, None, Some(true)));
    assert_eq!(
        pod.security_context.as_ref().unwrap().seccomp_profile.as_ref().unwrap().type_,
        "RuntimeDefault"
    );

    let mounts = manifests.container().volume_mounts.as_ref().unwrap();
    let written: Vec<&str> = mounts
        .iter()
        .filter(|mount| mount.read_only != Some(true))
        .map(|mount| mount.mount_path.as_str())
        .collect();
    assert_eq!(written, ["/opt/cni/bin", CNI_CONF_DIR, "/var/run/ovn-kubernetes"]);
    assert!(SERVER_SOCKET.starts_with("/var/run/ovn-kubernetes/"));
    for volume in pod.volumes.as_ref().unwrap() {
        let mount = mounts
            .iter()
            .find(|mount| mount.name == volume.name)
            .unwrap_or_else(|| panic!("{} is mounted nowhere", volume.name));
        // The same path inside and outside: paths in the log are then paths on the node.
        assert!(
            volume.host_path.as_ref().is_none_or(|host| host.path == mount.mount_path),
            "{volume:?} {mount:?}"
        );
    }
}

#[test]
fn the_probes_ask_where_the_server_answers() {
    let manifests = Manifests::plain();
    let container = manifests.container();
    let argument = |name: &str| {
        container
            .args
            .as_ref()
            .unwrap()
            .iter()
            .find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
    };
    let probes = [&container.liveness_probe, &container.readiness_probe]
        .map(|probe| probe.as_ref().unwrap().http_get.clone().unwrap());
    for (probe, path) in probes.iter().zip(["/livez", "/readyz"]) {
        let k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(port) = probe.port
        else {
            panic!("{probe:?}")
        };
        assert_eq!(
            argument("--healthz-bind-address"),
            Some(format!("{}:{port}", probe.host.as_deref().unwrap()).as_str())
        );
        assert_eq!(probe.path.as_deref(), Some(path));
    }
    let port = container.ports.as_ref().unwrap()[0].container_port;
    assert_eq!(argument("--metrics-bind-address"), Some(format!(":{port}").as_str()));
}

#[test]
fn command_line_and_options_file_are_what_the_executable_understands() {
    let manifests = Manifests::plain();
    let pod = tempfile::tempdir().unwrap();
    for (name, text) in manifests
        .config
        .data
        .clone()
        .unwrap()
        .into_iter()
        .chain(["token", "ca.crt"].map(|name| (name.to_owned(), String::new())))
    {
        std::fs::write(pod.path().join(name), text).unwrap();
    }
    let conf_dir = format!("--config-file={}", pod.path().display());
    let arguments = manifests.container().args.clone().unwrap();
    let arguments = arguments.iter().map(|argument| {
        argument
            .replace("$(K8S_NODE)", "node1")
            .replace("--config-file=/etc/ovn-kubernetes", &conf_dir)
    });
    let mut environment =
        Environment { service_account: pod.path().to_owned(), ..Environment::none() };
    environment.variables.extend(
        [("KUBERNETES_SERVICE_HOST", "10.96.0.1"), ("KUBERNETES_SERVICE_PORT", "443")]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let arguments = std::iter::once("ovnkube".into()).chain(arguments.map(OsString::from));
    let program = Options::read_in(arguments, &environment)
        .program()
        .unwrap_or_else(|problems| panic!("{problems}"));
    let Program::Node(node) = program else { panic!("{program:?}") };
    let config = node.config(&BTreeMap::new()).unwrap_or_else(|problems| panic!("{problems}"));
    assert!(matches!(config.pods, PodsFrom::ApiServer(_)), "{config:?}");
    assert_eq!(node.notes(), Vec::<String>::new());
}

#[test]
fn the_options_file_is_where_the_command_line_says() {
    let manifests = Manifests::plain();
    let data = manifests.config.data.clone().unwrap();
    let (name, _) = data.first_key_value().unwrap();
    let mount = manifests
        .container()
        .volume_mounts
        .iter()
        .flatten()
        .find(|mount| mount.name == "conf")
        .unwrap();
    let argument = format!("--config-file={}/{name}", mount.mount_path);
    assert!(manifests.container().args.as_ref().unwrap().contains(&argument), "{argument}");
    let pod = manifests.daemon_set.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name).unwrap();
    assert_eq!(
        Some(&volume.config_map.as_ref().unwrap().name),
        manifests.config.metadata.name.as_ref()
    );
}
