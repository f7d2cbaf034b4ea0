//! The command line of `ovnkube policy explain`: two pods and a port, then options. Knows no option.

use std::ffi::OsString;

use contract::names::PodKey;
use verdict::Protocol;

const USAGE: &str = "\
Usage: ovnkube policy explain NAMESPACE/POD NAMESPACE/POD PORT[/PROTOCOL] [OPTION…]

Says whether the first pod may connect to the second one at the port: which NetworkPolicies and policies of
the cluster select either end, what each of their rules says, which one decides, and which ACLs of OVN's
northbound database carry it. PROTOCOL is TCP (the default), UDP or SCTP. Nothing is written.

  ovnkube policy explain shop/cart-0 shop/db-0 5432 --k8s-kubeconfig ~/.kube/config \\
      --nb-address unix:/run/ovn/ovnnb_db.sock

Options are those of the control plane that say where the API server and the database are; see ovnkube --help.
The API server has to let the user get pods and namespaces, and list networkpolicies and the kinds of
policy.networking.k8s.io.

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
    pub client: PodKey,
    pub server: PodKey,
    pub port: u16,
    pub protocol: Protocol,
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
            _ => Err("it needs two pods and a port".to_owned()),
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
            client: pod(client)?,
            server: pod(server)?,
            port: number.ok_or_else(|| format!("{port:?} is no port: give a number from 1 to 65535"))?,
            protocol: known.ok_or_else(|| format!("{protocol:?} is none of TCP, UDP and SCTP"))?,
        })
    }
}

fn pod(text: &str) -> Result<PodKey, String> {
    let (namespace, name) =
        text.split_once('/').ok_or_else(|| format!("{text:?} is no pod: give NAMESPACE/POD"))?;
    PodKey::new(namespace, name).map_err(|error| format!("{text:?} is no pod: {error}"))
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
        assert_eq!(
            (question.client.to_string(), question.server.to_string()),
            ("shop/cart".into(), "shop/db".into())
        );
        assert_eq!((question.port, question.protocol), (53, Protocol::Udp));
        assert_eq!(options, ["ovnkube", "--nb-address", "unix:/x", "-v"]);
        assert_eq!(read("ovnkube --init-node policy"), None);
        assert_eq!(read("ovnkube"), None);
        for line in ["ovnkube policy", "ovnkube policy explain --help", "ovnkube policy explain a b c -h"] {
            assert!(matches!(read(line), Some(Command::Help(_))), "{line}");
        }
    }

    #[test]
    fn a_question_that_cannot_be_read_is_refused_with_what_is_wrong_about_it() {
        for (line, why) in [
            ("policy explain cart shop/db 80", "\"cart\" is no pod"),
            ("policy explain shop/cart shop/DB 80", "\"shop/DB\" is no pod"),
            ("policy explain shop/cart shop/db 0", "\"0\" is no port"),
            ("policy explain shop/cart shop/db web", "\"web\" is no port"),
            ("policy explain shop/cart shop/db 80/icmp", "\"icmp\" is none of"),
            ("policy explain shop/cart shop/db", "two pods and a port"),
            ("policy explain shop/cart shop/db 80 90", "two pods and a port"),
            ("policy describe shop/cart", "no command \"policy describe\""),
        ] {
            let read = read(&format!("ovnkube {line}"));
            let Some(Command::Wrong(text)) = read else { panic!("{line}: {read:?}") };
            assert!(text.starts_with(why) || text.contains(why), "{line}: {text}");
        }
    }
}
