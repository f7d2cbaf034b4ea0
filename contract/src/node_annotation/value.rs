//! The values in a node's annotations, and their spelling. Knows no annotation by name.

use super::*;
pub(super) use crate::annotation::value;
use crate::annotation::{check_length, one_per_family, shorten};
use serde_json::{Map, Value, json};

/// Bytes of the longest chassis or zone name: as long as a node's name can be.
const MAX_PLAIN: usize = 253;

/// A plain name, such as `system-id` or a zone.
pub(super) fn plain(field: &'static str, text: &str) -> Result<String, AnnotationError> {
    let good = !text.is_empty()
        && text.len() <= MAX_PLAIN
        && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
    if good {
        Ok(text.to_owned())
    } else {
        refuse(field, text, "a name of at most 253 visible characters")
    }
}

pub(super) fn number<T: FromStr>(text: &str) -> Result<T, AnnotationError> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { value("id", text, "a small number") } else { refuse("id", text, "a small number") }
}

pub(super) fn truth(text: &str) -> Result<bool, AnnotationError> {
    value("node-port-enable", text, "true or false")
}

pub(super) fn mac(text: &str) -> Result<Mac, AnnotationError> {
    value("MAC address", text.trim_matches('"'), "a unicast MAC address")
}

/// The network of a subnet that has room for a router, a management port and one pod.
pub(super) fn subnet(text: &str) -> Result<IpNet, AnnotationError> {
    let subnet = value::<IpNet>("subnet", text, "a subnet")?.trunc();
    // In IPv4, the last address is the broadcast address.
    let host_bits = if subnet.addr().is_ipv4() { 3 } else { 2 };
    let room =
        subnet.max_prefix_len() - subnet.prefix_len() >= host_bits && subnet.prefix_len() >= 4;
    let address = subnet.addr();
    if room && !address.is_loopback() && !address.is_multicast() && !address.is_unspecified() {
        return Ok(subnet);
    }
    refuse("subnet", text, "a subnet for pods")
}

pub(super) fn subnets(entry: &Value) -> Result<Vec<IpNet>, AnnotationError> {
    let texts = match entry {
        Value::Array(texts) => texts.as_slice(),
        single => std::slice::from_ref(single),
    };
    // There can be one of each family. The limit bounds the work for a hostile annotation.
    if texts.len() > 2 {
        return refuse("subnets", &format!("{} entries", texts.len()), "one or two subnets");
    }
    let subnets: Vec<IpNet> =
        texts.iter().map(|entry| subnet(text(entry, "subnet")?)).collect::<Result<_, _>>()?;
    one_per_family("subnets", &addresses_of(&subnets))?;
    Ok(subnets)
}

pub(super) fn interface_addresses(text: &str) -> Result<Vec<IpNet>, AnnotationError> {
    check_length(text)?;
    interface_addresses_value(serde_json::from_str(text)?)
}

pub(super) fn interface_addresses_value(entry: Value) -> Result<Vec<IpNet>, AnnotationError> {
    #[derive(serde::Deserialize)]
    struct AddressesJson {
        ipv4: Option<String>,
        ipv6: Option<String>,
    }
    let AddressesJson { ipv4, ipv6 } = serde_json::from_value(entry)?;
    let read = |field, text: Option<String>, is_of_family: fn(&IpAddr) -> bool| {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
        match value::<IpNet>(field, &text, "an address with its prefix length")? {
            net if is_of_family(&net.addr()) => Ok(Some(net)),
            _ => refuse(field, &text, "an address of that family"),
        }
    };
    let (v4, v6) = (read("ipv4", ipv4, IpAddr::is_ipv4)?, read("ipv6", ipv6, IpAddr::is_ipv6)?);
    Ok(v4.into_iter().chain(v6).collect())
}

pub(super) fn interface_addresses_json(addresses: &[IpNet]) -> Value {
    let mut entries = Map::new();
    for net in addresses {
        entries
            .entry(if net.addr().is_ipv4() { "ipv4" } else { "ipv6" })
            .or_insert_with(|| json!(net.to_string()));
    }
    Value::Object(entries)
}

pub(super) fn gateway_mode(text: &str) -> Result<GatewayMode, AnnotationError> {
    match text {
        "" => Ok(GatewayMode::Disabled),
        "shared" => Ok(GatewayMode::Shared),
        "local" => Ok(GatewayMode::Local),
        other => refuse("gateway mode", other, "shared, local or nothing"),
    }
}

pub(super) fn host_cidrs(text: &str) -> Result<Vec<IpNet>, AnnotationError> {
    check_length(text)?;
    let texts: Vec<String> = serde_json::from_str(text)?;
    if texts.len() > MAX_HOST_CIDRS {
        return refuse("host cidrs", &format!("{} entries", texts.len()), "at most 1024 addresses");
    }
    texts.iter().map(|text| value("address", text, "an address with its prefix length")).collect()
}

pub(super) fn encap_ips(text: &str) -> Result<Vec<IpAddr>, AnnotationError> {
    check_length(text)?;
    let texts: Vec<String> = serde_json::from_str(text)?;
    if texts.len() > MAX_ENCAP_IPS {
        return refuse("encap ips", &format!("{} entries", texts.len()), "at most 64 addresses");
    }
    let addresses = texts.iter().map(|text| value("address", text, "an address"));
    let addresses: Vec<IpAddr> = addresses.collect::<Result<_, _>>()?;
    match addresses.iter().find(|address| !is_of_one_machine(**address)) {
        Some(address) => refuse("encap ips", &address.to_string(), "an address of one machine"),
        None => Ok(addresses),
    }
}

/// Whether packets to the address arrive at one machine, the same from everywhere.
pub(super) fn is_of_one_machine(address: IpAddr) -> bool {
    let is_special = match address {
        IpAddr::V4(address) => address.is_broadcast() || address.is_link_local(),
        // Open vSwitch takes `::ffff:192.0.2.7` for 192.0.2.7.
        IpAddr::V6(address) => address.is_unicast_link_local() || address.to_canonical().is_ipv4(),
    };
    !(is_special || address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

pub(super) fn text<'a>(entry: &'a Value, field: &'static str) -> Result<&'a str, AnnotationError> {
    entry.as_str().ok_or_else(|| AnnotationError::Value {
        field,
        value: shorten(&entry.to_string()),
        expected: "a text",
    })
}

pub(super) fn refuse<T>(
    field: &'static str,
    text: &str,
    expected: &'static str,
) -> Result<T, AnnotationError> {
    Err(AnnotationError::Value { field, value: shorten(text), expected })
}

pub(super) fn addresses_of(nets: &[IpNet]) -> Vec<IpAddr> {
    nets.iter().map(IpNet::addr).collect()
}
