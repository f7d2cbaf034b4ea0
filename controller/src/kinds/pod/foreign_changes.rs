//! What foreign addresses that come or go change for pods.

use std::net::IpAddr;

use contract::names::{IfaceId, Network, PodKey};
use ipnet::IpNet;
use kubeapi::object::Object;

use crate::{
    allocate::pod_network::Assigned,
    key::Dirty,
    kinds::pod::{
        foreign::ForeignAddress,
        problem::{ClaimProblem, SharedAddress},
    },
    problem::Problem,
    world::Store,
};

impl Store {
    /// Foreign ports have lost the addresses in `left` and got those in `came`. Pods that waited
    /// for an address that is free now get it.
    pub fn foreign_addresses(
        &mut self,
        left: Vec<ForeignAddress>,
        came: Vec<ForeignAddress>,
        dirty: &mut Dirty<'_>,
    ) {
        left.iter().for_each(|gone| self.foreign.take(gone));
        for new in came {
            let address = new.address;
            self.foreign.0.entry(address).or_default().insert(new);
            // A pod that has the address keeps it, because it runs; its owner gets an event.
            if let Some(pod) = self.addresses.owner(address).cloned() {
                self.tell_shared(&pod, address);
            }
        }
        // Last, because an address that moved from one foreign port to another is not free.
        left.into_iter().for_each(|gone| self.wake(gone.address, dirty));
    }

    /// A foreign port with this address. A port with the pod's own name does not count: the pod
    /// takes it over.
    fn foreign_port(&self, pod: &PodKey, address: IpAddr) -> Option<&ForeignAddress> {
        self.foreign
            .at(address, |node| self.nodes.contains(node))
            .find(|port| *port.port != *IfaceId::new(pod, &Network::Default).as_str())
    }

    /// No pod may claim an address of a foreign port.
    pub(crate) fn check_foreign(
        &self,
        pod: &PodKey,
        network: &Assigned,
    ) -> Result<(), ClaimProblem> {
        let mut addresses = network.addresses.iter().map(IpNet::addr);
        match addresses.find_map(|address| self.foreign_port(pod, address)).cloned() {
            Some(ForeignAddress { address, port, node }) => {
                Err(ClaimProblem::AddressOfPort { address, port, node })
            }
            None => Ok(()),
        }
    }

    /// Queues an event on the pod if the pod has this address and a foreign port has it, too.
    pub(crate) fn tell_shared(&mut self, pod: &PodKey, address: IpAddr) {
        let Some(known) = self.pods.get(pod) else { return };
        let has = known
            .network
            .as_ref()
            .is_some_and(|network| network.addresses.iter().any(|net| net.addr() == address));
        let Some(ForeignAddress { address, port, node }) =
            self.foreign_port(pod, address).filter(|_| has).cloned()
        else {
            return;
        };
        let shared = SharedAddress { address, port, node };
        let problem = Problem::new(Object::Pod(pod.clone()), &known.pod.uid, &shared);
        self.outbox.problems.push(problem);
    }
}
