//! The control plane's manifests: strictly parsed, with as few rights as it needs, and a command
//! line that the executable takes.

use std::ffi::OsString;

use contract::paths::ELECTION_DIR;
use controller::kinds::{
    egress_firewall::object::EgressFirewallObject, egress_qos::object::EgressQosObject,
};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
    },
};
use kubeapi::watch::Watched;
use ovnkube::options::{Environment, Options, Program};
use serde_json::Value;

use crate::manifests::{Manifests, conf, documents, read, strictly};

fn objects() -> Vec<Value> {
    documents(&read(&conf("kubernetes/ovn-kubernetes-control-plane.yaml")))
}

fn may(rules: Option<Vec<PolicyRule>>) -> Vec<String> {
    let rules = rules.unwrap();
    assert!(rules.iter().all(|rule| rule.non_resource_urls.is_none()));
    let of_rule = |rule: &PolicyRule| {
        let verbs = rule.verbs.join(",");
        let names = rule
            .resource_names
            .iter()
            .flatten()
            .fold(String::new(), |names, name| format!("{names} {name}"));
        rule.resources
            .iter()
            .flatten()
            .map(|resource| format!("{resource}{names}: {verbs}"))
            .collect::<Vec<_>>()
    };
    rules.iter().flat_map(of_rule).collect()
}

#[test]
fn its_account_may_annotate_nodes_and_pods_write_the_status_of_policies_read_services_keep_its_lease_write_events_and_nothing_else()
 {
    let objects = objects();
    let [account, role, binding, own_role, own_binding, config, deployment] = &objects[..] else {
        panic!("{objects:#?}")
    };
    let account: ServiceAccount = strictly(account);
    let (role, own_role): (ClusterRole, Role) = (strictly(role), strictly(own_role));
    let (binding, own_binding): (ClusterRoleBinding, RoleBinding) =
        (strictly(binding), strictly(own_binding));
    let (config, deployment): (ConfigMap, Deployment) = (strictly(config), strictly(deployment));

    assert_eq!(
        may(role.rules),
        [
            "nodes: get,list,watch",
            "pods: get,list,watch",
            "services: list,watch",
            "namespaces: list,watch",
            "endpointslices: list,watch",
            "servicecidrs: list,watch",
            "networkpolicies: list,watch",
            "clusternetworkpolicies: list,watch",
            "adminnetworkpolicies: list,watch",
            "baselineadminnetworkpolicies: list,watch",
            "clusternetworkpolicies/status: patch",
            "adminnetworkpolicies/status: patch",
            "baselineadminnetworkpolicies/status: patch",
            "egressfirewalls: list,watch",
            "egressqoses: list,watch",
            "egressfirewalls/status: patch",
            "egressqoses/status: patch",
            "nodes/status: patch",
            "pods/status: patch",
            "certificatesigningrequests: list,watch",
            "certificatesigningrequests/approval: patch",
            "signers kubernetes.io/kube-apiserver-client: approve",
            "namespaces kube-system: get",
            "events: create,patch"
        ]
    );
    assert_eq!(may(own_role.rules), ["leases: get,watch,create,update"]);
    let name = account.metadata.name.clone();
    for subjects in [binding.subjects, own_binding.subjects] {
        let [subject] = &subjects.unwrap()[..] else { panic!("one subject") };
        assert_eq!(
            (Some(&subject.name), &subject.namespace),
            (name.as_ref(), &account.metadata.namespace)
        );
    }
    assert_eq!(
        (Some(binding.role_ref.name), Some(own_binding.role_ref.name)),
        (role.metadata.name.clone(), own_role.metadata.name.clone())
    );
    let namespaces = [
        &account.metadata,
        &own_role.metadata,
        &own_binding.metadata,
        &config.metadata,
        &deployment.metadata,
    ];
    let namespace = Manifests::plain().namespace.metadata.name;
    assert!(namespaces.iter().all(|metadata| metadata.namespace == namespace));
    assert_eq!(deployment.spec.unwrap().template.spec.unwrap().service_account_name, name);
}

/// An EgressFirewall of any other form could not be created, or would have no status.
#[test]
fn the_definition_of_egress_firewalls_has_what_the_control_plane_reads_and_writes() {
    let [definition] = &documents(&read(&conf("kubernetes/egressfirewalls.yaml")))[..] else {
        panic!("one")
    };
    // Not `strictly`: limits of numbers are fractions in the type.
    let definition: CustomResourceDefinition = serde_json::from_value(definition.clone()).unwrap();
    let [version] = &definition.spec.versions[..] else {
        panic!("{:#?}", definition.spec.versions)
    };
    let path = format!(
        "/apis/{}/{}/{}",
        definition.spec.group, version.name, definition.spec.names.plural
    );
    assert_eq!(path, <EgressFirewallObject as Watched>::PATH);
    assert!(version.subresources.as_ref().is_some_and(|all| all.status.is_some()));
    let schema = version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    let field =
        |schema: &JSONSchemaProps, name: &str| schema.properties.as_ref().unwrap()[name].clone();
    let messages = field(&field(schema, "status"), "messages");
    assert_eq!(
        messages.x_kubernetes_list_type.as_deref(),
        Some("set"),
        "zones write one beside the other"
    );
    let rules = field(&field(schema, "spec"), "egress");
    let Some(JSONSchemaPropsOrArray::Schema(rule)) = rules.items else { panic!("{rules:#?}") };
    let to: Vec<String> = field(&rule, "to").properties.unwrap().into_keys().collect();
    assert_eq!(to, ["cidrSelector", "dnsName", "nodeSelector"]);
}

