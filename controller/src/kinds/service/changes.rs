//! What an event of a Service or of an EndpointSlice changes.

use std::{
    collections::{BTreeSet, HashSet},
    net::IpAddr,
    sync::Arc,
};

use contract::names::{ServiceKey, SliceKey};
use ipnet::IpNet;
use kubeapi::{
    object::Object,
    services::{AddressField, Refusal, Service, ServicePort, Slice},
};

use crate::{
    key::Dirty,
    kinds::service::{
        fanout,
        problem::ServiceProblem,
        state::{Known, MOST_TRIGGERS},
    },
    problem::Problem,
    world::Store,
};

impl Store {
    /// A Service with its slices; none if there is no such Service.
    pub fn service(&self, key: &ServiceKey) -> Option<(&Service, &Known)> {
        let known = self.services.get(key)?;
        Some((known.service()?, known))
    }

    /// Number of Services.
    pub fn services(&self) -> usize {
        self.services.count()
    }

    /// The ports of the Service that get load balancers: all that fit into its bounds and its
    /// namespace's.
    pub(crate) fn served_ports<'a>(
        &self,
        key: &ServiceKey,
        service: &'a Service,
    ) -> &'a [ServicePort] {
        let fit = self.services.get(key).map_or(0, |known| known.ports);
        let served = if self.services.quotas.admits(key) { fit } else { 0 };
        &service.ports[..served.min(service.ports.len())]
    }

    /// The addresses at which the Service, and no other one, serves the port.
    pub(crate) fn served_addresses<'a>(
        &'a self,
        key: &'a ServiceKey,
        service: &'a Service,
        port: &'a ServicePort,
    ) -> impl Iterator<Item = (AddressField, IpAddr)> + 'a {
        service.addresses().filter(move |(_, address)| self.services.serves(key, *address, port))
    }

    /// Addresses of a node have changed, none of which is for `externalIPs`.
    pub(crate) fn own_addresses_changed(
        &mut self,
        before: &[IpAddr],
        after: &[IpAddr],
        dirty: &mut Dirty<'_>,
    ) {
        if before != after {
            let others = self.services.claims.change_own(before, after);
            self.follow_others(others, dirty);
        }
    }

    /// The ranges of Services have changed.
    pub(crate) fn service_ranges_changed(&mut self, ranges: Vec<IpNet>, dirty: &mut Dirty<'_>) {
        let others = self.services.claims.set_ranges(ranges);
        self.follow_others(others, dirty);
    }

    /// These Services serve more or less from now on.
    fn follow_others(&mut self, others: BTreeSet<ServiceKey>, dirty: &mut Dirty<'_>) {
        for key in others {
            self.tell_service(&key);
            fanout::service(&key, dirty);
            self.follow_variables(self.services.variables.contains(&key), dirty);
        }
    }

    /// Services with NodePorts that can be templates.
    pub fn template_services(&self) -> impl Iterator<Item = &ServiceKey> {
        self.services.templates()
    }

    /// Those of them whose backends may need variables, too.
    pub(crate) fn services_with_variables(&self) -> impl Iterator<Item = &ServiceKey> {
        self.services.with_variables()
    }

    /// Services that are idled no longer. The caller passes each to [`is_awake`](Self::is_awake)
    /// after a while.
    pub fn in_grace(&self) -> &BTreeSet<ServiceKey> {
        &self.services.in_grace
    }

    /// The Service has had time to get its pods: without one it refuses connections again.
    pub fn is_awake(&mut self, key: &ServiceKey, dirty: &mut Dirty<'_>) {
        if self.services.in_grace.remove(key) {
            let config = Arc::clone(&self.config);
            self.services.change(key, &config, |known| known.in_grace = false);
            fanout::service(key, dirty);
        }
    }

    /// When the changes of the Service's endpoints happened that have come since the last call, in
    /// microseconds since 1970.
    pub fn take_triggers(&mut self, key: &ServiceKey) -> Vec<i64> {
        self.services
            .all
            .get_mut(key)
            .map(|known| std::mem::take(&mut known.triggers))
            .unwrap_or_default()
    }

    pub(crate) fn replace_services(
        &mut self,
        services: Vec<(ServiceKey, Service)>,
        dirty: &mut Dirty<'_>,
    ) {
        let there: HashSet<&ServiceKey> = services.iter().map(|(key, _)| key).collect();
        let gone = self.services.iter().map(|(key, _)| key).filter(|key| !there.contains(key));
        let gone: Vec<ServiceKey> = gone.cloned().collect();
        gone.iter().for_each(|key| self.remove_service(key, dirty));
        services.into_iter().for_each(|(key, service)| self.put_service(key, service, dirty));
    }

    pub(crate) fn put_service(&mut self, key: ServiceKey, service: Service, dirty: &mut Dirty<'_>) {
        let before = self.services.get(&key).and_then(Known::service);
        if before == Some(&service) {
            return;
        }
        let config = Arc::clone(&self.config);
        let (was_idled, is_idled) = (before.is_some_and(|before| before.idled), service.idled);
        let mut others = self.services.claim(&key, Some(&service));
        let concerned = self.services.change(&key, &config, |known| {
            known.in_grace = !is_idled && (known.in_grace || was_idled);
            known.service = Some(service);
        });
        if !is_idled && was_idled {
            self.services.in_grace.insert(key.clone());
        } else if is_idled {
            self.services.in_grace.remove(&key);
        }
        self.tell_service(&key);
        fanout::service(&key, dirty);
        self.may_need_variables(dirty);
        self.follow_variables(concerned.variables, dirty);
        others.extend(concerned.others);
        self.follow_others(others, dirty);
    }

    pub(crate) fn remove_service(&mut self, key: &ServiceKey, dirty: &mut Dirty<'_>) {
        if self.services.get(key).and_then(Known::service).is_none() {
            return;
        }
        let config = Arc::clone(&self.config);
        let mut others = self.services.claim(key, None);
        let concerned = self.services.change(key, &config, |known| {
            (known.service, known.told, known.in_grace) = (None, None, false);
        });
        self.services.in_grace.remove(key);
        fanout::service(key, dirty);
        self.follow_variables(concerned.variables, dirty);
        others.extend(concerned.others);
        self.follow_others(others, dirty);
    }

    pub(crate) fn replace_slices(&mut self, slices: Vec<(SliceKey, Slice)>, dirty: &mut Dirty<'_>) {
        let there: HashSet<&SliceKey> = slices.iter().map(|(key, _)| key).collect();
        let gone: Vec<SliceKey> =
            self.services.slices().filter(|key| !there.contains(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove_slice(key, dirty));
        for (key, slice) in slices {
            // The change that it tells of may be long ago.
            self.put_slice(key, Slice { triggered: None, ..slice }, dirty);
        }
    }

    pub(crate) fn put_slice(&mut self, key: SliceKey, mut slice: Slice, dirty: &mut Dirty<'_>) {
        let trigger = slice.triggered.take();
        // The label may have changed.
        if self
            .services
            .of_slice
            .get(&key)
            .is_some_and(|service| Some(service) != slice.service.as_ref())
        {
            self.remove_slice(&key, dirty);
        }
        let Some(service) = slice.service.clone() else { return };
        // Equal names share one allocation.
        for endpoint in &mut slice.endpoints {
            if let Some(name) = endpoint.node.as_ref().and_then(|name| self.nodes.name(name)) {
                endpoint.node = Some(Arc::clone(name));
            }
        }
        let before = self.services.get(&service).and_then(|known| known.slice(&key));
        if before == Some(&slice) {
            return;
        }
        let config = Arc::clone(&self.config);
        let concerned = self.services.change(&service, &config, |known| {
            match known.slices.binary_search_by(|(other, _)| other.cmp(&key)) {
                Ok(place) => known.slices[place].1 = slice,
                Err(place) => {
                    known.slices.reserve_exact(1);
                    known.slices.insert(place, (key.clone(), slice));
                }
            }
            if known.triggers.len() < MOST_TRIGGERS {
                known.triggers.extend(trigger);
            }
        });
        self.services.of_slice.entry(key).or_insert_with(|| service.clone());
        self.tell_service(&service);
        fanout::slice(&service, dirty);
        self.may_need_variables(dirty);
        self.follow_variables(concerned.variables, dirty);
        self.follow_others(concerned.others, dirty);
    }

    pub(crate) fn remove_slice(&mut self, key: &SliceKey, dirty: &mut Dirty<'_>) {
        let Some(service) = self.services.of_slice.remove(key) else { return };
        let config = Arc::clone(&self.config);
        let others = |known: &mut Known| known.slices.retain(|(other, _)| other != key);
        let concerned = self.services.change(&service, &config, others);
        self.tell_service(&service);
        fanout::slice(&service, dirty);
        self.may_need_variables(dirty);
        self.follow_variables(concerned.variables, dirty);
        self.follow_others(concerned.others, dirty);
    }

    /// Queues an event if the Service or its slices have begun to have a value that cannot be used.
    fn tell_service(&mut self, key: &ServiceKey) {
        let trouble = self.service_trouble(key);
        let Some(known) = self.services.all.get_mut(key) else { return };
        if trouble.as_ref() == known.told.as_deref() {
            return;
        }
        known.told = trouble.clone().map(Box::new);
        if let (Some(why), Some(service)) = (trouble, &known.service) {
            let object = Object::Service(key.clone());
            self.outbox.problems.push(Problem::new(object, &service.uid, &why));
        }
    }
}

