//! When names are asked for, on a paused clock and without a DNS.

use contract::definition::CustomKind;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

struct Running {
    names: watch::Sender<BTreeMap<DnsName, NameUse>>,
    observed: UnboundedReceiver<WatchEvent>,
    _observations: UnboundedSender<WatchEvent>,
    begun: Instant,
    /// What the DNS says; no answer at all to a name that is not there.
    answers: Arc<Mutex<BTreeMap<DnsName, FamilyAnswer>>>,
}

/// The EgressFirewall of a namespace as the only user of a name.
fn of(namespace: &str) -> NameUse {
    NameUse {
        users: [AnyPolicy::Custom(CustomKind::EgressFirewall, namespace.into())].into(),
        ..NameUse::default()
    }
}

impl Running {
    fn start() -> Self {
        let (names, wanted) = watch::channel(BTreeMap::new());
        let (observations, observed) = unbounded_channel();
        let answers = Arc::<Mutex<BTreeMap<DnsName, FamilyAnswer>>>::default();
        let dns = Arc::clone(&answers);
        let lookup = move |name: DnsName, _family: Family| {
            let answer = dns.lock().unwrap().get(&name).cloned();
            async move {
                match answer {
                    Some(answer) => answer,
                    None => {
                        tokio::time::sleep(PATIENCE).await;
                        Err(NoAddresses::Unknown("no answer".into()))
                    }
                }
            }
        };
        let resolver = Resolver {
            families: vec![Family::V4],
            names: wanted,
            observations: observations.downgrade(),
            lookup,
        };
        tokio::spawn(resolver.run());
        Self { names, observed, _observations: observations, begun: Instant::now(), answers }
    }

    fn want<const N: usize>(&self, names: [&str; N]) {
        self.names.send_replace(names.map(|name| (DnsName::from(name), of("shop"))).into());
    }

    fn says(&self, name: &str, answer: Result<&str, &str>) {
        let answer = answer.map(|address| [address.parse().unwrap()].into());
        let answer = answer.map_err(|why| NoAddresses::Unknown(why.into()));
        self.answers.lock().unwrap().insert(name.into(), answer);
    }

    /// The next answer: the second, the name, and the address or the error.
    async fn next(&mut self) -> (u64, String, String) {
        let WatchEvent::Name(name, answer) = self.observed.recv().await.unwrap() else {
            panic!("no name")
        };
        let text = match answer {
            Ok(addresses) => {
                addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            }
            Err(why) => why.to_string(),
        };
        (self.begun.elapsed().as_secs(), name.to_string(), text)
    }
}

