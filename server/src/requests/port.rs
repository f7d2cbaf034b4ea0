//! `POST /port`: plans a pod's port from its annotations, as the plugin does from the answer to its
//! ADD, and queues it. Refuses a port with other addresses than the annotation has now.

use std::collections::BTreeSet;

use contract::{annotation::PodNetwork, cni_args::PodArgs, mac::Mac, wire::PortRequest};
use hyper::StatusCode;
use ipnet::IpNet;
use podnet::plan::{Attachment, Identity};

use super::{
    ApiResponse, Body, HandlerState, Phase,
    pod_wait::{PodWait, WaitStep},
};
use crate::{api_error::ApiError, ports::PlannedPort};

/// Addresses that a refusal names. A pod has one or two; an annotation may have thousands.
const NAMED: usize = 4;

impl HandlerState {
    pub(super) fn port(&self, request: PortRequest) -> Result<ApiResponse, ApiError> {
        // While the server drains, the ports of ADDs in flight are still written.
        if self.phase() >= Phase::Stopping {
            return Err(ApiError::ShuttingDown);
        }
        let port = self.planned(request)?;
        Ok(ApiResponse { status: StatusCode::OK, body: Body::News(self.ports.write(port)) })
    }

    fn planned(&self, request: PortRequest) -> Result<PlannedPort, ApiError> {
        let PortRequest { pod, uid, network, sandbox, if_name, host_link, mac, addresses } =
            request;
        let args = PodArgs {
            pod: pod.clone(),
            uid: Some(uid).filter(|uid| !uid.is_empty()),
            infra_container_id: None,
        };
        // The port has no MTU of its own.
        let mut wait = PodWait::new(args, network.clone(), None, self.add);
        let interface = match wait.look(self.source.watch(&pod).now().as_deref())? {
            WaitStep::Answer(interface) => *interface,
            WaitStep::Wait(missing) => return Err(wait.refusal(missing, self.not_synced())),
        };
        let PodNetwork { mac: mac_now, addresses: addresses_now, .. } = &interface.addressing;
        // The pod's end has the addresses of the request. OVN drops what it sends from others than
        // the annotation's (ovn-nb(5), `port_security`).
        let is_same = mac == *mac_now
            && addresses.iter().collect::<BTreeSet<_>>()
                == addresses_now.iter().collect::<BTreeSet<_>>();
        if !is_same {
            let (asked, there) = (described(mac, &addresses), described(*mac_now, addresses_now));
            let nad = network.annotation_key().to_owned();
            return Err(ApiError::OtherAddresses { pod, nad, asked, there });
        }
        let identity = Identity { sandbox, if_name, network };
        Ok(PlannedPort::of(&Attachment::plan(identity, &pod, None, interface), host_link))
    }
}

fn described(mac: Mac, addresses: &[IpNet]) -> String {
    let mut words: Vec<String> = addresses.iter().take(NAMED).map(IpNet::to_string).collect();
    words.insert(0, mac.to_string());
    if addresses.len() > NAMED {
        words.push(format!("and {} more", addresses.len() - NAMED));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests;