impl Store {
    /// What of the Service cannot be used, or is not served: the first that matters.
    fn service_trouble(&self, key: &ServiceKey) -> Option<ServiceProblem> {
        let known = self.services.get(key)?;
        let service = known.service.as_ref()?;
        let of_slices = || known.slices().find_map(|slice| slice.unusable.clone());
        let unusable = service.unusable.clone().or_else(of_slices).map(ServiceProblem::Unusable);
        let refused = || {
            Some(match self.services.claims.refusal(key, service)? {
                Refusal::Reserved { address } => ServiceProblem::ReservedAddress { address },
                Refusal::Taken { claim, by } => ServiceProblem::AddressTaken { claim, by },
            })
        };
        let outside = || {
            let address =
                *service.cluster_ips.iter().find(|address| self.ranges.lack(**address))?;
            Some(ServiceProblem::OutsideOfRanges { address })
        };
        unusable.or_else(|| self.oversize(key, known, service)).or_else(refused).or_else(outside)
    }

    /// The bound that keeps some of the Service's ports from being served.
    fn oversize(
        &self,
        key: &ServiceKey,
        known: &Known,
        service: &Service,
    ) -> Option<ServiceProblem> {
        if let Some(exceeded) = self.services.quotas.exceeded(key) {
            return Some(ServiceProblem::NamespaceTooLarge(exceeded));
        }
        let (exceeded, first) = (*known.exceeded.as_deref()?, service.ports.get(known.ports)?.port);
        Some(ServiceProblem::TooLarge { exceeded, first })
    }

    /// The ranges have changed: queues events for Services that are outside of them now.
    pub(crate) fn tell_services(&mut self) {
        let keys: Vec<ServiceKey> = self.services.iter().map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.tell_service(key));
    }
}
