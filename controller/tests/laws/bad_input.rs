//! Services and slices that no sensible program writes: what of them cannot be used is told, the
//! rest of them is served, and so are all others.

use controller::{
    engine::reconcile::Report,
    watch_event::{Seen, WatchEvent},
};
use kubeapi::services::{ServiceObject, SliceObject};
use kubeapi::watch::Watched;
use ovsdb::Connection;
use serde_json::{Value, json};

use crate::{
    cluster::{all_nodes, all_pods, config, node},
    database::{Northbound, contents},
    running::Running,
};

/// A controller with two nodes, and a Service that must not be disturbed.
struct Scene {
    controller: Running,
    connection: Connection,
    _northbound: Northbound,
}

impl Scene {
    async fn begin() -> Self {
        let northbound = Northbound::start();
        let connection = northbound.open().await;
        let controller = Running::without_services(northbound.endpoint(), config());
        controller.observe(all_nodes((1..=2).map(node)));
        controller.observe(all_pods([]));
        let mut scene = Self { controller, connection, _northbound: northbound };
        let good = [
            service("good", json!({"clusterIP": "172.16.0.9"})),
            slice("good", "IPv4", &["10.0.1.9"]),
        ];
        let told = scene.after(good).await;
        assert_eq!(told, [""; 0]);
        scene
    }

    /// Observes the objects, waits for the rows, and checks those of the other Service. Returns
    /// what was told, by reason and text.
    async fn after(&mut self, objects: impl IntoIterator<Item = Value>) -> Vec<String> {
        let told = self.controller.told_after(objects.into_iter().map(observation)).await;
        assert_eq!(self.backends("good").await, ["172.16.0.9:80=10.0.1.9:8080"]);
        let text = |report| match report {
            Report::Problem(problem) => format!("{}: {}", problem.reason, problem.note),
            other => format!("{other:?}"),
        };
        told.into_iter().map(text).collect()
    }

    /// What the load balancers of the Service map, address by address, without duplicates.
    async fn backends(&self, service: &str) -> Vec<String> {
        let of = format!("Service_shop/{service}_");
        let all = contents(&self.connection).await;
        let rows = all
            .0
            .iter()
            .filter(|((table, name, _), _)| table == "Load_Balancer" && name.starts_with(&of));
        // Lists of backends have commas without spaces.
        let vips = rows.filter_map(|(_, row)| row.get("vips")).flat_map(|vips| vips.split(", "));
        let mut vips: Vec<String> = vips.map(str::to_owned).collect();
        vips.sort();
        vips.dedup();
        vips
    }
}

fn observation(object: Value) -> WatchEvent {
    let text = object.to_string();
    if object["kind"] == "Service" {
        let object: ServiceObject = serde_json::from_str(&text).unwrap();
        WatchEvent::Services(Seen::Applied(object.value().unwrap()))
    } else {
        let object: SliceObject = serde_json::from_str(&text).unwrap();
        WatchEvent::Slices(Seen::Applied(object.value().unwrap()))
    }
}

/// A Service with the port 80, and this beside it.
fn service(name: &str, spec: Value) -> Value {
    let mut service = json!({
        "kind": "Service",
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-of-{name}")},
        "spec": {"ports": [{"port": 80, "targetPort": 8080}]},
    });
    let Value::Object(spec) = spec else { panic!("an object") };
    service["spec"].as_object_mut().unwrap().extend(spec);
    service
}

/// A slice of the Service with the port 8080.
fn slice(of: &str, kind: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<Value> =
        addresses.iter().map(|address| json!({"addresses": [address]})).collect();
    json!({
        "kind": "EndpointSlice",
        "metadata": {"namespace": "shop", "name": format!("{of}-{}", kind.to_lowercase()), "labels": {"kubernetes.io/service-name": of}},
        "addressType": kind, "ports": [{"port": 8080}], "endpoints": endpoints,
    })
}

#[tokio::test]
async fn nonsense_in_annotations_of_a_service_and_its_slice_changes_nothing() {
    let mut scene = Scene::begin().await;
    let long = "x".repeat(200_000);
    for (host, nonsense) in
        (5..).zip(["", "yesterday", "\u{0}\n\u{1b}[31m", "-9223372036854775809", &long])
    {
        let mut service = service("cart", json!({"clusterIP": "172.16.0.7"}));
        let mut slice = slice("cart", "IPv4", &[&format!("10.0.1.{host}")]);
        service["metadata"]["annotations"] = json!({
            "k8s.ovn.org/idled-at": nonsense, "service.kubernetes.io/topology-mode": nonsense, "x": nonsense,
        });
        slice["metadata"]["annotations"] =
            json!({"endpoints.kubernetes.io/last-change-trigger-time": nonsense});
        assert_eq!(scene.after([slice, service]).await, [""; 0]);
        assert_eq!(scene.backends("cart").await, [format!("172.16.0.7:80=10.0.1.{host}:8080")]);
    }
}

