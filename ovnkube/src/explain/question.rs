//! The command line of `ovnkube policy explain`: two ends and a port, then options. Knows no option.

use std::{ffi::OsString, net::IpAddr, str::FromStr};

use contract::names::{PodKey, ServiceKey};
use ipnet::IpNet;
use verdict::Protocol;

const USAGE: &str = "\
Usage: ovnkube policy explain CLIENT SERVER PORT[/PROTOCOL] [OPTION…]

Says whether the client may connect to the server at the port: which NetworkPolicies and policies of the
cluster select either end, what each of their rules says, which one decides, and which ACLs of OVN's
northbound database carry it; of a connection that leaves the cluster, what the EgressFirewall says, too.
PROTOCOL is TCP (the default), UDP or SCTP. Nothing is written. At least one of the two ends has to be a pod
in the cluster's network. An end is one of these:

  NAMESPACE/POD      a pod; also pod/NAMESPACE/POD. A pod in its node's network counts as its node.
  node/NODE          a node
  ADDRESS            whatever has the address: a pod, a node, a Service, or a machine outside of the cluster
  svc/NAMESPACE/SERVICE   of the server: each backend of the Service that takes connections at the Service's PORT

  ovnkube policy explain shop/cart-0 shop/db-0 5432 --k8s-kubeconfig ~/.kube/config \\
      --nb-address unix:/run/ovn/ovnnb_db.sock
  ovnkube policy explain shop/cart-0 203.0.113.7 443 --k8s-kubeconfig ~/.kube/config

A node connects to pods from the address of its management port, and always reaches its own pods. A client
outside of the cluster may have another address where it arrives at the pod: behind a Service, one of the
node's.

Options are those of the control plane that say where the API server and the database are; see ovnkube --help.
The API server has to let the user get pods and namespaces, and list networkpolicies and the kinds of
policy.networking.k8s.io; for an end that is no pod, also list nodes, pods, services and endpointslices and get egressfirewalls.

Exit status: 0: said, whatever the verdict. 1: something could not be read, or the database does not do what
the policies say. 2: the command line or an option cannot be used.
";

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Explain {
        question: Question,
        /// The program's name, and the options.
        options: Vec<OsString>,
    },
    /// A text to print.
    Help(&'static str),
    /// The command line cannot be used, for this reason.
    Wrong(String),
}

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

impl Command {
    /// Reads a command line, of which the first word is the program's name. `None` if it is another command.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut words = arguments.into_iter();
        let program = words.next()?;
        if words.next()? != "policy" {
            return None;
        }
        let words: Vec<OsString> = words.collect();
        if words.is_empty() || words.iter().any(|word| word == "-h" || word == "--help" || word == "-help") {
            return Some(Self::Help(USAGE));
        }
        let is_option = |word: &OsString| word.to_string_lossy().starts_with('-');
        let end = words.iter().position(is_option).unwrap_or(words.len());
        let (asked, options) = words.split_at(end);
        let asked: Vec<String> = asked.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let question = match &asked[..] {
            [verb, client, server, place] if verb == "explain" => Question::read(client, server, place),
            [verb, ..] if verb != "explain" => Err(format!("there is no command \"policy {verb}\"")),
            _ => Err("it needs two ends of a connection and a port".to_owned()),
        };
        Some(match question {
            Ok(question) => {
                let options = std::iter::once(program).chain(options.iter().cloned()).collect();
                Self::Explain { question, options }
            }
            Err(why) => Self::Wrong(format!("{why}\n{USAGE}")),
        })
    }
}

impl Question {
    fn read(client: &str, server: &str, place: &str) -> Result<Self, String> {
        let (port, protocol) = place.split_once('/').unwrap_or((place, Protocol::Tcp.name()));
        let known = Protocol::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(protocol));
        let number = port.parse().ok().filter(|number: &u16| *number > 0);
        Ok(Self {
            client: client.parse()?,
            server: server.parse()?,
            port: number.ok_or_else(|| format!("{port:?} is no port: give a number from 1 to 65535"))?,
            protocol: known.ok_or_else(|| format!("{protocol:?} is none of TCP, UDP and SCTP"))?,
        })
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

    fn read(line: &str) -> Option<Command> {
        Command::read(line.split(' ').map(OsString::from))
    }

    #[test]
    fn two_pods_and_a_port_are_a_question_and_what_follows_are_options() {
        let asked = read("ovnkube policy explain shop/cart shop/db 53/udp --nb-address unix:/x -v").unwrap();
        let Command::Explain { question, options } = asked else { panic!("{asked:?}") };
        let pod = |name| Asked::Pod(PodKey::new("shop", name).unwrap());
        assert_eq!((&question.client, &question.server), (&pod("cart"), &pod("db")));
        assert_eq!((question.port, question.protocol), (53, Protocol::Udp));
        assert_eq!(options, ["ovnkube", "--nb-address", "unix:/x", "-v"]);
        assert_eq!(read("ovnkube --init-node policy"), None);
        assert_eq!(read("ovnkube"), None);
        for line in ["ovnkube policy", "ovnkube policy explain --help", "ovnkube policy explain a b c -h"] {
            assert!(matches!(read(line), Some(Command::Help(_))), "{line}");
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
        for (line, why) in [
            ("policy explain cart shop/db 80", "\"cart\" is no end of a connection"),
            ("policy explain shop/cart 10.0.0.0/8/1 80", "\"10.0.0.0/8/1\" is no end"),
            ("policy explain shop/cart 10.0.0.0/8 80", "\"10.0.0.0/8\" is a network"),
            ("policy explain shop/cart shop/DB 80", "\"shop/DB\" is no pod"),
            ("policy explain shop/cart shop/db 0", "\"0\" is no port"),
            ("policy explain shop/cart shop/db web", "\"web\" is no port"),
            ("policy explain shop/cart shop/db 80/icmp", "\"icmp\" is none of"),
            ("policy explain shop/cart shop/db", "two ends of a connection and a port"),
            ("policy explain shop/cart shop/db 80 90", "two ends of a connection and a port"),
            ("policy describe shop/cart", "no command \"policy describe\""),
        ] {
            let read = read(&format!("ovnkube {line}"));
            let Some(Command::Wrong(text)) = read else { panic!("{line}: {read:?}") };
            assert!(text.starts_with(why) || text.contains(why), "{line}: {text}");
        }
    }
}
