use contract::annotation::POD_NETWORKS;

use super::*;
use crate::pods::PodFacts;

fn request(uid: &str, nad: &str) -> WatchRequest {
    WatchRequest {
        namespace: "shop".to_owned(),
        name: "cart-0".to_owned(),
        uid: uid.to_owned(),
        mac: "0A:58:0a:f4:01:05".to_owned(),
        nad: nad.to_owned(),
    }
}

fn pod(uid: &str, incarnation: u64, settings: Option<&str>) -> Pod {
    let annotation =
        settings.map(|settings| (POD_NETWORKS.to_owned(), format!(r#"{{"default":{settings}}}"#)));
    Pod::new(
        PodFacts { uid: uid.to_owned(), annotations: annotation.into_iter().collect() },
        incarnation,
    )
}

const AS_CONFIGURED: Option<&str> =
    Some(r#"{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["10.244.1.5/24","fd00::5/64"]}"#);

#[test]
fn each_change_has_its_name_and_no_change_has_none() {
    let other_mac = Some(
        r#"{"mac_address":"0a:58:0a:f4:01:06","ip_addresses":["10.244.1.5/24","fd00::5/64"]}"#,
    );
    let other_address = Some(
        r#"{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["10.244.1.6/24","fd00::5/64"]}"#,
    );
    let other_order = Some(
        r#"{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["fd00::5/64","10.244.1.5/24"],"role":"primary"}"#,
    );
    for (then, change) in [
        (Some(pod("u1", 1, AS_CONFIGURED)), None),
        (Some(pod("u1", 1, other_order)), None),
        (None, Some(PodChange::Deleted)),
        (Some(pod("u2", 2, AS_CONFIGURED)), Some(PodChange::Replaced)),
        (Some(pod("u1", 2, AS_CONFIGURED)), Some(PodChange::Replaced)),
        (Some(pod("u1", 1, None)), Some(PodChange::AnnotationGone)),
        (Some(pod("u1", 1, other_mac)), Some(PodChange::AnnotationChanged)),
        (Some(pod("u1", 1, other_address)), Some(PodChange::AnnotationChanged)),
        (Some(pod("u1", 1, Some("{}"))), Some(PodChange::AnnotationChanged)),
    ] {
        let mut view = PodView::new(request("u1", "default"));
        assert_eq!(view.look(Some(&pod("u1", 1, AS_CONFIGURED))), None);
        assert_eq!(view.look(then.as_ref()), change, "{then:?}");
    }
}

#[test]
fn a_change_before_the_first_look_is_seen_by_uid_and_mac() {
    assert_eq!(
        PodView::new(request("u0", "")).look(Some(&pod("u1", 1, AS_CONFIGURED))),
        Some(PodChange::Replaced)
    );
    assert_eq!(PodView::new(request("", "")).look(Some(&pod("u1", 1, AS_CONFIGURED))), None);
    assert_eq!(PodView::new(request("u0", "")).look(Some(&pod("", 1, AS_CONFIGURED))), None);
    let mut moved = request("u1", "default");
    moved.mac = "0a:58:0a:f4:01:99".to_owned();
    assert_eq!(
        PodView::new(moved).look(Some(&pod("u1", 1, AS_CONFIGURED))),
        Some(PodChange::AnnotationChanged)
    );
    assert_eq!(
        PodView::new(request("u1", "shop/blue")).look(Some(&pod("u1", 1, AS_CONFIGURED))),
        Some(PodChange::AnnotationGone)
    );
}
