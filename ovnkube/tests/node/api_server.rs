//! Pods from an API server: the errors before it answers, which need no API server. Tests with a
//! real one are in the package `integration`.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    time::Instant,
};

use nix::sys::signal::Signal;
use serde_json::json;
use testkit::{
    http::Message,
    scripted_server::{Answer, serve},
};

use crate::lab::{SOON, Server, add, eventually, verb};

/// It must be in no log and in no answer.
const SECRET: &str = "sEcReT-t0ken";

/// A server for the pods of an API server at `url`, with a token.
fn server(url: &str) -> Server {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    fs::write(&token, SECRET).unwrap();
    // An empty value unsets the manifests that the lab gives to every server.
    let options = [
        "--pod-manifests",
        "",
        "--k8s-apiserver",
        url,
        "--k8s-token-file",
        token.to_str().unwrap(),
        "--loglevel",
        "dbg",
    ];
    let mut server = Server::spawn(&options);
    server.listening();
    server
}

/// The URL of a port on which no server listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn without_an_api_server_status_says_why_and_del_works_and_add_fails_soon() {
    let url = nobody();
    let mut server = server(&url);
    eventually("STATUS knows the reason", || {
        let (status, code, text) = server.ask("/", &verb("STATUS", "", "")).error();
        let said = text.contains("Connection refused") && text.contains(&url);
        if (status, code, said) == (503, 50, true) { Ok(()) } else { Err(text) }
    });
    assert_eq!(server.ask("/", &json!({"env": {"CNI_COMMAND": "DEL"}})).status(), 200);

    let mut request = add("cart-0", "u1");
    request["timeoutMs"] = json!(1000);
    let started = Instant::now();
    let answer = server.ask("/", &request);
    let (status, code, text) = answer.error();
    assert_eq!((status, code), (503, 11));
    assert!(
        text.contains("pod shop/cart-0 is not known on this node (the API server")
            && text.contains("Connection refused"),
        "{text}"
    );
    assert_eq!(
        answer.json()["details"],
        "does it exist, on node node1? kubectl -n shop get pod cart-0 -o wide"
    );
    assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());

    server.signal(Signal::SIGTERM);
    assert!(server.ended().success());
    assert!(!server.log().contains(SECRET), "{}", server.log());
}

#[test]
fn a_refusal_of_the_api_server_is_told_in_its_own_words_and_without_the_token() {
    let refuse = |request: &Message| {
        let bearer = format!("Bearer {SECRET}");
        let sent = request.header("authorization") == Some(bearer.as_str());
        Answer::forbidden(if sent {
            "pods is forbidden: User \"n1\" cannot list resource \"pods\""
        } else {
            "no token"
        })
    };
    let url =
        format!("http://{}", serve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), refuse).unwrap());
    let server = server(&url);
    eventually("STATUS knows the reason", || {
        let (_, code, text) = server.ask("/", &verb("STATUS", "", "")).error();
        let said = text.contains(
            "User \"n1\" cannot list resource \"pods\" (403): see the roles bound to this user",
        );
        if (code, said) == (50, true) { Ok(()) } else { Err(text) }
    });
    server.log_says("the watch on pods is disconnected");
    assert!(!server.log().contains(SECRET), "{}", server.log());
    let title = fs::read_to_string(format!("/proc/{}/cmdline", server.pid())).unwrap();
    assert!(!title.contains(SECRET), "{title}");
}
