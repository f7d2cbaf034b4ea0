use super::*;

fn probe(kind: Kind, port: u16, expect: Expect) -> Probe {
    Probe { name: format!("{kind:?}"), kind, to: "127.0.0.1".to_owned(), port, expect }
}

/// A port that was free a moment ago.
fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn what_echoes_is_open_and_what_nobody_serves_is_closed() {
    let (served, unserved) = (port(), port());
    let _server = server::start(served).await.unwrap();
    for kind in [Kind::Tcp, Kind::TcpBulk, Kind::Connect, Kind::Udp] {
        let open = outcome(probe(kind, served, Expect::Open)).await;
        assert!(open.passed, "{open:?}");
        let closed = outcome(probe(kind, unserved, Expect::Closed)).await;
        assert!(closed.passed, "{closed:?}");
    }
    let answers = attempt::once(&probe(Kind::Tcp, served, Expect::Closed)).await;
    assert_eq!(answers, Ok(()));
}

#[tokio::test]
async fn a_name_that_is_none_is_no_address() {
    let unknown = Probe { to: "nobody.invalid".to_owned(), ..probe(Kind::Dns, 80, Expect::Open) };
    assert!(attempt::once(&unknown).await.is_err());
    let known = Probe { to: "localhost".to_owned(), ..probe(Kind::Dns, 80, Expect::Open) };
    assert_eq!(attempt::once(&known).await, Ok(()));
}

#[test]
fn a_plan_is_read_as_it_was_written() {
    let plan = Plan {
        serve: vec![80],
        probes: vec![probe(Kind::UdpFull, 1, Expect::Closed)],
        flows: Vec::new(),
    };
    let text = serde_json::to_string(&plan).unwrap();
    assert!(text.contains("\"udp-full\""), "{text}");
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}
