//! Names: an accepted name is safe wherever it is used: as a component of a path, as a name in the
//! kernel, in an alias, as the ID of a port.

use std::path::Path;

use contract::{
    cni_args::PodArgs,
    mac::Mac,
    names::{IfName, IfaceId, Network, PodKey, SandboxId},
};
use podnet::{ownership_tag::OwnershipTag, plan::Identity};

use crate::LONGEST_ERROR;

/// `data` is names, separated by a space.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut words = text.split(' ');
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());

    for refusal in [
        text.parse::<SandboxId>().err(),
        text.parse::<IfName>().err(),
        PodKey::new(first, second).err(),
    ]
    .into_iter()
    .flatten()
    {
        assert!(refusal.to_string().len() <= LONGEST_ERROR);
    }
    if let Ok(name) = text.parse::<IfName>() {
        check_if_name(&name);
    }
    if let Ok(sandbox) = first.parse::<SandboxId>() {
        check_sandbox(&sandbox, second);
    }
    if let Ok(pod) = PodKey::new(first, second) {
        check_pod(&pod, first, second);
    }
    if let Ok(mac) = text.parse::<Mac>() {
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert_eq!(Mac::try_from(mac.octets()), Ok(mac));
    }
}

/// Whether a file with this name is directly inside its directory.
fn stays_inside(name: &str) -> bool {
    let base = Path::new("/base");
    let file = base.join(name);
    file.parent() == Some(base)
        && file.file_name().is_some_and(|found| found == name)
        && !name.contains('\0')
}

fn check_if_name(name: &IfName) {
    let text = name.as_str();
    assert!(stays_inside(text), "{text:?}");
    assert!((1..=15).contains(&text.len()), "{text:?}");
    assert!(!["lo", "all", "default"].contains(&text), "{text:?}");
    assert!(!text.contains(|c: char| c == ':' || c.is_whitespace() || c.is_control()), "{text:?}");
}

fn check_sandbox(sandbox: &SandboxId, other: &str) {
    assert_eq!(&sandbox.to_string(), sandbox.as_str());
    assert!(stays_inside(sandbox.as_str()), "{sandbox}");
    for name in
        [sandbox.host_if_name(), sandbox.host_if_name_with(7), sandbox.host_if_name_with(u32::MAX)]
    {
        assert_eq!(name.as_str().parse().as_ref(), Ok(&name), "the host's end for {sandbox}");
    }
    let networks =
        [Network::Default, Network::Attachment { name: "n".to_owned(), nad: other.to_owned() }];
    for (network, if_name) in
        networks.iter().flat_map(|network| [(network, "eth0"), (network, other)])
    {
        let Ok(if_name) = if_name.parse::<IfName>() else { continue };
        let identity = Identity { sandbox: sandbox.clone(), if_name, network: network.clone() };
        let alias = identity.alias();
        assert!(alias.len() <= 255, "an alias of {} bytes", alias.len());
        check_if_name(&identity.temporary_host_name());
        assert!(identity.owns(&alias), "{alias:?}");
        if *network == Network::Default
            && let Some(mark) = OwnershipTag::read(&alias)
        {
            // GC reads the owner back from the alias.
            assert_eq!((mark.identity, mark.pod), (identity, None));
        }
    }
}

fn check_pod(pod: &PodKey, namespace: &str, name: &str) {
    assert_eq!((pod.namespace(), pod.name()), (namespace, name));
    assert!(stays_inside(namespace) && stays_inside(name), "{pod}");
    let id = IfaceId::new(pod, &Network::Default);
    assert_eq!(
        id.as_str().split_once('_'),
        Some((namespace, name)),
        "two pods could have the port {id}"
    );
    let args = PodArgs::parse(&format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}"));
    assert_eq!(args.map(|args| args.pod).as_ref(), Ok(pod));
}
