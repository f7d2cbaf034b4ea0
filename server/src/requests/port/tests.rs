use contract::{
    annotation::{LEGACY, POD_NETWORKS},
    bandwidth::{EGRESS_ANNOTATION, INGRESS_ANNOTATION},
    error::Code,
    names::{IfName, Network},
    wire::{PORT_PATH, PodInterface, Request, Response},
};
use hyper::Method;
use podnet::rows::PortColumns;
use tokio::time::Instant;

use super::{
    super::{
        ApiPath, ApiRequest,
        test_state::{GOOD, TestState, cart, facts, handler_state, request},
    },
    *,
};
use crate::{
    pods::{MIGRATABLE, PodFacts},
    ports::WriteRequest,
};

const OTHER_MAC: Option<&str> =
    Some(r#"{"default":{"mac_address":"0a:58:0a:f4:01:06","ip_addresses":["10.244.1.5/24"]}}"#);
const OTHER_ADDRESS: Option<&str> =
    Some(r#"{"default":{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["10.244.1.6/24"]}}"#);

/// [`GOOD`], and what does not concern its port.
const WITH_MORE: &str = r#"{"default":{"mac_address":"0A:58:0a:f4:01:05","ip_addresses":["10.244.1.5/24"],"gateway_ips":["10.244.1.1"],
    "routes":[{"dest":"10.1.0.0/16","nextHop":"10.244.1.1"}]},"shop/blue":{"mac_address":"0a:58:0a:f4:01:07"}}"#;

fn annotated<const N: usize>(annotations: [(&str, &str); N]) -> PodFacts {
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    PodFacts { uid: "u1".to_owned(), annotations }
}

/// The name that the link of sandbox `c1` has on the cluster's own network.
fn host_link() -> IfName {
    "c1".parse().unwrap()
}

/// What the plugin makes of the server's answer to its ADD, after both have crossed the socket.
async fn attachment(played: &TestState, add: Request, network: &Network) -> Attachment {
    let answer = played.handler_state.add(add, Instant::now()).await.unwrap();
    let Body::Whole(body) = answer.body else { panic!("{answer:?}") };
    let interface: PodInterface =
        serde_json::from_slice::<Response>(&body).unwrap().pod_if_info.unwrap();
    let identity = Identity {
        sandbox: "c1".parse().unwrap(),
        if_name: "eth0".parse().unwrap(),
        network: network.clone(),
    };
    Attachment::plan(identity, &cart(), Some("u1"), interface)
}

/// The plugin's request as the server reads it.
fn sent(attachment: &Attachment) -> PortRequest {
    let body = serde_json::to_vec(&attachment.port_request(&host_link())).unwrap();
    match ApiPath::of(&Method::POST, PORT_PATH).and_then(|path| path.read(&body)).unwrap() {
        ApiRequest::Port(request) => request,
        other => panic!("{other:?}"),
    }
}

/// The request of a plugin that was answered before the test changes something.
async fn answered(played: &TestState) -> PortRequest {
    played.pods.put(&cart(), facts("u1", GOOD));
    sent(&attachment(played, request(|_| {}), &Network::Default).await)
}

/// The port that waits to be written. None other does.
fn queued(played: &mut TestState) -> PlannedPort {
    let WriteRequest { port, news: _ } = played.queue.requests.try_recv().unwrap();
    assert!(played.queue.requests.try_recv().is_err());
    port
}

/// The refusal. Nothing waits to be written.
fn refused(played: &mut TestState, request: PortRequest) -> (u16, Code, String, String) {
    let refusal = played.handler_state.port(request).unwrap_err();
    assert!(played.queue.requests.try_recv().is_err());
    let hint = refusal.hint(&played.handler_state.source.source_description());
    (refusal.status().as_u16(), refusal.code(), refusal.to_string(), hint)
}