#[test]
fn the_definition_of_egress_qoses_has_what_the_control_plane_reads_and_writes() {
    let [definition] = &documents(&read(&conf("kubernetes/egressqoses.yaml")))[..] else {
        panic!("one")
    };
    let path = format!(
        "/apis/{}/{}/{}",
        definition["spec"]["group"].as_str().unwrap(),
        definition["spec"]["versions"][0]["name"].as_str().unwrap(),
        definition["spec"]["names"]["plural"].as_str().unwrap()
    );
    assert_eq!(path, <EgressQosObject as Watched>::PATH);
    let version = &definition["spec"]["versions"][0];
    assert!(version["subresources"]["status"].is_object());
    let fields = &version["schema"]["openAPIV3Schema"]["properties"];
    let conditions = &fields["status"]["properties"]["conditions"];
    assert_eq!(conditions["x-kubernetes-list-map-keys"][0], "type", "zones have one each");
    let rule = &fields["spec"]["properties"]["egress"]["items"]["properties"];
    assert_eq!((&rule["dscp"]["minimum"], &rule["dscp"]["maximum"]), (&0.into(), &63.into()));
    assert!(rule["dstCIDR"].is_object() && rule["podSelector"].is_object());
}

/// In a directory of the pod's own, an evicted leader's successor on the same node finds no lock,
/// and waits for 137 s.
#[test]
fn the_lock_of_the_leader_outlives_its_container_and_its_pod() {
    let objects = objects();
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let pod = strictly::<Deployment>(deployment).spec.unwrap().template.spec.unwrap();
    let [container] = &pod.containers[..] else { panic!("{:#?}", pod.containers) };
    // The default counts: neither its command line nor its options file names another directory.
    let text = serde_json::to_string(&objects).unwrap();
    assert!(!text.contains("election-lock-dir"), "{text}");
    let mounts = container.volume_mounts.as_ref().unwrap();
    let mount =
        mounts.iter().find(|mount| mount.mount_path == ELECTION_DIR).expect("a mount for the lock");
    assert_eq!((mount.read_only, mount.sub_path.as_deref()), (None, None));
    let volume =
        pod.volumes.as_ref().unwrap().iter().find(|volume| volume.name == mount.name).unwrap();
    let host = volume.host_path.as_ref().expect("a directory of the node");
    assert_eq!(
        (host.path.as_str(), host.type_.as_deref()),
        (ELECTION_DIR, Some("DirectoryOrCreate"))
    );
    // The kubelet makes the directory for root.
    assert_eq!(pod.security_context.unwrap().run_as_user, Some(0));
}

#[test]
fn its_command_line_and_options_file_are_what_the_executable_understands() {
    let objects = objects();
    let find = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let (config, deployment): (ConfigMap, Deployment) =
        (strictly(find("ConfigMap")), strictly(find("Deployment")));
    let mount = tempfile::tempdir().unwrap();
    for (name, text) in config
        .data
        .unwrap()
        .into_iter()
        .chain(["token", "ca.crt"].map(|name| (name.to_owned(), String::new())))
    {
        std::fs::write(mount.path().join(name), text).unwrap();
    }
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    let [container] = &pod.containers[..] else { panic!("{:#?}", pod.containers) };
    let conf_dir = format!("--config-file={}", mount.path().display());
    let argument = |text: &String| {
        text.replace("$(K8S_NODE)", "node1").replace("--config-file=/etc/ovn-kubernetes", &conf_dir)
    };
    let arguments = container.args.iter().flatten().map(argument);
    let mut from = Environment { service_account: mount.path().to_owned(), ..Environment::none() };
    let variables = [("KUBERNETES_SERVICE_HOST", "10.96.0.1"), ("KUBERNETES_SERVICE_PORT", "443")];
    from.variables.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let options = Options::read_in(
        std::iter::once("ovnkube".into()).chain(arguments.map(OsString::from)),
        &from,
    );
    let Program::ControlPlane(config, node) =
        options.program().unwrap_or_else(|problems| panic!("{problems}"))
    else {
        panic!("it is the control plane's")
    };
    assert_eq!(
        (config.identity.as_str(), config.election.unwrap().namespace.as_str()),
        ("node1", "ovn-kubernetes")
    );
    assert_eq!(node.notes(), Vec::<String>::new());
    let probes = [&container.liveness_probe, &container.readiness_probe]
        .map(|probe| probe.as_ref().unwrap().http_get.clone().unwrap());
    assert_eq!(probes.map(|probe| probe.path.unwrap()), ["/healthz", "/readyz"]);
    assert_eq!(config.endpoints.healthz, Some("127.0.0.1:9408".parse().unwrap()));
}
