//! The shape of a CNI result in each version of the specification (SPEC.md, "Success" and "Result
//! types" of each tag): keys, their types and the syntax of their values. A key that the version
//! does not define is an error, so that newer keys cannot leak into older versions.

use std::{collections::BTreeSet, net::IpAddr};

use anyhow::{Context as _, Result, bail, ensure};
use ipnet::IpNet;
use serde_json::Value;

/// Every version, oldest first.
pub(crate) const VERSIONS: [&str; 7] =
    ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

type Shape = &'static [(&'static str, Need, Kind)];

#[derive(Clone, Copy, PartialEq)]
enum Need {
    Required,
    Optional,
}
use Need::{Optional, Required};

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Texts,
    Number,
    Mac,
    /// An IP address.
    Ip,
    /// An IP address with a prefix length.
    Net,
    /// `"4"` or `"6"`.
    Family,
    One(Shape),
    Many(Shape),
}

const DNS: Shape = &[
    ("nameservers", Optional, Kind::Texts),
    ("domain", Optional, Kind::Text),
    ("search", Optional, Kind::Texts),
    ("options", Optional, Kind::Texts),
];

const ROUTE: Shape = &[("dst", Required, Kind::Net), ("gw", Optional, Kind::Ip)];
const ROUTE_1_1: Shape = &[
    ("dst", Required, Kind::Net),
    ("gw", Optional, Kind::Ip),
    ("mtu", Optional, Kind::Number),
    ("advmss", Optional, Kind::Number),
    ("priority", Optional, Kind::Number),
    ("table", Optional, Kind::Number),
    ("scope", Optional, Kind::Number),
];

const OF_FAMILY: Shape = &[
    ("ip", Required, Kind::Net),
    ("gateway", Optional, Kind::Ip),
    ("routes", Optional, Kind::Many(ROUTE)),
];
const RESULT_0_1: Shape = &[
    ("cniVersion", Required, Kind::Text),
    ("ip4", Optional, Kind::One(OF_FAMILY)),
    ("ip6", Optional, Kind::One(OF_FAMILY)),
    ("dns", Optional, Kind::One(DNS)),
];

const INTERFACE: Shape = &[
    ("name", Required, Kind::Text),
    ("mac", Optional, Kind::Mac),
    ("sandbox", Optional, Kind::Text),
];
const IP_0_3: Shape = &[
    ("version", Required, Kind::Family),
    ("address", Required, Kind::Net),
    ("gateway", Optional, Kind::Ip),
    ("interface", Optional, Kind::Number),
];
const RESULT_0_3: Shape = &[
    ("cniVersion", Required, Kind::Text),
    ("interfaces", Optional, Kind::Many(INTERFACE)),
    ("ips", Optional, Kind::Many(IP_0_3)),
    ("routes", Optional, Kind::Many(ROUTE)),
    ("dns", Optional, Kind::One(DNS)),
];

const IP_1_0: Shape = &[
    ("address", Required, Kind::Net),
    ("gateway", Optional, Kind::Ip),
    ("interface", Optional, Kind::Number),
];
const RESULT_1_0: Shape = &[
    ("cniVersion", Required, Kind::Text),
    ("interfaces", Optional, Kind::Many(INTERFACE)),
    ("ips", Optional, Kind::Many(IP_1_0)),
    ("routes", Optional, Kind::Many(ROUTE)),
    ("dns", Optional, Kind::One(DNS)),
];

const INTERFACE_1_1: Shape = &[
    ("name", Required, Kind::Text),
    ("mac", Optional, Kind::Mac),
    ("mtu", Optional, Kind::Number),
    ("sandbox", Optional, Kind::Text),
    ("socketPath", Optional, Kind::Text),
    ("pciID", Optional, Kind::Text),
];
const RESULT_1_1: Shape = &[
    ("cniVersion", Required, Kind::Text),
    ("interfaces", Optional, Kind::Many(INTERFACE_1_1)),
    ("ips", Optional, Kind::Many(IP_1_0)),
    ("routes", Optional, Kind::Many(ROUTE_1_1)),
    ("dns", Optional, Kind::One(DNS)),
];

const ERROR: Shape = &[
    ("cniVersion", Required, Kind::Text),
    ("code", Required, Kind::Number),
    ("msg", Required, Kind::Text),
    ("details", Optional, Kind::Text),
];