fn seen(second: u64, name: &str, text: &str) -> (u64, String, String) {
    (second, name.to_owned(), text.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_name_is_asked_for_at_once_and_again_before_its_answer_is_old() {
    let mut running = Running::start();
    running.says("a.example", Ok("192.0.2.1"));
    running.want(["a.example"]);
    assert_eq!(running.next().await, seen(0, "a.example", "192.0.2.1"));
    running.says("a.example", Ok("192.0.2.2"));
    assert_eq!(running.next().await, seen(30, "a.example", "192.0.2.1 192.0.2.2"));
    running.says("b.example", Ok("192.0.2.3"));
    running.want(["b.example"]);
    assert_eq!(
        running.next().await,
        seen(30, "b.example", "192.0.2.3"),
        "the other one is not asked for"
    );
    assert_eq!(running.next().await, seen(60, "b.example", "192.0.2.3"));
}

#[tokio::test(start_paused = true)]
async fn a_question_without_an_answer_is_repeated_ever_more_slowly() {
    let mut running = Running::start();
    running.says("a.example", Err("servfail"));
    running.want(["a.example"]);
    let mut seconds = Vec::new();
    for _ in 0..8 {
        seconds.push(running.next().await.0);
    }
    let pauses: Vec<u64> = seconds.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Pauses are spread.
    assert!(pauses[0] <= 2 && pauses.iter().all(|pause| *pause <= 31), "{pauses:?}");
    assert!(*pauses.last().unwrap() >= 10, "{pauses:?}");
    running.says("a.example", Ok("192.0.2.1"));
    let (answered, ..) = running.next().await;
    assert_eq!(running.next().await, seen(answered + 30, "a.example", "192.0.2.1"));
}

/// Sixteen names below a zone whose forwarder was down stopped all other names, of all namespaces.
#[tokio::test(start_paused = true)]
async fn names_whose_servers_are_silent_hold_up_no_other_name() {
    let mut running = Running::start();
    running.says("z.example", Ok("192.0.2.1"));
    running.says("zz.example", Ok("192.0.2.2"));
    // Of four namespaces, and they are due again whenever one has waited in vain.
    let silent = (0..400).map(|number| {
        (DnsName::from(format!("silent{number}.example")), of(&format!("broken{}", number % 4)))
    });
    let others = [(DnsName::from("z.example"), of("shop"))];
    running.names.send_replace(silent.clone().chain(others.clone()).collect());
    assert_eq!(running.next().await, seen(0, "z.example", "192.0.2.1"));
    assert_eq!(running.next().await, seen(30, "z.example", "192.0.2.1"));
    // A new one of a namespace with a silent one has its turn, too.
    let new = [(DnsName::from("zz.example"), of("shop"))];
    running.names.send_replace(silent.chain(others).chain(new).collect());
    let mut answered = Vec::new();
    while !answered.contains(&"zz.example".to_owned()) {
        let (second, name, _) = running.next().await;
        assert!(second < 120, "{answered:?}");
        answered.push(name);
    }
}

/// The servers answer at last, so that others have their turn.
#[tokio::test(start_paused = true)]
async fn the_many_names_of_one_namespace_are_asked_for_beside_those_of_others() {
    let mut running = Running::start();
    let many = (0..200).map(|number| DnsName::from(format!("a{number}.example")));
    many.clone().for_each(|name| running.says(&name, Ok("192.0.2.1")));
    running.says("z.example", Ok("192.0.2.2"));
    let many = many.map(|name| (name, of("many")));
    running.names.send_replace(many.chain([(DnsName::from("z.example"), of("shop"))]).collect());
    let before = async {
        let mut before = 0;
        while running.next().await.1 != "z.example" {
            before += 1;
        }
        before
    };
    assert!(before.await <= MOST_OF_ONE);
}

/// The next answer of a name that rotates took the addresses of the one before out of the set, and
/// connections to them were cut off.
#[tokio::test(start_paused = true)]
async fn an_address_stays_for_some_minutes_after_the_last_answer_with_it() {
    let mut running = Running::start();
    running.says("a.example", Ok("192.0.2.1"));
    running.want(["a.example"]);
    running.next().await;
    running.says("a.example", Ok("192.0.2.2"));
    let mut text = "192.0.2.1 192.0.2.2".to_owned();
    let mut last = 0;
    while text == "192.0.2.1 192.0.2.2" {
        (last, _, text) = running.next().await;
    }
    assert_eq!((last, text.as_str()), (STAY.as_secs(), "192.0.2.2"));
}

#[test]
fn addresses_of_a_name_are_bounded_and_the_oldest_go_first() {
    let now = Instant::now();
    let address = |number: usize| IpAddr::from(std::net::Ipv6Addr::from_bits(number as u128));
    let mut asked = Asked::new(&(0..10).map(address).collect(), now);
    let many = |range: std::ops::Range<usize>| vec![(Family::V6, Ok(range.map(address).collect()))];
    asked.answered("a.example", many(5..MOST_ADDRESSES), now + REFRESH);
    let all =
        asked.answered("a.example", many(MOST_ADDRESSES..MOST_ADDRESSES + 5), now + 2 * REFRESH);
    let [Ok(all)] = &all[..] else { panic!("{all:?}") };
    assert_eq!(all.len(), MOST_ADDRESSES);
    assert!(
        !all.contains(&address(4))
            && all.contains(&address(5))
            && all.contains(&address(MOST_ADDRESSES))
    );
}

/// The control plane that begins knows the addresses that the database has: a restart cut off
/// connections to those that its first answer lacked.
#[test]
fn addresses_from_before_a_restart_stay_as_others_do() {
    let now = Instant::now();
    let old: IpAddr = "192.0.2.1".parse().unwrap();
    let new: IpAddr = "192.0.2.2".parse().unwrap();
    let mut asked = Asked::new(&[old].into(), now);
    let answer = || vec![(Family::V4, Ok([new].into()))];
    assert_eq!(asked.answered("a.example", answer(), now), [Ok([old, new].into())]);
    assert_eq!(asked.answered("a.example", answer(), now + STAY), [Ok([new].into())]);
}

/// One question about both families had no answer where only one of the two was broken, as the
/// servers of many balancers are for AAAA.
#[test]
fn a_family_without_an_answer_takes_nothing_from_the_other_one() {
    let now = Instant::now();
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let broken = || (Family::V6, Err(NoAddresses::Unknown("servfail".into())));
    let mut asked = Asked::new(&["2001:db8::1".parse().unwrap()].into(), now);
    let answers = vec![(Family::V4, Ok([address].into())), broken()];
    let both = asked.answered("a.example", answers.clone(), now + STAY);
    assert_eq!(
        both,
        [Ok([address, "2001:db8::1".parse().unwrap()].into())],
        "nobody has said that it is gone"
    );
    assert_eq!(asked.failures, 0);
}

/// A name that was given up stayed allowed for ever, to whoever had its addresses next.
#[test]
fn the_addresses_of_a_name_that_is_gone_for_a_day_are_given_up() {
    let begun = Instant::now();
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let gone = || vec![(Family::V4, Err(NoAddresses::None("no such name".into())))];
    let broken = || vec![(Family::V4, Err(NoAddresses::Unknown("servfail".into())))];
    let why: Box<str> = "no such name".into();
    let mut asked = Asked::new(&[address].into(), begun);
    assert_eq!(asked.answered("a.example", gone(), begun), [Err(why.clone())]);
    // A server that does not know says nothing about the name.
    asked.answered("a.example", broken(), begun + GIVEN_UP / 2);
    assert_eq!(asked.answered("a.example", gone(), begun + GIVEN_UP), [Err(why.clone())]);
    let after = asked.answered("a.example", gone(), begun + 2 * GIVEN_UP);
    assert_eq!(after, [Ok(BTreeSet::new()), Err(why)]);
    assert_eq!(
        asked.answered("a.example", broken(), begun + 3 * GIVEN_UP),
        [Err("servfail".into())]
    );
}
