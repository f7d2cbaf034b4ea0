use std::{
    io::{Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    thread::{self, JoinHandle},
};

use contract::{
    annotation::PodNetwork,
    bandwidth::Bandwidth,
    error::{CniError, Code},
    mtu::Mtu,
    names::{Network, PodKey},
    stage::Stage,
    wire::{PodInterface, PortRequest, Refused},
};
use tempfile::TempDir;

use super::*;
use crate::error::{AddError, Cause, Failure, StageError};

fn attachment() -> Attachment {
    let text =
        r#"{"default":{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["10.244.1.5/24"]}}"#;
    let interface = PodInterface {
        network: Network::Default,
        addressing: PodNetwork::parse(text, &Network::Default).unwrap().unwrap(),
        mtu: Mtu::DEFAULT,
        routable_mtu: None,
        bandwidth: Bandwidth::default(),
        pod_uid: "u1".to_owned(),
        skip_ip_config: false,
    };
    let identity = Identity {
        sandbox: "c0ffee".parse().unwrap(),
        if_name: "eth0".parse().unwrap(),
        network: Network::Default,
    };
    Attachment::plan(identity, &PodKey::new("shop", "cart-0").unwrap(), None, interface)
}

/// A server that answers one request, on a node without a database: an attempt to write the port
/// there fails.
struct Scripted {
    directory: TempDir,
    server: JoinHandle<String>,
}

impl Scripted {
    fn answering(bytes: String) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("server")).unwrap();
        let server = thread::spawn(move || answer(listener.accept().unwrap().0, &bytes));
        Self { directory, server }
    }

    fn refusing(status: &str, body: &str) -> Self {
        Self::answering(format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    /// The outcome of an attempt to have the port written, and the request for it.
    async fn write(self) -> (Result<(), PortError>, PortRequest) {
        let path = |name| self.directory.path().join(name);
        let endpoint = format!("unix:{}", path("database").display()).parse().unwrap();
        let (server, settings) =
            (Server::at(&path("server")), Settings::with_ovsdb(&endpoint, Duration::from_secs(5)));
        let by_server = ByServer { server: &server, settings: &settings, said: Said::Nothing };
        let mut port = Port::ByServer(by_server);
        let outcome = port.write(&attachment(), &"c0ffee".parse().unwrap(), Datapath::Kernel).await;
        (outcome, serde_json::from_str(&self.server.join().unwrap()).unwrap())
    }
}

/// Reads a request, answers it and returns its body.
fn answer(mut stream: UnixStream, bytes: &str) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        let mut part = [0; 1024];
        let length = stream.read(&mut part).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&request));
        request.extend_from_slice(&part[..length]);
    }
    stream.write_all(bytes.as_bytes()).unwrap();
    let request = String::from_utf8(request).unwrap();
    request[request.find("\r\n\r\n").unwrap()..].trim().to_owned()
}

fn refusal(code: Code) -> String {
    let error = CniError::new(code, "pod shop/cart-0: what is wrong", "where to look");
    serde_json::to_string(&Refused { error, retry: None }).unwrap()
}

/// Upstream's server has no such path, an earlier server of this project cannot read the request,
/// and one that stops or has just started cannot write ports.
#[tokio::test]
async fn a_port_that_the_server_cannot_write_is_written_by_the_plugin() {
    for scripted in [
        Scripted::refusing("404 Not Found", "404 page not found\n"),
        Scripted::refusing("400 Bad Request", &refusal(Code::Decode)),
        Scripted::refusing("503 Service Unavailable", &refusal(Code::TryAgain)),
        Scripted::refusing("409 Conflict", "not a refusal of this project"),
        Scripted::refusing("409 Conflict", ""),
        Scripted::refusing("200 OK", ""),
        Scripted::refusing("200 OK", "\"later\"\n"),
        Scripted::answering(String::new()),
    ] {
        let (outcome, request) = scripted.write().await;
        assert!(matches!(outcome, Err(PortError::Bridge(BridgeError::Connect(_)))), "{outcome:?}");
        assert_eq!(request, attachment().port_request(&"c0ffee".parse().unwrap()));
    }
}

#[tokio::test]
async fn a_port_whose_pod_has_changed_is_written_by_neither_and_the_add_fails_in_the_servers_words()
{
    for (status, code) in [
        ("409 Conflict", Code::TryAgain),
        ("409 Conflict", Code::UnknownContainer),
        ("422 Unprocessable Entity", Code::BadAnnotation),
    ] {
        let (outcome, _) = Scripted::refusing(status, &refusal(code)).write().await;
        let source = Box::new(Cause::from(outcome.unwrap_err()));
        let failure =
            Failure::from(AddError::RolledBack(StageError { stage: Stage::Port, source }));
        let error = failure.report("ADD eth0 of pod shop/cart-0", 7.0);
        assert_eq!((error.code, error.details.as_str()), (code.number(), "where to look"));
        assert!(
            error.msg.contains("stage port") && error.msg.contains("what is wrong"),
            "{}",
            error.msg
        );
    }
}