#[tokio::test]
async fn the_server_plans_the_port_that_its_plugin_would_write() {
    let dual = r#"{"default":{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["10.244.1.5/24","fd00::5/64"],
        "gateway_ips":["10.244.1.1"],"routes":[{"dest":"10.244.0.0/16","nextHop":"10.244.1.1"}]}}"#;
    let blue = r#"{"shop/blue":{"mac_address":"0a:58:0a:f4:01:05","role":"secondary"}}"#;
    let legacy = r#"{"ip_address":"192.168.2.3/24","mac_address":"0a:00:00:00:00:01"}"#;
    let on_blue = Network::Attachment { name: "blue".to_owned(), nad: "shop/blue".to_owned() };
    let conf = br#"{"name":"blue","type":"t","topology":"layer2","netAttachDefName":"shop/blue"}"#;
    let limits = [(POD_NETWORKS, dual), (INGRESS_ANNOTATION, "7M"), (EGRESS_ANNOTATION, "10M")];
    for (pod, network) in [
        (annotated([(POD_NETWORKS, dual)]), Network::Default),
        (annotated(limits), Network::Default),
        (annotated([(POD_NETWORKS, dual), (MIGRATABLE, "")]), Network::Default),
        (annotated([(LEGACY, legacy)]), Network::Default),
        (annotated([(POD_NETWORKS, blue), (INGRESS_ANNOTATION, "7M")]), on_blue),
    ] {
        let mut played = handler_state(false);
        played.pods.put(&cart(), pod.clone());
        let add = request(|request| {
            if network != Network::Default {
                request.config = conf.to_vec();
            }
        });
        let attachment = attachment(&played, add, &network).await;
        played.handler_state.port(sent(&attachment)).unwrap();
        let port = queued(&mut played);
        assert_eq!((&port.name, &port.iface_id), (&host_link(), &attachment.iface_id), "{pod:?}");
        assert_eq!(port.columns, PortColumns::of(&attachment), "{pod:?}");
        assert_eq!(port.columns.external_ids["iface-id-ver"], "u1");
        assert_eq!(port.columns.qos.is_some(), pod == annotated(limits), "{pod:?}");
    }
}

/// A pod from a manifest may have no UID, and an older runtime sends none.
#[tokio::test]
async fn a_uid_that_only_one_side_knows_is_the_ports() {
    for (there, asked, expected) in
        [("u1", "u1", "u1"), ("", "u1", "u1"), ("u1", "", "u1"), ("", "", "")]
    {
        let mut played = handler_state(false);
        let request = PortRequest { uid: asked.to_owned(), ..answered(&played).await };
        played.pods.put(&cart(), facts(there, GOOD));
        played.handler_state.port(request).unwrap();
        let ids = queued(&mut played).columns.external_ids;
        assert_eq!(
            ids.get("iface-id-ver").map_or("", String::as_str),
            expected,
            "{there:?} {asked:?}"
        );
    }
}

#[tokio::test]
async fn a_port_of_another_mac_is_refused_and_the_refusal_says_what_the_annotation_has() {
    let mut played = handler_state(false);
    let request = answered(&played).await;
    let other = PortRequest { mac: "0a:58:0a:f4:01:06".parse().unwrap(), ..request.clone() };
    let (status, code, text, hint) = refused(&mut played, other);
    assert_eq!((status, code), (409, Code::TryAgain));
    assert_eq!(
        text,
        "pod shop/cart-0: the annotation k8s.ovn.org/pod-networks has 0a:58:0a:f4:01:05 10.244.1.5/24 for network \
         \"default\", and the port is for 0a:58:0a:f4:01:06 10.244.1.5/24"
    );
    assert!(
        hint.contains("tries again") && hint.contains("kubectl -n shop get pod cart-0"),
        "{hint}"
    );

    let many = (0..2000_u16).map(|number| format!("10.1.{}.{}/16", number >> 8, number & 0xff));
    let many =
        PortRequest { addresses: many.map(|text| text.parse().unwrap()).collect(), ..request };
    let (.., text, _) = refused(&mut played, many);
    assert!(text.ends_with("10.1.0.3/16 and 1996 more") && text.len() < 512, "{text}");
}

