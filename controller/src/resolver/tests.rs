//! When names are asked for, on a paused clock and without a DNS.

use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

struct Running {
    names: watch::Sender<BTreeSet<DnsName>>,
    observed: UnboundedReceiver<Observation>,
    _observations: UnboundedSender<Observation>,
    begun: Instant,
    /// What the DNS says; no answer at all to a name that is not there.
    answers: Arc<Mutex<BTreeMap<DnsName, Answer>>>,
}

impl Running {
    fn start() -> Self {
        let (names, wanted) = watch::channel(BTreeSet::new());
        let (observations, observed) = unbounded_channel();
        let answers = Arc::<Mutex<BTreeMap<DnsName, Answer>>>::default();
        let dns = Arc::clone(&answers);
        let lookup = move |name: DnsName| {
            let answer = dns.lock().unwrap().get(&name).cloned();
            async move {
                match answer {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            }
        };
        let resolver = Resolver { names: wanted, observations: observations.downgrade(), lookup };
        tokio::spawn(resolver.run());
        Self { names, observed, _observations: observations, begun: Instant::now(), answers }
    }

    fn want<const N: usize>(&self, names: [&str; N]) {
        self.names.send_replace(names.map(DnsName::from).into());
    }

    fn says(&self, name: &str, answer: Result<&str, &str>) {
        let answer = answer.map(|address| [address.parse().unwrap()].into()).map_err(Into::into);
        self.answers.lock().unwrap().insert(name.into(), answer);
    }

    /// The next answer: the second, the name, and the address or the error.
    async fn next(&mut self) -> (u64, String, String) {
        let Observation::Name(name, answer) = self.observed.recv().await.unwrap() else { panic!("no name") };
        let text = match answer {
            Ok(addresses) => addresses.iter().map(ToString::to_string).collect(),
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
    assert_eq!(running.next().await, seen(30, "a.example", "192.0.2.2"));
    running.says("b.example", Ok("192.0.2.3"));
    running.want(["b.example"]);
    assert_eq!(running.next().await, seen(30, "b.example", "192.0.2.3"), "the other one is not asked for");
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

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_holds_up_no_other_name() {
    let mut running = Running::start();
    running.says("z.example", Ok("192.0.2.1"));
    let silent = (0..MOST - 1).map(|number| DnsName::from(format!("silent{number}.example")));
    running.names.send_replace(silent.chain([DnsName::from("z.example")]).collect());
    assert_eq!(running.next().await, seen(0, "z.example", "192.0.2.1"));
    assert_eq!(running.next().await, seen(30, "z.example", "192.0.2.1"));
}
