use super::*;

fn parse(text: &str) -> Result<Endpoint, EndpointError> {
    text.parse()
}

fn tcp(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp { host: host.to_owned(), port }
}

#[test]
fn every_spelling_of_a_place_is_understood() {
    for (text, endpoint) in [
        ("unix:/run/openvswitch/db.sock", Endpoint::Unix("/run/openvswitch/db.sock".into())),
        ("unix:db.sock", Endpoint::Unix("db.sock".into())),
        ("unix:///run/db.sock", Endpoint::Unix("/run/db.sock".into())),
        ("unix:////run/db.sock", Endpoint::Unix("/run/db.sock".into())),
        ("tcp:10.0.0.1:6641", tcp("10.0.0.1", 6641)),
        ("tcp://10.0.0.1:6641", tcp("10.0.0.1", 6641)),
        ("tcp:[::1]:6641", tcp("::1", 6641)),
        ("tcp:[::1]", tcp("::1", 6640)),
        ("tcp:nb.example", tcp("nb.example", 6640)),
        ("ssl:[fd00::1]:6641", Endpoint::Ssl { host: "fd00::1".to_owned(), port: 6641 }),
    ] {
        assert_eq!(parse(text), Ok(endpoint), "{text}");
    }
}

#[test]
fn a_text_that_names_no_place_is_refused_with_the_reason() {
    for (text, message) in [
        (
            "/run/db.sock",
            r#"endpoint "/run/db.sock" does not begin with "unix:", "tcp:" or "ssl:""#,
        ),
        (
            "punix:/run/db.sock",
            r#"endpoint "punix:/run/db.sock" does not begin with "unix:", "tcp:" or "ssl:""#,
        ),
        ("unix:", r#"endpoint "unix:" names no file"#),
        ("tcp::6641", r#"endpoint "tcp::6641" names no host"#),
        ("ssl:////a:1", r#"endpoint "ssl:////a:1" names no host"#),
        ("tcp:[a", r#"endpoint "tcp:[a" names no host"#),
        ("tcp:a b", r#"endpoint "tcp:a b" names no host"#),
        ("tcp:a:0", r#"port "0" of endpoint "tcp:a:0" is not a number from 1 to 65535"#),
        ("tcp:a:+1", r#"port "+1" of endpoint "tcp:a:+1" is not a number from 1 to 65535"#),
        (
            "tcp:a:65536",
            r#"port "65536" of endpoint "tcp:a:65536" is not a number from 1 to 65535"#,
        ),
        // Without brackets the end of the address is ambiguous.
        (
            "tcp:fd00::1:6641",
            r#"port ":1:6641" of endpoint "tcp:fd00::1:6641" is not a number from 1 to 65535"#,
        ),
    ] {
        assert_eq!(parse(text).expect_err(text).to_string(), message);
    }
}

#[test]
fn a_list_is_printed_as_it_is_read() {
    let text = "unix:/run/db.sock,tcp:[::1]:6641,ssl:nb.example:6641";
    let endpoints: Endpoints = text.parse().unwrap();
    assert_eq!(endpoints.to_string(), text);
    assert_eq!(endpoints.iter().count(), 3);
    assert_eq!(" tcp:a:1 , tcp:b:2,".parse::<Endpoints>().unwrap().to_string(), "tcp:a:1,tcp:b:2");
}

#[test]
fn a_list_of_nothing_is_refused() {
    assert_eq!(" , ".parse::<Endpoints>(), Err(EndpointError::Empty));
}
