use super::*;
use crate::{mac::Mac, names::Network};

/// What upstream's server sends in unprivileged mode, byte for byte.
const UPSTREAM: &str = r#"{"Result":null,"PodIFInfo":{"IPs":[{"IP":"10.244.1.5","Mask":"////AA=="},{"IP":"fd00::5","Mask":"//////////8AAAAAAAAAAA=="}],"MAC":"ClgK9AEF","Gateways":["10.244.1.1"],"Routes":[{"Dest":{"IP":"10.244.0.0","Mask":"//8AAA=="},"NextHop":"10.244.1.1"}],"TunnelID":0,"Role":"primary","mtu":1400,"routable-mtu":0,"ingress":0,"egress":0,"is-dpu-host-mode":false,"skip-ip-config":false,"pod-uid":"uid","vf-netdev-name":"","enable-udp-aggregation":false,"netName":"default","nadName":"default"},"KubeAuth":{"kube-api-server":"https://..","kube-api-token":"..","kube-api-token-file":"..","kube-ca-data":"YQ=="}}"#;

#[test]
fn upstreams_answer_is_understood_and_ours_means_the_same() {
    let pod = serde_json::from_str::<Response>(UPSTREAM).unwrap().pod_if_info.unwrap();
    assert_eq!(pod.network, Network::Default);
    assert_eq!(
        pod.addressing.addresses,
        ["10.244.1.5/24".parse().unwrap(), "fd00::5/64".parse().unwrap()]
    );
    assert_eq!(pod.addressing.mac, "0a:58:0a:f4:01:05".parse::<Mac>().unwrap());
    assert_eq!(pod.addressing.routes[0].destination, "10.244.0.0/16".parse().unwrap());

    let ours = serde_json::to_value(Response::to_plugin(pod.clone())).unwrap();
    let upstream: serde_json::Value = serde_json::from_str(UPSTREAM).unwrap();
    for (key, value) in upstream["PodIFInfo"].as_object().unwrap() {
        assert_eq!(&ours["PodIFInfo"][key], value, "{key}");
    }
    assert_eq!(
        ours["KubeAuth"],
        serde_json::json!({"kube-api-server": "http://127.0.0.1:0"}),
        "upstream's plugin crashes without a server"
    );
    assert_eq!(serde_json::from_value::<Response>(ours).unwrap().pod_if_info, Some(pod));
}

#[test]
fn a_finished_result_and_an_empty_answer_are_understood() {
    let finished: Response =
        serde_json::from_str(r#"{"Result":{"dns":{}},"PodIFInfo":null,"KubeAuth":null}"#).unwrap();
    assert_eq!(
        (finished.result, finished.pod_if_info),
        (Some(serde_json::json!({"dns":{}})), None)
    );
}

#[test]
fn a_request_carries_standard_input_byte_for_byte() {
    let request = Request {
        env: BTreeMap::from([("CNI_COMMAND".to_owned(), "ADD".to_owned())]),
        config: b"{\"a\":\xff}".to_vec(),
        timeout_ms: None,
    };
    let text = serde_json::to_string(&request).unwrap();
    assert_eq!(text, r#"{"env":{"CNI_COMMAND":"ADD"},"config":"eyJhIjr/fQ=="}"#);
    assert_eq!(serde_json::from_str::<Request>(&text).unwrap().config, request.config);
}

#[test]
fn a_malformed_answer_is_refused_with_the_field() {
    for (from, to, message) in [
        ("ClgK9AEF", "ClgK", "MAC [10, 88, 10] is not six octets"),
        ("////AA==", "/wD/AA==", "Mask [255, 0, 255, 0] is not a netmask"),
        ("10.244.1.5", "pod", "IP \"pod\" is not an IP address"),
        ("\"mtu\":1400", "\"mtu\":9", "mtu 9 is not an MTU"),
    ] {
        let error =
            serde_json::from_str::<Response>(&UPSTREAM.replace(from, to)).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn upstreams_metrics_are_understood() {
    let metrics: Metrics =
        serde_json::from_str(r#"{"command":"ADD","elapsedTime":0.0021,"hasErr":false}"#).unwrap();
    assert_eq!(
        (metrics.command.as_str(), metrics.has_err, metrics.stages.len()),
        ("ADD", false, 0)
    );
}

#[test]
fn a_refusal_is_a_cni_error_to_those_who_know_no_more() {
    let error =
        CniError::new(crate::error::Code::TryAgain, "the server is shutting down", "try again");
    let refused = Refused { error: error.clone(), retry: Some(Retry::NextServer) };
    let text = serde_json::to_string(&refused).unwrap();
    assert_eq!(
        text,
        r#"{"code":11,"msg":"the server is shutting down","details":"try again","retry":"next_server"}"#
    );
    assert_eq!(serde_json::from_str::<CniError>(&text).unwrap(), error, "an older plugin");
    assert_eq!(serde_json::from_str::<Refused>(&text).unwrap(), refused);

    let final_one = serde_json::to_string(&Refused { error: error.clone(), retry: None }).unwrap();
    assert_eq!(final_one, serde_json::to_string(&error).unwrap());
    assert_eq!(serde_json::from_str::<Refused>(&final_one).unwrap().retry, None, "an older server");
    for newer in [r#""tomorrow""#, "7", "{}", "null"] {
        let refused =
            serde_json::from_str::<Refused>(&format!(r#"{{"code":11,"msg":"m","retry":{newer}}}"#))
                .unwrap();
        assert_eq!((refused.error.code, refused.retry), (11, None), "{newer}");
    }
}
