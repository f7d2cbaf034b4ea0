//! Callers of the server's socket that ask for too much, too slowly, too often, or without the
//! right to.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::Shutdown,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use integration::{
    eventually,
    faults::{SHORTLY, Site, limits::Limit, row},
    let_pass,
    node::SERVER_SOCKET,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// How long the server lets a caller take for the head of a request, or its body.
const DEADLINE: Duration = Duration::from_secs(5);
const PERL: &str = "/usr/bin/perl";

fn connect(site: &Site<'_>) -> Result<UnixStream> {
    let stream =
        UnixStream::connect(site.node.path(SERVER_SOCKET)).context("connect to the server")?;
    stream.set_read_timeout(Some(Duration::from_secs(15)))?;
    stream.set_write_timeout(Some(Duration::from_secs(15)))?;
    Ok(stream)
}

/// So many callers, each of which has sent only this.
pub(super) fn crowd(site: &Site<'_>, callers: usize, beginning: &str) -> Result<Vec<UnixStream>> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // This process holds the other ends of the connections.
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(8192).max(soft), hard)?;
    // `LimitNOFILE` of the server's unit.
    site.node.server.limit(Limit::Descriptors(8192))?;
    let call = |_| {
        let mut stream = connect(site)?;
        stream.write_all(beginning.as_bytes())?;
        Ok(stream)
    };
    (0..callers).map(call).collect()
}

