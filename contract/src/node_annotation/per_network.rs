//! An annotation that is a JSON object with one entry for each network.
//!
//! Entries of other networks stay as they are, whatever they contain, so that a write of one
//! network's entry never removes another one.

use std::{collections::BTreeMap, fmt};

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{Gateway, GatewayEntry, GatewayMode, value};
use crate::{annotation::AnnotationError, mac::Mac};

/// The entries of an annotation, by network. `Display` prints the annotation's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PerNetwork(BTreeMap<String, Value>);

impl PerNetwork {
    /// Reads the text of an annotation. Each entry is parsed only when it is read.
    ///
    /// # Errors
    /// The text is longer than an annotation can be, or is not a JSON object.
    pub fn parse(text: &str) -> Result<Self, AnnotationError> {
        crate::annotation::check_length(text)?;
        Ok(Self(serde_json::from_str(text)?))
    }

    /// Whether no network has an entry, so that the annotation can be removed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes a network's entry.
    pub fn remove(&mut self, network: &str) {
        self.0.remove(network);
    }

    /// The subnets of a network: a list or, in the older spelling, a single one.
    ///
    /// # Errors
    /// The entry is neither a subnet nor a list of at most two, a subnet has no room for pods, or
    /// two are of one family.
    pub fn subnets(&self, network: &str) -> Result<Vec<IpNet>, AnnotationError> {
        self.0.get(network).map(value::subnets).transpose().map(Option::unwrap_or_default)
    }

    /// Sets a network's subnets, as a list.
    pub fn set_subnets(&mut self, network: &str, subnets: &[IpNet]) {
        let texts: Vec<String> = subnets.iter().map(|subnet| subnet.trunc().to_string()).collect();
        self.0.insert(network.to_owned(), texts.into());
    }

    /// The addresses of a network's port, from `{"ipv4":"100.64.0.2/16","ipv6":"fd98::2/64"}`.
    ///
    /// # Errors
    /// The entry is not such an object, or an address is not valid.
    pub fn interface_addresses(&self, network: &str) -> Result<Vec<IpNet>, AnnotationError> {
        self.0
            .get(network)
            .cloned()
            .map(value::interface_addresses_value)
            .transpose()
            .map(Option::unwrap_or_default)
    }

    /// Sets the addresses of a network's port: the first one of each family.
    pub fn set_interface_addresses(&mut self, network: &str, addresses: &[IpNet]) {
        self.0.insert(network.to_owned(), value::interface_addresses_json(addresses));
    }

    /// Whether ports of the node lead to services, spelled as a string in the entry of the gateway.
    ///
    /// # Errors
    /// The value is not a string, or neither `true` nor `false`.
    pub fn node_ports(&self, network: &str) -> Result<Option<bool>, AnnotationError> {
        let entry = self.0.get(network).and_then(|entry| entry.get("node-port-enable"));
        entry.map(|entry| value::truth(value::text(entry, "node-port-enable")?)).transpose()
    }

    /// The MAC address of a network's port.
    ///
    /// # Errors
    /// The entry is not a string, or not a MAC address.
    pub fn mac(&self, network: &str) -> Result<Option<Mac>, AnnotationError> {
        self.0.get(network).map(|entry| value::mac(value::text(entry, "MAC address")?)).transpose()
    }

    /// The mode of a network's gateway, from `{"mode":"shared",…}`. An empty mode is a disabled
    /// gateway.
    ///
    /// # Errors
    /// The mode is not a string, or not known.
    pub fn gateway_mode(&self, network: &str) -> Result<Option<GatewayMode>, AnnotationError> {
        let mode = self.0.get(network).and_then(|entry| entry.get("mode"));
        mode.map(|mode| value::gateway_mode(value::text(mode, "gateway mode")?)).transpose()
    }

    /// A network's gateway of this mode, unless it is disabled or missing.
    ///
    /// # Errors
    /// A value that the gateway router needs is missing or not valid.
    pub fn gateway(
        &self,
        network: &str,
        mode: Option<GatewayMode>,
    ) -> Result<Option<Gateway>, AnnotationError> {
        match mode {
            Some(GatewayMode::Shared | GatewayMode::Local) => {
                self.0.get(network).map(Gateway::read).transpose()
            }
            Some(GatewayMode::Disabled) | None => Ok(None),
        }
    }

    /// Sets a network's gateway.
    pub fn set_gateway(&mut self, network: &str, entry: &GatewayEntry) {
        self.0.insert(network.to_owned(), entry.json());
    }

    /// Disables a network's gateway.
    pub fn disable_gateway(&mut self, network: &str) {
        self.0.insert(network.to_owned(), json!({"mode": GatewayMode::Disabled.name()}));
    }
}

impl fmt::Display for PerNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(&self.0).map_err(|_| fmt::Error)?)
    }
}