#[tokio::test]
async fn an_address_of_another_family_is_told_and_the_other_endpoints_serve() {
    let mut scene = Scene::begin().await;
    let addresses = ["fd00::5", "10.0.1.5", "10.0.1.300", "", "::ffff:10.0.1.6"];
    let service = service("cart", json!({"clusterIPs": ["172.16.0.7"]}));
    let told = scene.after([service, slice("cart", "IPv4", &addresses)]).await;
    assert_eq!(told.len(), 1, "one event for a Service: {told:#?}");
    let [event] = &told[..] else { unreachable!() };
    assert!(
        event.starts_with("AddressOfOtherFamily: ") && event.contains("shop/cart-ipv4"),
        "{event}"
    );
    assert!(event.contains("\"fd00::5\"") && event.contains("IPv4"), "{event}");
    assert_eq!(scene.backends("cart").await, ["172.16.0.7:80=10.0.1.5:8080"]);
}

#[tokio::test]
async fn five_thousand_ports_are_served_and_of_too_many_backends_the_first() {
    let mut scene = Scene::begin().await;
    let ports: Vec<Value> = (1..=5000)
        .map(|port| json!({"name": format!("p{port}"), "port": port, "targetPort": 20_000 + port}))
        .collect();
    let of_slice: Vec<Value> =
        (1..=5000).map(|port| json!({"name": format!("p{port}"), "port": 20_000 + port})).collect();
    let service = service("cart", json!({"clusterIP": "172.16.0.7", "ports": ports}));
    let with = |endpoints: u8| {
        let addresses: Vec<String> =
            (0..endpoints).map(|host| format!("10.0.1.{}", 10 + host)).collect();
        let mut slice =
            slice("cart", "IPv4", &addresses.iter().map(String::as_str).collect::<Vec<_>>());
        slice["ports"] = json!(of_slice);
        slice
    };
    assert_eq!(scene.after([service, with(2)]).await, [""; 0]);
    let backends = scene.backends("cart").await;
    assert_eq!(backends.len(), 5000);
    assert!(backends.contains(&"172.16.0.7:4711=10.0.1.10:24711,10.0.1.11:24711".to_owned()));

    // A hundred endpoints: half a million backends, which ovn-northd could not turn into flows.
    let told = scene.after([with(100)]).await;
    assert!(told.len() == 1 && told[0].starts_with("TooLarge: "), "{told:#?}");
    let served = scene.backends("cart").await.len();
    assert!((1..5000).contains(&served), "{served} ports are served");
    assert_eq!(scene.after([with(1)]).await, [""; 0]);
    assert_eq!(scene.backends("cart").await.len(), 5000);
}

/// It may be a machine outside of the cluster, which a Service may well have as its endpoint.
#[tokio::test]
async fn an_endpoint_in_no_subnet_of_a_node_is_served() {
    let mut scene = Scene::begin().await;
    let addresses = ["203.0.113.7", "10.77.0.5", "10.0.1.5"];
    let mut slice = slice("cart", "IPv4", &addresses);
    slice["endpoints"][1]["nodeName"] = json!("there-is-no-such-node");
    let told = scene.after([service("cart", json!({"clusterIP": "172.16.0.7"})), slice]).await;
    assert_eq!(told, [""; 0]);
    let all = "10.0.1.5:8080,10.77.0.5:8080,203.0.113.7:8080";
    assert_eq!(scene.backends("cart").await, [format!("172.16.0.7:80={all}")]);
}

#[tokio::test]
async fn names_of_253_characters_are_written_as_they_are() {
    let mut scene = Scene::begin().await;
    let long = "n".repeat(253);
    let mut of_long = slice(&long, "IPv4", &["10.0.1.5"]);
    of_long["metadata"]["name"] = json!(long);
    of_long["ports"][0]["name"] = json!(long);
    of_long["endpoints"][0]["nodeName"] = json!(long);
    let service =
        service(&long, json!({"clusterIP": "172.16.0.7", "ports": [{"name": long, "port": 80}]}));
    assert_eq!(scene.after([service, of_long]).await, [""; 0]);
    assert_eq!(scene.backends(&long).await, ["172.16.0.7:80=10.0.1.5:8080"]);
}

#[tokio::test]
async fn ports_and_addresses_that_are_none_are_told_and_the_others_serve() {
    let mut scene = Scene::begin().await;
    let ports =
        json!([{"name": "a", "port": 0}, {"name": "b", "port": 70_000}, {"name": "c", "port": 80}]);
    let spec = json!({"clusterIPs": ["172.16.0.7", "172.16.0.8.9"], "externalIPs": ["nowhere"], "ports": ports});
    let mut of_cart = slice("cart", "IPv4", &["10.0.1.5"]);
    of_cart["ports"] =
        json!([{"name": "c", "port": 8080, "protocol": "DCCP"}, {"name": "c", "port": 8080}]);
    let told = scene.after([service("cart", spec), of_cart]).await;
    assert!(told.len() == 1 && told[0].starts_with("NoAddress: "), "{told:#?}");
    assert!(told[0].contains("clusterIPs") && told[0].contains("172.16.0.8.9"), "{told:#?}");
    assert_eq!(scene.backends("cart").await, ["172.16.0.7:80=10.0.1.5:8080"]);
}