/// Checks that `result` is a result of `version`.
pub(crate) fn must_be_result(version: &str, result: &Value) -> Result<()> {
    let shape = match version {
        "0.1.0" | "0.2.0" => RESULT_0_1,
        "0.3.0" | "0.3.1" | "0.4.0" => RESULT_0_3,
        "1.0.0" => RESULT_1_0,
        "1.1.0" => RESULT_1_1,
        _ => bail!("no shape is known of version {version}"),
    };
    check(shape, result)
        .and_then(|()| be_consistent(result))
        .with_context(|| format!("as a result of {version}: {result:#}"))?;
    ensure!(
        result["cniVersion"] == version,
        "cniVersion is {}, not {version}",
        result["cniVersion"]
    );
    Ok(())
}

/// Checks that `error` is an error of `version`; all versions share one shape.
pub(crate) fn must_be_error(version: &str, error: &Value) -> Result<()> {
    check(ERROR, error).with_context(|| format!("as an error of {version}: {error:#}"))?;
    ensure!(error["cniVersion"] == version, "cniVersion is {}, not {version}", error["cniVersion"]);
    ensure!(error["code"] != 0, "code 0 means nothing");
    Ok(())
}

fn check(shape: Shape, value: &Value) -> Result<()> {
    let object = value.as_object().with_context(|| format!("{value} is no object"))?;
    let known: BTreeSet<&str> = shape.iter().map(|(key, ..)| *key).collect();
    for key in object.keys() {
        ensure!(known.contains(key.as_str()), "{key} is not defined");
    }
    for (key, need, kind) in shape {
        match object.get(*key) {
            Some(value) => kind.check(value).with_context(|| (*key).to_owned())?,
            None => ensure!(*need == Optional, "{key} is missing"),
        }
    }
    Ok(())
}

impl Kind {
    fn check(self, value: &Value) -> Result<()> {
        let text = || value.as_str().with_context(|| format!("{value} is no text"));
        let list = || value.as_array().with_context(|| format!("{value} is no list"));
        match self {
            Self::Text => text().map(drop),
            Self::Texts => list()?.iter().try_for_each(|item| Self::Text.check(item)),
            Self::Number => {
                value.as_u64().map(drop).with_context(|| format!("{value} is no number"))
            }
            Self::Mac => {
                let octets: Vec<&str> = text()?.split(':').collect();
                let all = octets.len() == 6
                    && octets
                        .iter()
                        .all(|octet| octet.len() == 2 && u8::from_str_radix(octet, 16).is_ok());
                ensure!(all, "{value} is no MAC address");
                Ok(())
            }
            Self::Ip => text()?
                .parse::<IpAddr>()
                .map(drop)
                .with_context(|| format!("{value} is no address")),
            Self::Net => text()?
                .parse::<IpNet>()
                .map(drop)
                .with_context(|| format!("{value} has no address and prefix length")),
            Self::Family => {
                ensure!(["4", "6"].contains(&text()?), "{value} is neither \"4\" nor \"6\"");
                Ok(())
            }
            Self::One(shape) => check(shape, value),
            Self::Many(shape) => list()?.iter().try_for_each(|item| check(shape, item)),
        }
    }
}

/// Checks keys against each other: an address refers to an existing interface, and states its own
/// family.
fn be_consistent(result: &Value) -> Result<()> {
    let interfaces = result["interfaces"].as_array().map_or(0, Vec::len);
    for ip in result["ips"].as_array().into_iter().flatten() {
        let index = ip["interface"].as_u64().and_then(|index| usize::try_from(index).ok());
        ensure!(
            index.is_none_or(|index| index < interfaces),
            "{ip} belongs to none of {interfaces} interfaces"
        );
        let family = if ip["address"].as_str().is_some_and(|address| address.contains(':')) {
            "6"
        } else {
            "4"
        };
        ensure!(ip["version"].is_null() || ip["version"] == family, "{ip} says the wrong version");
    }
    for (key, is_v4) in [("ip4", true), ("ip6", false)] {
        let Some(ip) = result[key]["ip"].as_str() else { continue };
        ensure!(ip.parse::<IpNet>()?.addr().is_ipv4() == is_v4, "{key} has {ip}");
    }
    Ok(())
}
