use std::{io::Read as _, os::unix::net::UnixListener, thread};

use contract::error::Code;
use nix::sys::socket::{Backlog, bind, listen};

use super::*;

/// Longer than anything here takes, unless it hangs.
const A_WHILE: Duration = Duration::from_secs(10);

fn metrics() -> Metrics {
    serde_json::from_str(r#"{"command":"DEL","elapsedTime":0.1,"hasErr":false}"#).unwrap()
}

/// A server that accepts nothing and whose backlog is full. It lives as long as the returned
/// sockets.
fn deaf(path: &Path) -> Vec<StdStream> {
    let listener =
        socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
    listen(&listener, Backlog::new(1).unwrap()).unwrap();
    let mut all = vec![StdStream::from(listener)];
    while let Ok(stream) = connect_at_once(path) {
        all.push(stream);
    }
    all
}

#[tokio::test]
async fn a_report_to_a_server_that_hangs_is_given_up_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let _server = deaf(&path);
    let reporting = tokio::task::spawn_blocking(move || {
        report(Way::New, &path, &metrics()).unwrap_err().kind()
    });
    assert_eq!(timeout(A_WHILE, reporting).await.unwrap().unwrap(), io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_full_backlog_is_a_server_that_hangs_and_not_one_that_is_absent() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let request = Request { env: Default::default(), config: Vec::new(), timeout_ms: None };
    let absent = Server::at(&path).status(&request).await.unwrap_err();
    assert!(matches!(absent, AskError::Absent { .. }), "{absent:?}");
    let _server = deaf(&path);
    let server = Server::at(&path);
    let full = server.status(&request).await.unwrap_err();
    assert!(matches!(full, AskError::Full { .. }), "{full:?}");
    let silent = server.ask_within(Duration::from_millis(200), &request).await.unwrap_err();
    assert!(matches!(silent, AskError::Silent(_)), "{silent:?}");
    assert!(
        matches!(server.into_way().await, Way::None),
        "a server that owes an answer does not hear a report"
    );
}

#[tokio::test]
async fn a_server_that_has_accepted_and_says_nothing_does_not_hear_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let _listener = UnixListener::bind(&path).unwrap();
    let server = Server::at(&path);
    let request = Request { env: Default::default(), config: Vec::new(), timeout_ms: None };
    assert!(timeout(Duration::from_millis(200), server.status(&request)).await.is_err());
    assert!(matches!(server.into_way().await, Way::None));
}

fn add(timeout_ms: u64) -> Request {
    Request { env: Default::default(), config: Vec::new(), timeout_ms: Some(timeout_ms) }
}

/// Reads a request, answers it, and returns its body.
fn answer(stream: &mut StdStream, status: &str, body: &str) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        let mut bytes = [0; 1024];
        let length = stream.read(&mut bytes).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&request));
        request.extend_from_slice(&bytes[..length]);
    }
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let request = String::from_utf8(request).unwrap();
    request[request.find("\r\n\r\n").unwrap()..].trim().to_owned()
}

fn leaving() -> String {
    let error = CniError::new(Code::TryAgain, "the server is shutting down", "wait");
    serde_json::to_string(&Refused { error, retry: Some(Retry::NextServer) }).unwrap()
}

#[tokio::test]
async fn an_add_that_a_draining_server_sends_away_is_answered_by_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let servers = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        answer(&mut stream, "503 Service Unavailable", &leaving());
        let told = std::time::Instant::now();
        // The server drains; no other request may arrive meanwhile.
        stream.set_read_timeout(Some(RESTART_GRACE)).unwrap();
        let silence = stream.read(&mut [0]).unwrap_err().kind();
        let socket = listener.local_addr().unwrap().as_pathname().unwrap().to_owned();
        std::fs::remove_file(&socket).unwrap();
        drop((listener, stream));
        // Longer than a server may be away that has not announced its end.
        while told.elapsed() < RESTART_GRACE * 3 {
            thread::yield_now();
        }
        let listener = UnixListener::bind(&socket).unwrap();
        let request = answer(&mut listener.accept().unwrap().0, "200 OK", "");
        (silence, request)
    });
    let answered = timeout(A_WHILE, Server::at(&path).ask(&add(30_000))).await.unwrap();
    assert!(matches!(answered, Ok(Answer::Nothing)), "{answered:?}");
    let (silence, request) = servers.join().unwrap();
    assert_eq!(silence, io::ErrorKind::WouldBlock, "asked again while it drains");
    let left = serde_json::from_str::<Request>(&request).unwrap().timeout_ms.unwrap();
    let spent = u64::try_from((RESTART_GRACE * 3).as_millis()).unwrap();
    assert!(
        (20_000..=30_000 - spent).contains(&left),
        "{left} ms are said to be left of 30 s, after {spent} ms"
    );
}

#[tokio::test]
async fn an_add_that_waits_for_the_next_server_ends_in_time_with_the_words_of_the_last() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // This server closes the connection after each answer, as an earlier version does.
            answer(&mut stream, "503 Service Unavailable", &leaving());
        }
    });
    let asked = Instant::now();
    let error = timeout(A_WHILE, Server::at(&path).ask(&add(1500))).await.unwrap().unwrap_err();
    assert!(matches!(&error, AskError::Leaving(error) if error.code == 11), "{error:?}");
    let took = asked.elapsed();
    assert!(took >= Duration::from_millis(1400) && took < A_WHILE / 2, "{took:?}");
}
