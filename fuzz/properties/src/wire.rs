//! Bodies on the server's socket: each parsed body can be sent on, and means the same at the other
//! end.

use std::fmt::Debug;

use contract::{
    error::{CniError, Code},
    wire::{
        Metrics, PodInterface, PortRequest, PortStatus, Request, Response, WatchAnswer,
        WatchRequest,
    },
};
use serde::{Serialize, de::DeserializeOwned};

/// `data` is the body of any request or response.
pub fn check(data: &[u8]) {
    if let Some(request) = read::<Request>(data) {
        let again = resent(&request);
        assert_eq!(
            (again.env, again.config, again.timeout_ms),
            (request.env, request.config, request.timeout_ms)
        );
    }
    if let Some(Response { result, pod_if_info, kube_auth: _, primary_network: _, bridge: _ }) =
        read::<Response>(data)
    {
        if let Some(pod) = pod_if_info {
            check_interface(pod);
        }
        // A number may be written differently; nothing else may change.
        assert_eq!(resent(&result).is_some(), result.is_some());
    }
    if let Some(request) = read::<WatchRequest>(data) {
        assert_eq!(resent(&request), request);
        if let Ok(pod) = request.pod() {
            assert_eq!(
                (pod.namespace(), pod.name()),
                (request.namespace.as_str(), request.name.as_str())
            );
        }
    }
    if let Some(request) = read::<PortRequest>(data) {
        assert_eq!(resent(&request), request);
    }
    if let Some(news) = read::<PortStatus>(data) {
        assert_eq!(resent(&news), news);
    }
    if let Some(answer) = read::<WatchAnswer>(data) {
        assert_eq!(resent(&answer), answer);
    }
    if let Some(metrics) = read::<Metrics>(data) {
        let again = resent(&metrics);
        assert_eq!(again.stages.len(), metrics.stages.len());
        assert_eq!(
            (again.failed_stage, again.rollback, again.code),
            (metrics.failed_stage, metrics.rollback, metrics.code)
        );
    }
    if let Some(error) = read::<CniError>(data) {
        assert_eq!(resent(&error), error);
        let code = Code::from_number(error.code);
        assert!(code.number() == error.code || code == Code::Internal);
    }
}

/// Checks one interface; also used for the interface that an annotation leads to.
pub(crate) fn check_interface(pod: PodInterface) {
    let answer = resent(&Response::to_plugin(pod.clone()));
    assert_eq!(answer.pod_if_info, Some(pod));
}

fn read<T: DeserializeOwned>(data: &[u8]) -> Option<T> {
    serde_json::from_slice(data).ok()
}

fn resent<T: Serialize + DeserializeOwned + Debug>(message: &T) -> T {
    let text = serde_json::to_string(message)
        .unwrap_or_else(|error| panic!("{message:?} cannot be written: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text} is refused: {error}"))
}
