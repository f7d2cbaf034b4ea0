//! Policies that are dry runs: nothing is isolated, and what they would drop is logged. What OVN
//! makes of their rows is in `policies`.

use contract::{
    ovn::{DRY_RUN_METER, ObjectId},
    policy_annotation::DRY_RUN,
};
use controller::{
    engine::reconcile::Report,
    kinds::network_policy::wire::PolicyObject,
    watch_event::{Seen, WatchEvent},
};
use kubeapi::watch::Watched;
use ovsdb::Connection;
use serde_json::{Value, json};
use testkit::Scratch;

use crate::{
    cluster::{all_nodes, all_pods, config, node, pod},
    database::{Northbound, contents},
    running::Running,
};

/// The schema of this machine's OVN, with tiers of ACLs or without.
pub(crate) struct Schema {
    scratch: Scratch,
}

impl Schema {
    pub(crate) fn of_acls(tiers: bool) -> Self {
        Self::with(|columns| {
            columns.remove("tier");
            if tiers {
                // As of OVN 23.06, ovn-nb(5).
                let tier =
                    json!({"type": {"key": {"type": "integer", "minInteger": 0, "maxInteger": 3}}});
                columns.insert("tier".to_owned(), tier);
                let actions = columns["action"].pointer_mut("/type/key/enum/1").unwrap();
                let actions = actions.as_array_mut().unwrap();
                actions.retain(|action| action != "pass");
                actions.push(json!("pass"));
            }
        })
    }

    /// The schema with other columns of ACLs.
    pub(crate) fn with(change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Self {
        let text = std::fs::read_to_string("/usr/share/ovn/ovn-nb.ovsschema").unwrap();
        let mut schema: Value = serde_json::from_str(&text).unwrap();
        change(schema["tables"]["ACL"]["columns"].as_object_mut().unwrap());
        let scratch = Scratch::new();
        std::fs::write(scratch.join("nb.ovsschema"), schema.to_string()).unwrap();
        Self { scratch }
    }

    pub(crate) fn path(&self) -> &'static str {
        // For as long as the test runs.
        self.scratch.join("nb.ovsschema").display().to_string().leak()
    }
}

/// A controller with a node and a pod.
struct Scene {
    controller: Running,
    connection: Connection,
    _northbound: Northbound,
    _schema: Schema,
}

impl Scene {
    async fn begin(schema: Schema) -> Self {
        let northbound = Northbound::with_schema(schema.path());
        let connection = northbound.open().await;
        let mut controller = Running::without_services(northbound.endpoint(), config());
        controller.observe(all_nodes([node(1)]));
        controller.observe(all_pods([pod(0, 1, 0)]));
        controller.converged().await;
        Self { controller, connection, _northbound: northbound, _schema: schema }
    }

    /// Observes the policy with this annotation. Returns the reasons of what was told.
    async fn after(&mut self, dry_run: &str) -> Vec<&'static str> {
        let object = json!({
            "metadata": {"namespace": "ns0", "name": "web", "uid": "2", "annotations": {DRY_RUN: dry_run}},
            "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]},
        });
        let object: PolicyObject = serde_json::from_value(object).unwrap();
        let policy = WatchEvent::Policies(Seen::Applied(object.value().unwrap()));
        let told = self.controller.told_after([policy]).await.into_iter();
        let reason = |report| match report {
            Report::Problem(of) => of.reason,
            other => panic!("{other:?}"),
        };
        told.map(reason).collect()
    }

    /// The policy's ACLs: action, priority, whether it is logged, name.
    async fn acls(&self) -> Vec<String> {
        let all = contents(&self.connection).await;
        let rows = all
            .0
            .into_iter()
            .filter(|((table, name, _), _)| table == "ACL" && name.contains(":ns0:web:"));
        let text = |row: std::collections::BTreeMap<String, String>| {
            [&row["action"], &row["priority"], &row["log"], &row["name"]]
                .map(String::as_str)
                .join(" ")
        };
        let mut acls: Vec<String> = rows.map(|(_, row)| text(row)).collect();
        acls.sort();
        acls
    }

    /// Whether the pod is in the groups of the policy, and of what isolates it.
    async fn groups(&self) -> [bool; 2] {
        let all = contents(&self.connection).await;
        let key = contract::names::PolicyKey::new("ns0", "web").unwrap();
        let groups = [ObjectId::policy(&key), ObjectId::isolated("ns0", "Ingress")];
        groups.map(|id| {
            let row = all.row("Port_Group", &id.hashed());
            row.and_then(|row| row.get("ports")).is_some_and(|ports| ports.contains("ns0_p0"))
        })
    }
}

