//! The health checks of Services whose external traffic stays on the node (`healthCheckNodePort`):
//! a load balancer outside of the cluster asks each node whether it has an endpoint. Answers as
//! kube-proxy does.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode, body::Bytes, header, server::conn::http1, service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::known::HealthCheck;

/// Limit for one connection, from accept(2) to the last byte. Load balancers give up after some
/// seconds.
const DEADLINE: Duration = Duration::from_secs(5);
/// Limit for the request, which a prober sends at once. Those that are silent are others.
const SILENCE: Duration = Duration::from_secs(1);
/// Open connections of one port. A load balancer has a handful of probers; more would use up
/// descriptors.
const MOST: usize = 32;
/// Pause before a port that another process has is tried again, and after accept(2) has failed.
const RETRY: Duration = Duration::from_secs(5);

/// The listeners, by port. They end when this is dropped.
#[derive(Debug, Default)]
pub(super) struct HealthChecks {
    all: BTreeMap<u16, Listener>,
}

#[derive(Debug)]
struct Listener {
    check: watch::Sender<HealthCheck>,
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HealthChecks {
    /// Answers these from now on, and no others. Needs a tokio runtime.
    pub(super) fn answer(&mut self, wanted: BTreeMap<u16, HealthCheck>) {
        self.all.retain(|port, _| wanted.contains_key(port));
        for (port, check) in wanted {
            match self.all.get(&port) {
                Some(listener) => {
                    listener.check.send_if_modified(|before| {
                        std::mem::replace(before, check.clone()) != check
                    });
                }
                None => {
                    let (sender, receiver) = watch::channel(check);
                    let task = tokio::spawn(listen(port, receiver));
                    self.all.insert(port, Listener { check: sender, task });
                }
            }
        }
    }
}

async fn listen(port: u16, check: watch::Receiver<HealthCheck>) {
    let mut is_logged = false;
    let listener = loop {
        match bind(port).await {
            Ok(listener) => break listener,
            Err(error) => {
                if !std::mem::replace(&mut is_logged, true) {
                    let service = &check.borrow().service;
                    tracing::error!(%error, port, %service, "cannot answer the health check of a service");
                }
                sleep(RETRY).await;
            }
        }
    };
    let mut open = OpenConnections::default();
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let check = check.borrow().clone();
                // The caller hung up or was too slow: it will ask again.
                let spoken = async { drop(timeout(DEADLINE, speak(stream, check)).await) };
                open.spawn(from.ip(), spoken);
            }
            Err(_) => sleep(RETRY).await,
        }
    }
}

/// The connections of a port, the oldest first. They end when this is dropped.
#[derive(Debug, Default)]
struct OpenConnections(VecDeque<(IpAddr, JoinHandle<()>)>);

impl OpenConnections {
    /// Adds a connection. Without room, the oldest one of the address with the most ends: a prober
    /// gets its answer within milliseconds, and others that hold connections open must not keep it
    /// away.
    fn spawn(&mut self, from: IpAddr, connection: impl Future<Output = ()> + Send + 'static) {
        self.0.retain(|(_, task)| !task.is_finished());
        self.0.push_back((from, tokio::spawn(connection)));
        if self.0.len() <= MOST {
            return;
        }
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (from, _) in &self.0 {
            *counts.entry(*from).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(from, _)| from);
        let oldest = self.0.iter().position(|(from, _)| Some(*from) == most);
        if let Some((_, task)) = oldest.and_then(|oldest| self.0.remove(oldest)) {
            task.abort();
        }
    }
}

impl Drop for OpenConnections {
    fn drop(&mut self) {
        self.0.iter().for_each(|(_, task)| task.abort());
    }
}

/// At all addresses of the host, of both families.
async fn bind(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        // A kernel without IPv6.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await
        }
        bound => bound,
    }
}

async fn speak(stream: TcpStream, check: HealthCheck) -> Result<(), hyper::Error> {
    let service = service_fn(move |_: Request<hyper::body::Incoming>| {
        let answer = answer(&check);
        async move { Ok::<_, Infallible>(answer) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SILENCE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// Kube-proxy's answer, whatever is asked.
fn answer(check: &HealthCheck) -> Response<Full<Bytes>> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'a> {
        service: Name<'a>,
        local_endpoints: usize,
        service_proxy_healthy: bool,
    }
    #[derive(Serialize)]
    struct Name<'a> {
        namespace: &'a str,
        name: &'a str,
    }
    let (namespace, name) = (check.service.namespace(), check.service.name());
    let body = Body {
        service: Name { namespace, name },
        local_endpoints: check.local_endpoints,
        // It is this program that answers.
        service_proxy_healthy: true,
    };
    let text = serde_json::to_string_pretty(&body).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(text + "\n")));
    if check.local_endpoints == 0 {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    headers.insert("x-load-balancing-endpoint-weight", check.local_endpoints.into());
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Forty connections that say nothing kept a load balancer's prober away, on every node.
    #[tokio::test]
    async fn silent_connections_do_not_keep_a_prober_away() {
        let service = "shop/web".parse().unwrap();
        // One that is free now.
        let port = bind(0).await.unwrap().local_addr().unwrap().port();
        let (_sender, check) = watch::channel(HealthCheck { service, local_endpoints: 1 });
        let listening = tokio::spawn(listen(port, check));
        let connect = async || loop {
            if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                return stream;
            }
            tokio::task::yield_now().await;
        };
        let mut silent = Vec::new();
        for _ in 0..4 * MOST {
            silent.push(connect().await);
        }
        let mut prober = connect().await;
        prober.write_all(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        let read = timeout(Duration::from_millis(900), prober.read_to_string(&mut answer)).await;
        read.expect("an answer before the silent ones are given up").unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("\"localEndpoints\": 1"),
            "{answer}"
        );
        listening.abort();
    }
}
