//! The question of `ovnkube policy explain`: two ends of a connection, and a port.

use std::{fmt, net::IpAddr, str::FromStr};

use contract::names::{PodKey, ServiceKey};
use ipnet::IpNet;
use verdict::Protocol;

/// Whether `client` may connect to `server` there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub client: Asked,
    pub server: Asked,
    pub port: u16,
    pub protocol: Protocol,
}

/// An end of the connection, as the question names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Pod(PodKey),
    /// By the node's name.
    Node(String),
    /// Whatever has it.
    Address(IpAddr),
    /// The backends of a Service; of a server only.
    Service(ServiceKey),
}

impl Question {
    /// Reads the three words of the command line.
    ///
    /// # Errors
    /// A word is no end of a connection, or no port; the text says which.
    pub fn read(client: &str, server: &str, place: &str) -> Result<Self, String> {
        let (port, protocol) = place.split_once('/').unwrap_or((place, Protocol::Tcp.name()));
        let known =
            Protocol::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(protocol));
        let number = port.parse().ok().filter(|number: &u16| *number > 0);
        Ok(Self {
            client: client.parse()?,
            server: server.parse()?,
            port: number
                .ok_or_else(|| format!("{port:?} is no port: give a number from 1 to 65535"))?,
            protocol: known.ok_or_else(|| format!("{protocol:?} is none of TCP, UDP and SCTP"))?,
        })
    }
}

impl fmt::Display for Asked {
    /// As it is written in a question.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => key.fmt(f),
            Self::Node(name) => write!(f, "node/{name}"),
            Self::Address(address) => address.fmt(f),
            Self::Service(key) => write!(f, "svc/{}/{}", key.namespace(), key.name()),
        }
    }
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        if text.parse::<IpNet>().is_ok() {
            return Err(format!("{text:?} is a network: give one address"));
        }
        let parts: Vec<&str> = text.split('/').collect();
        match parts[..] {
            ["node", name] => Ok(Self::Node(name.to_owned())),
            [namespace, name] | ["pod", namespace, name] => PodKey::new(namespace, name)
                .map(Self::Pod)
                .map_err(|error| format!("{text:?} is no pod: {error}")),
            ["svc" | "service", namespace, name] => ServiceKey::new(namespace, name)
                .map(Self::Service)
                .map_err(|error| format!("{text:?} is no Service: {error}")),
            _ => Err(format!(
                "{text:?} is no end of a connection: give NAMESPACE/POD, node/NODE, an address, or \
                 of a server svc/NAMESPACE/SERVICE"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_a_protocol_is_of_tcp() {
        for (place, port, protocol) in
            [("53/udp", 53, Protocol::Udp), ("5432", 5432, Protocol::Tcp)]
        {
            let question = Question::read("shop/cart", "shop/db", place).unwrap();
            let pod = |name| Asked::Pod(PodKey::new("shop", name).unwrap());
            assert_eq!((&question.client, &question.server), (&pod("cart"), &pod("db")));
            assert_eq!((question.port, question.protocol), (port, protocol));
        }
    }

    #[test]
    fn an_end_is_a_pod_a_node_or_an_address() {
        let pod = |namespace, name| Asked::Pod(PodKey::new(namespace, name).unwrap());
        for (text, expected) in [
            ("shop/db", pod("shop", "db")),
            ("pod/shop/db", pod("shop", "db")),
            // A namespace may be called as a kind is.
            ("pod/node/db", pod("node", "db")),
            ("node/worker-1.example", Asked::Node("worker-1.example".to_owned())),
            ("svc/shop/db", Asked::Service(ServiceKey::new("shop", "db").unwrap())),
            ("203.0.113.7", Asked::Address([203, 0, 113, 7].into())),
            ("::ffff:203.0.113.7", Asked::Address([203, 0, 113, 7].into())),
            ("2001:db8::1", Asked::Address("2001:db8::1".parse().unwrap())),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_question_that_cannot_be_read_is_refused_with_what_is_wrong_about_it() {
        for (words, why) in [
            (["cart", "shop/db", "80"], "\"cart\" is no end of a connection"),
            (["shop/cart", "10.0.0.0/8/1", "80"], "\"10.0.0.0/8/1\" is no end"),
            (["shop/cart", "10.0.0.0/8", "80"], "\"10.0.0.0/8\" is a network"),
            (["shop/cart", "shop/DB", "80"], "\"shop/DB\" is no pod"),
            (["shop/cart", "shop/db", "0"], "\"0\" is no port"),
            (["shop/cart", "shop/db", "web"], "\"web\" is no port"),
            (["shop/cart", "shop/db", "80/icmp"], "\"icmp\" is none of"),
        ] {
            let [client, server, place] = words;
            let error = Question::read(client, server, place).unwrap_err();
            assert!(error.starts_with(why), "{words:?}: {error}");
        }
    }
}