#[tokio::test]
async fn a_dry_run_isolates_nobody_and_logs_what_it_would_drop_until_it_is_enforced() {
    let mut scene = Scene::begin(Schema::of_acls(true)).await;
    let dry_run = [
        "pass Integer(900) Boolean(true) DryRun:ns0:web:Ingress",
        "pass Integer(901) Boolean(false) DryRun:ns0:web:Ingress",
        "pass Integer(901) Boolean(false) NP:ns0:web:Ingress:0",
    ];
    let enforced = ["allow-related Integer(1001) Boolean(false) NP:ns0:web:Ingress:0"];
    for (annotation, acls, isolated) in [
        ("true", &dry_run[..], false),
        ("false", &enforced, true),
        ("true", &dry_run, false),
        // What cannot be read opens nothing.
        ("yes", &enforced, true),
    ] {
        let told = scene.after(annotation).await;
        let expected: &[_] = if annotation == "yes" { &["UnusableAnnotation"] } else { &[] };
        assert_eq!(told, expected, "{annotation}");
        assert_eq!(scene.acls().await, acls, "{annotation}");
        assert_eq!(scene.groups().await, [true, isolated], "{annotation}");
    }
}

/// The policy was refused as a whole, and its pods waited for its group.
#[tokio::test]
async fn a_database_with_tiers_and_no_way_to_pass_is_as_one_without_tiers() {
    let schema = Schema::with(|columns| {
        let tier = json!({"type": {"key": {"type": "integer", "minInteger": 0, "maxInteger": 3}}});
        columns.insert("tier".to_owned(), tier);
        let actions = columns["action"].pointer_mut("/type/key/enum/1").unwrap();
        actions.as_array_mut().unwrap().retain(|action| action != "pass");
    });
    let mut scene = Scene::begin(schema).await;
    assert_eq!(scene.after("true").await, ["NoTiers"]);
    assert_eq!((scene.acls().await, scene.groups().await), (vec![], [true, false]));
}

/// Each ACL had lines of its own, and a namespace may have thousands of dry runs.
#[tokio::test]
async fn all_dry_runs_together_are_logged_as_often_as_one_acl() {
    let mut scene = Scene::begin(Schema::of_acls(true)).await;
    let meters = async |scene: &Scene| {
        let all = contents(&scene.connection).await;
        let of = |table: &str, column: &str| {
            let rows =
                all.0.iter().filter(|((name, id, _), _)| name == table && id.contains("ns0:web:"));
            rows.map(|(_, row)| row[column].clone()).collect::<Vec<_>>()
        };
        (of("ACL", "meter"), all.row("Meter", DRY_RUN_METER).map(|row| row["fair"].clone()))
    };
    assert_eq!(meters(&scene).await, (vec![], None), "an adopted database has none");
    scene.after("true").await;
    let (of_acls, fair) = meters(&scene).await;
    assert_eq!(of_acls.iter().filter(|meter| *meter == DRY_RUN_METER).count(), 2, "{of_acls:?}");
    assert_eq!(fair.as_deref(), Some("Boolean(false)"));
}

#[tokio::test]
async fn without_tiers_a_dry_run_has_no_effect_and_an_event_says_so_once() {
    let mut scene = Scene::begin(Schema::of_acls(false)).await;
    assert_eq!(scene.after("true").await, ["NoTiers"]);
    assert_eq!((scene.acls().await, scene.groups().await), (vec![], [true, false]));
    assert_eq!(scene.after("false").await, [""; 0]);
    assert_eq!(scene.groups().await, [true, true]);
}
