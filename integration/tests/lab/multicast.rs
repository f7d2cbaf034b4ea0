//! Multicast by packets: the control plane as a process, with an API server that the test plays.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, ensure};
use integration::{Families, Lab, Member, Pod, central::SOUTHBOUND, eventually};
use serde_json::{Value, json};

use crate::support::{
    api::Api,
    planned::{new_pod, tell_nodes},
};

/// Limit for rows and flows to follow, and for a switch to learn who has joined, on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// A group of each family. That of IPv6 is transient (RFC 4291 §2.7), and larger than a link.
const GROUPS: [&str; 2] = ["239.7.7.7:7777", "[ff1e::7:7]:7777"];

/// The namespace with this value of its annotation; without it, if there is none.
fn tell_namespace(api: &Api, name: &str, multicast: Option<&str>) {
    let annotations: Value = multicast
        .map_or_else(|| json!({}), |value| json!({"k8s.ovn.org/multicast-enabled": value}));
    let metadata = json!({"name": name, "uid": name, "annotations": annotations});
    api.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
}

/// Waits until all nodes have the rules of these namespaces. A pod that joins before is not heard,
/// and is asked again only after minutes.
fn in_force(lab: &Lab, namespaces: &[&str]) -> Result<()> {
    eventually("the rules are written", SOON, || {
        let acls = lab.central.nbctl(["--columns=external_ids", "list", "ACL"])?;
        let is_missing = |name: &&&str| !acls.contains(&format!("MulticastNS:{name}:Ingress"));
        let missing: Vec<_> = namespaces.iter().filter(is_missing).collect();
        ensure!(missing.is_empty(), "of {missing:?} there are none");
        Ok(())
    })?;
    lab.central.sync()
}

/// Rounds of datagrams, each with a number of its own.
struct Rounds<'a> {
    lab: &'a Lab,
    done: u64,
}

impl Rounds<'_> {
    /// Sends until these members hear it, and no others of them.
    fn reach<const N: usize>(
        &mut self,
        what: &str,
        sender: &Pod,
        members: [&Member; N],
        expected: [bool; N],
    ) -> Result<()> {
        eventually(what, SOON, || {
            self.done += 1;
            let heard = self.lab.heard_by(sender, self.done, members)?;
            ensure!(heard == expected, "heard: {heard:?}, and not {expected:?}");
            Ok(())
        })
    }
}

/// A sender and members on two nodes. Pods of another namespace with multicast, and one of a
/// namespace without, have joined the same group.
#[test]
fn pods_hear_the_members_of_their_namespace_on_all_nodes_and_nobody_hears_others() {
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        tell_nodes(lab, &api);
        tell_namespace(&api, "lab", Some("true"));
        tell_namespace(&api, "other", Some("true"));
        tell_namespace(&api, "plain", None);
        let control_plane = api.control_plane_with([
            "--enable-multicast".to_owned(),
            // With it, OVN 26.03 tracks multicast: it reads the ports of fragments.
            format!("--sb-address={SOUTHBOUND}"),
        ]);
        control_plane.spawn()?;
        let sender = new_pod(lab, &api, 0, "lab")?;
        let here = new_pod(lab, &api, 0, "lab")?;
        let there = new_pod(lab, &api, 1, "lab")?;
        let other = [new_pod(lab, &api, 0, "other")?, new_pod(lab, &api, 1, "other")?];
        let plain = new_pod(lab, &api, 1, "plain")?;
        let mut rounds = Rounds { lab, done: 0 };
        for group in GROUPS {
            let group: SocketAddr = group.parse()?;
            tell_namespace(&api, "lab", Some("true"));
            in_force(lab, &["lab", "other"])?;
            let join = |pod: &Pod| lab.member(pod, group);
            let (own, far) = (join(&here)?, join(&there)?);
            let strangers = [join(&other[0])?, join(&other[1])?, join(&plain)?];
            let members = [&own, &far, &strangers[0], &strangers[1], &strangers[2]];
            let mut reach = |what: &str, sender: &Pod, expected: [bool; 5]| {
                rounds.reach(&format!("{group}: {what}"), sender, members, expected)
            };
            reach(
                "the namespace's members on both nodes hear it",
                &sender,
                [true, true, false, false, false],
            )?;
            reach(
                "the other namespace hears its own",
                &other[0],
                [false, false, false, true, false],
            )?;
            reach("a pod without multicast reaches nobody", &plain, [false; 5])?;
            tell_namespace(&api, "lab", None);
            reach("without the annotation nobody hears it", &sender, [false; 5])?;
            reach(
                "the other namespace still hears its own",
                &other[0],
                [false, false, false, true, false],
            )?;
            tell_namespace(&api, "lab", Some("yes"));
            eventually("an event names what is no switch", SOON, || {
                let events = api.events();
                ensure!(events.iter().any(|reason| reason == "UnusableAnnotation"), "{events:?}");
                Ok(())
            })?;
            reach("what is no switch opens nothing", &sender, [false; 5])?;
        }
        Ok(())
    });
}
