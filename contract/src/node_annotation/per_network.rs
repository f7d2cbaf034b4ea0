//! An annotation that is a JSON object from networks to values of one kind.
//!
//! Entries of other networks belong to others: they are kept as they are, whatever they hold, so that writing one network's entry never
//! removes another's.

use std::{collections::BTreeMap, fmt};

use ipnet::IpNet;
use serde_json::Value;

use super::value;
use crate::{annotation::AnnotationError, mac::Mac};

/// The entries of an annotation, by network. `Display` is the annotation's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PerNetwork(BTreeMap<String, Value>);

impl PerNetwork {
    /// Reads the text of an annotation; the entries are read when they are asked for.
    ///
    /// # Errors
    /// The text is longer than an annotation can be, or no JSON object.
    pub fn parse(text: &str) -> Result<Self, AnnotationError> {
        crate::annotation::check_length(text)?;
        Ok(Self(serde_json::from_str(text)?))
    }

    /// Whether no network has an entry: the annotation can go.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn remove(&mut self, network: &str) {
        self.0.remove(network);
    }

    /// A list of subnets or, in the older spelling, one.
    ///
    /// # Errors
    /// The entry is neither a subnet nor a list of one or two, one has no room for pods, or two are of one family.
    pub fn subnets(&self, network: &str) -> Result<Vec<IpNet>, AnnotationError> {
        self.0.get(network).map(value::subnets).transpose().map(Option::unwrap_or_default)
    }

    pub fn set_subnets(&mut self, network: &str, subnets: &[IpNet]) {
        let texts: Vec<String> = subnets.iter().map(|subnet| subnet.trunc().to_string()).collect();
        self.0.insert(network.to_owned(), texts.into());
    }

    /// `{"ipv4":"100.64.0.2/16","ipv6":"fd98::2/64"}`.
    ///
    /// # Errors
    /// The entry is no such object, or an address in it is none.
    pub fn interface_addresses(&self, network: &str) -> Result<Vec<IpNet>, AnnotationError> {
        self.0.get(network).cloned().map(value::interface_addresses_value).transpose().map(Option::unwrap_or_default)
    }

    pub fn set_interface_addresses(&mut self, network: &str, addresses: &[IpNet]) {
        self.0.insert(network.to_owned(), value::interface_addresses_json(addresses));
    }

    /// A number, spelled as a string.
    ///
    /// # Errors
    /// The entry is no string, or no number.
    pub fn number(&self, network: &str) -> Result<Option<u32>, AnnotationError> {
        self.0.get(network).map(|entry| value::number(value::text(entry, "id")?)).transpose()
    }

    pub fn set_number(&mut self, network: &str, number: u32) {
        self.0.insert(network.to_owned(), number.to_string().into());
    }

    /// A MAC address.
    ///
    /// # Errors
    /// The entry is no string, or no MAC address.
    pub fn mac(&self, network: &str) -> Result<Option<Mac>, AnnotationError> {
        self.0.get(network).map(|entry| value::mac(value::text(entry, "MAC address")?)).transpose()
    }

    pub fn set_mac(&mut self, network: &str, mac: Mac) {
        self.0.insert(network.to_owned(), mac.to_string().into());
    }
}

impl fmt::Display for PerNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(&self.0).map_err(|_| fmt::Error)?)
    }
}