#[tokio::test]
async fn an_annotation_that_changes_between_answer_and_port_is_not_written_as_it_was() {
    for (changed, written) in [
        (facts("u1", OTHER_MAC), Err((409, Code::TryAgain))),
        (facts("u1", OTHER_ADDRESS), Err((409, Code::TryAgain))),
        (facts("u2", GOOD), Err((409, Code::UnknownContainer))),
        (facts("u1", Some("[]")), Err((422, Code::BadAnnotation))),
        (
            annotated([(POD_NETWORKS, GOOD.unwrap()), (INGRESS_ANNOTATION, "fast")]),
            Err((422, Code::BadAnnotation)),
        ),
        // The plugin writes these itself, and learns from its watch that the annotation is gone.
        (facts("u1", None), Err((503, Code::TryAgain))),
        (facts("u1", Some("{}")), Err((503, Code::TryAgain))),
        // Neither routes nor other networks are the port's.
        (facts("u1", Some(WITH_MORE)), Ok(())),
    ] {
        let mut played = handler_state(false);
        let request = answered(&played).await;
        played.pods.put(&cart(), changed.clone());
        let outcome = played.handler_state.port(request);
        assert_eq!(
            outcome.map(drop).map_err(|refusal| (refusal.status().as_u16(), refusal.code())),
            written,
            "{changed:?}"
        );
        assert_eq!(played.queue.requests.try_recv().is_ok(), written.is_ok(), "{changed:?}");
    }
}

#[tokio::test]
async fn addresses_in_another_order_are_the_same() {
    let both = |first, second| {
        format!(
            r#"{{"default":{{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":[{first:?},{second:?}]}}}}"#
        )
    };
    let mut played = handler_state(false);
    played.pods.put(&cart(), facts("u1", Some(&both("10.244.1.5/24", "fd00::5/64"))));
    let port = sent(&attachment(&played, request(|_| {}), &Network::Default).await);
    played.pods.put(&cart(), facts("u1", Some(&both("fd00::5/64", "10.244.1.5/24"))));
    played.handler_state.port(port).unwrap();
    queued(&mut played);
}

/// The new server of a roll-out has not read its pods yet, or the pod was deleted. Both end with
/// the plugin's own watch, as without this server.
#[tokio::test]
async fn a_port_of_a_pod_that_is_not_known_is_left_to_its_plugin() {
    for lagging in [false, true] {
        let request = answered(&handler_state(false)).await;
        let mut played = handler_state(lagging);
        let (status, code, text, _) = refused(&mut played, request);
        assert_eq!((status, code), (503, Code::TryAgain));
        assert!(text.starts_with("pod shop/cart-0 is not known on this node"), "{text}");
        assert_eq!(text.contains("the API server does not answer"), lagging);
    }
}

#[tokio::test]
async fn ports_are_written_while_the_server_drains_and_no_longer() {
    let mut played = handler_state(false);
    let request = answered(&played).await;
    played.phase.send_replace(Phase::Draining);
    played.handler_state.port(request.clone()).unwrap();
    queued(&mut played);
    played.phase.send_replace(Phase::Stopping);
    assert_eq!(refused(&mut played, request).0, 503);
}

/// An earlier plugin continues by itself after any answer but 200.
#[tokio::test]
async fn the_request_of_an_older_plugin_is_refused_so_that_it_writes_its_port_itself() {
    let body =
        br#"{"name":"c1","address":"10.244.1.5/24","external_ids":{"iface-id":"shop_cart-0","sandbox":"c1"},
        "ingress_policing":[0,0],"qos":{"type":"linux-htb","other_config":{},"external_ids":{}}}"#;
    let refusal = ApiPath::Port.read(body).unwrap_err();
    assert_eq!((refusal.status().as_u16(), refusal.code()), (400, Code::Decode));
    let hint = refusal.hint(&handler_state(false).handler_state.source.source_description());
    assert!(hint.contains("of this version"), "{hint}");
}
