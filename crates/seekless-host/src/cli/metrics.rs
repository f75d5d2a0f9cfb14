//! `seekless mount --metrics`: a small HTTP server that tells what the mount has counted.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::str::FromStr;

use futures_util::future::{Either, select};
use seekless::rt::Rt;
use seekless::units::Nanos;
use serde_json::Value;

use super::{Failure, prometheus};
use crate::nbd::{Closed, ListenAddress, Listener, Stream};
use crate::reactor::Reactor;

/// Where to listen: `unix:PATH` or `tcp:ADDRESS:PORT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Address(pub(super) ListenAddress);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        match text.split_once(':') {
            // The daemon is in another directory than its user.
            Some(("unix", path)) if !path.is_empty() => {
                let path = std::path::absolute(PathBuf::from(path)).map_err(|error| error.to_string())?;
                Ok(Address(ListenAddress::Unix(path)))
            }
            Some(("tcp", address)) => match address.parse::<SocketAddr>() {
                Ok(address) => Ok(Address(ListenAddress::Tcp(address))),
                Err(error) => Err(format!("`{address}`: {error}; for example tcp:127.0.0.1:9700")),
            },
            _ => Err("write unix:PATH or tcp:ADDRESS:PORT".to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenAddress::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// A client has this long for its request, and to take the answer.
const PATIENCE: Nanos = Nanos::from_secs(10);

/// Limit of the head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Limit of clients at once: more would hold memory of the daemon.
const CLIENTS_MAX: usize = 16;

/// The socket, before there is something to tell. It is made before the mount, in which the socket may have its name.
pub(super) fn listen(address: &Address) -> Result<Listener, Failure> {
    Listener::new(&address.0).map_err(|error| {
        Failure::new(format!("--metrics {address}: {error}")).hint("name another address, or stop what listens there")
    })
}

/// Answers clients as long as `listener` does: with what `tell` returns at that moment.
pub(super) async fn serve<T: Future<Output = Value> + 'static>(
    rt: Rt,
    reactor: Reactor,
    listener: Listener,
    tell: impl Fn() -> T + 'static,
) {
    let tell = Rc::new(tell);
    let clients = Rc::new(());
    loop {
        let socket = match listener.accept(&rt, &reactor).await {
            Ok(socket) => socket,
            Err(error) => return log::error!("metrics are no longer served: {error}"),
        };
        if Rc::strong_count(&clients) > CLIENTS_MAX {
            log::warn!("{CLIENTS_MAX} clients read metrics; another one is refused");
            continue;
        }
        let (stream, tell, client, clock) = (Stream::new(&reactor, socket), tell.clone(), clients.clone(), rt.clone());
        drop(rt.spawn(async move {
            let patience = pin!(clock.sleep(PATIENCE));
            if let Either::Right(_) = select(pin!(attend(&stream, &*tell)), patience).await {
                log::debug!("a client of the metrics takes too long");
            }
            stream.shut();
            drop(client);
        }));
    }
}

/// Reads one request and answers it.
async fn attend<T: Future<Output = Value>>(stream: &Stream, tell: &impl Fn() -> T) -> Result<(), Closed> {
    let (mut head, mut length) = (vec![0; HEAD_BYTES_MAX], 0);
    while !head[..length].ends_with(b"\r\n\r\n") && !head[..length].ends_with(b"\n\n") {
        if length == HEAD_BYTES_MAX {
            return stream.send(&answer("431 Request Header Fields Too Large", PLAIN, "too long\n")).await;
        }
        length += stream.some(&mut head[length..]).await?;
    }
    head.truncate(length);
    // The rest of the head, and a body, mean nothing here.
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let reply = match (words.next(), words.next()) {
        (Some("GET" | "HEAD"), Some("/metrics")) => {
            answer("200 OK", PROMETHEUS, &prometheus::to_text(&tell().await, None))
        }
        (Some("GET" | "HEAD"), Some("/statistics")) => answer("200 OK", JSON, &format!("{}\n", tell().await)),
        (Some("GET" | "HEAD"), Some(_)) => answer("404 Not Found", PLAIN, "there are /metrics and /statistics\n"),
        (Some(_), Some(_)) => answer("405 Method Not Allowed", PLAIN, "only GET\n"),
        _ => answer("400 Bad Request", PLAIN, "this is not HTTP\n"),
    };
    let body = reply.windows(4).position(|window| window == b"\r\n\r\n").map_or(reply.len(), |at| at + 4);
    let reply = if line.starts_with("HEAD ") { &reply[..body] } else { &reply };
    stream.send(reply).await
}

const PLAIN: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";

fn answer(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for good in ["unix:/run/x.sock", "tcp:127.0.0.1:9700", "tcp:[::1]:9700"] {
            assert_eq!(good.parse::<Address>().map(|address| address.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "unix:", "tcp:9700", "tcp:localhost:9700", "/run/x.sock", "udp:127.0.0.1:1"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