/// The server's answer, to the end of the connection.
fn answer(mut stream: &UnixStream) -> String {
    let mut text = Vec::new();
    // A server that refuses the rest of a request resets the connection.
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// A real pod comes and goes at the same time, and neither call takes long.
fn a_pod_comes_and_goes(site: &Site<'_>) -> Result<()> {
    let pod = site.new_pod()?;
    for outcome in [site.add(&pod)?, site.del(&pod)?] {
        outcome.success()?;
        ensure!(outcome.duration < DEADLINE, "it took {:?}", outcome.duration);
    }
    Ok(())
}

pub(super) fn head(length: usize) -> String {
    format!("POST / HTTP/1.1\r\nHost: ovnkube\r\nContent-Length: {length}\r\n\r\n")
}

// --- 48
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_48_requests_of_ten_megabytes_are_refused_after_one() {
    row(48).test(|site| {
        let block = vec![b' '; 1 << 16];
        for chunked in [false, true] {
            let mut stream = connect(site)?;
            let begin = if chunked {
                "POST / HTTP/1.1\r\nHost: ovnkube\r\nTransfer-Encoding: chunked\r\n\r\na00000\r\n"
                    .to_owned()
            } else {
                head(10 << 20)
            };
            stream.write_all(begin.as_bytes())?;
            let mut sent = 0;
            while sent < 10 << 20 && stream.write_all(&block).is_ok() {
                sent += block.len();
            }
            ensure!(sent < 4 << 20, "the server took {sent} bytes");
            let said = answer(&stream);
            ensure!(
                said.is_empty() || said.starts_with("HTTP/1.1 413"),
                "chunked={chunked}: {said}"
            );
        }
        // Here the client sends little more than the head, so that no reset loses the refusal.
        let mut stream = connect(site)?;
        stream.write_all(head(10 << 20).as_bytes())?;
        stream.write_all(&block)?;
        a_pod_comes_and_goes(site)
    });
}

#[test]
fn row_48_a_hundred_slow_callers_are_cut_off_after_five_seconds_and_hinder_nobody() {
    row(48).test(|site| {
        let began = Instant::now();
        let beginnings = [
            "",
            "P",
            "POST / HTTP/1.1\r\nHost: o",
            "POST / HTTP/1.1\r\nHost: o\r\nContent-Length: 100\r\n\r\n{",
        ];
        let slow = (0..100)
            .map(|number| {
                let mut stream = connect(site)?;
                stream.write_all(beginnings[number % beginnings.len()].as_bytes())?;
                Ok(stream)
            })
            .collect::<Result<Vec<UnixStream>>>()?;
        // A byte now and then must not extend the deadline.
        let drip = thread::spawn({
            let mut stream = slow[2].try_clone()?;
            move || {
                let end = Instant::now() + 3 * DEADLINE;
                let dripped = eventually("the server hangs up", 3 * DEADLINE, || {
                    match stream.write_all(b"x") {
                        Ok(()) => Err(anyhow!("it listens")),
                        Err(_) => Ok(()),
                    }
                });
                (dripped, end)
            }
        });
        a_pod_comes_and_goes(site)?;
        for (number, stream) in slow.iter().enumerate() {
            let said = answer(stream);
            ensure!(
                said.is_empty() || said.starts_with("HTTP/1.1 408"),
                "to {:?}: {said}",
                beginnings[number % beginnings.len()]
            );
        }
        let took = began.elapsed();
        ensure!(took >= DEADLINE - Duration::from_millis(200), "they were cut off after {took:?}");
        ensure!(took < 3 * DEADLINE, "they were cut off after {took:?}");
        let (dripped, _) = drip.join().map_err(|_| anyhow!("a thread panicked"))?;
        dripped
    });
}

#[test]
fn row_48_a_caller_that_closes_its_side_leaves_nothing_behind() {
    row(48).test(|site| {
        for _ in 0..20 {
            let mut stream = connect(site)?;
            let request = r#"{"env":{"CNI_COMMAND":"STATUS"}}"#;
            write!(stream, "{}{request}", head(request.len()))?;
            stream.shutdown(Shutdown::Write)?;
            let said = answer(&stream);
            ensure!(said.is_empty() || said.starts_with("HTTP/1.1 "), "{said}");
            // In the middle of a body: there is no request to answer.
            let mut stream = connect(site)?;
            stream.write_all(head(100).as_bytes())?;
            stream.shutdown(Shutdown::Write)?;
            let said = answer(&stream);
            ensure!(said.is_empty() || said.starts_with("HTTP/1.1 400"), "{said}");
        }
        a_pod_comes_and_goes(site)
    });
}

#[test]
fn row_48_a_thousand_idle_connections_hinder_nobody() {
    row(48).test(|site| {
        let idle = crowd(site, 1000, "")?;
        for _ in 0..3 {
            a_pod_comes_and_goes(site)?;
        }
        site.node.runtime().status()?.success()?;
        drop(idle);
        Ok(())
    });
}

#[test]
fn row_48_a_caller_that_has_not_spoken_yet_is_heard_after_a_crowd_of_slow_ones() {
    row(48).test(|site| {
        let announced = format!("{}{{", head(100));
        let before = crowd(site, 255, &announced)?;
        // It comes first and sends last. There are 256 slots.
        let mut late = connect(site)?;
        let after = crowd(site, 10, &announced)?;
        let_pass(Duration::from_millis(500));
        let request = r#"{"env":{"CNI_COMMAND":"STATUS"}}"#;
        write!(late, "{}{request}", head(request.len()))?;
        // The answer comes when the slow ones are cut off, and the connection is closed when it was
        // idle for as long again.
        let said = answer(&late);
        ensure!(said.starts_with("HTTP/1.1 200"), "{said:?}");
        drop((before, after));
        Ok(())
    });
}

// --- 49
// ----------------------------------------------------------------------------------------------------

/// Asks for STATUS and prints the answer. Perl is on every Debian, and every user may run it.
const ASK: &str = r#"$SIG{PIPE} = "IGNORE";
my $stream = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "connect: $!";
print $stream "POST / HTTP/1.1\r\nHost: o\r\nConnection: close\r\nContent-Length: 32\r\n\r\n{\"env\":{\"CNI_COMMAND\":\"STATUS\"}}";
$stream->flush;
local $/;
my $answer = <$stream>;
print $answer // "";"#;

#[test]
fn row_49_a_caller_that_is_not_root_is_refused_and_that_is_said_once() {
    row(49).test(|site| {
        let node = site.node;
        let socket = node.path(SERVER_SOCKET);
        let directory = socket.parent().context("a socket has a directory")?.to_owned();
        let set = |path: &std::path::Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
        };
        // Open socket and directory to other users: otherwise the kernel refuses connect(2), and
        // the server never sees the caller's credentials (unix(7), SO_PEERCRED).
        set(&socket, 0o666)?;
        set(&directory, 0o755)?;
        let as_nobody = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            PERL,
            "-MIO::Socket::UNIX",
            "-e",
            ASK,
            SERVER_SOCKET,
        ];
        let as_root = [PERL, "-MIO::Socket::UNIX", "-e", ASK, SERVER_SOCKET];
        for _ in 0..5 {
            let said = node.run(as_nobody)?;
            ensure!(said.is_empty(), "a stranger was answered: {said}");
            // Root sends the same request and is answered.
            let said = node.run(as_root)?;
            ensure!(said.starts_with("HTTP/1.1 200"), "root was answered: {said:?}");
        }
        a_pod_comes_and_goes(site)?;
        set(&directory, 0o700)?;
        set(&socket, 0o600)?;
        eventually("the server says so, once", SHORTLY, || {
            let log = node.server_log()?;
            let said: Vec<&str> = log
                .lines()
                .filter(|line| line.contains("refused a caller that is neither root"))
                .collect();
            ensure!(said.len() == 1 && said[0].contains("uid=65534"), "{said:#?}");
            Ok(())
        })
    });
}
