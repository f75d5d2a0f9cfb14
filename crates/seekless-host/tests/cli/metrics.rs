//! Aim: a live mount tells about itself, in each format the same, also to many clients at once, to clients that make no sense
//! and to those that never end. Method: real mounts, and HTTP by hand.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use crate::{Scratch, can_mount};

/// Sends `request` and returns the answer, or what there was of it after a minute.
fn ask(scratch: &Scratch, request: &[u8]) -> String {
    let mut socket = UnixStream::connect(scratch.path("socket")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A server that answers early does not take all of it.
    let _ = socket.write_all(request);
    let _ = socket.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// The body of the answer to `path`, which must be a good one.
fn get(scratch: &Scratch, path: &str) -> String {
    let answer = ask(scratch, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer}");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    assert_eq!(length.parse(), Ok(body.len()));
    body.to_owned()
}

/// The value of a sample.
fn sample(text: &str, name: &str) -> f64 {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
}

fn mounted(scratch: &Scratch) {
    scratch.make_directory("mnt");
    scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=64MiB"]);
    scratch.good(&[
        "mount",
        "--log-file",
        "log",
        "--metrics",
        &format!("unix:{}", scratch.path("socket").display()),
        "lfs / file:a.img",
        "mnt",
    ]);
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    assert!(log.contains(&format!("metrics on unix:{}\n", scratch.path("socket").display())), "{log}");
}

/// Operations are counted, and the socket, `stat` and its formats agree. The socket goes with the mount.
#[test]
fn a_mount_tells_about_itself() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    mounted(&scratch);
    let before = get(&scratch, "/metrics");
    for file in 0..20 {
        scratch.write(&format!("mnt/{file}"), vec![7; 10_000]);
    }
    std::fs::create_dir_all(scratch.path("mnt/full/inner")).unwrap();
    assert!(std::fs::remove_dir(scratch.path("mnt/full")).is_err());
    let text = get(&scratch, "/metrics");
    assert!(sample(&text, "seekless_operation_duration_seconds_count{operation=\"create\"}") >= 20.0);
    assert!(sample(&text, "seekless_operation_duration_seconds_bucket{operation=\"write\",le=\"+Inf\"}") >= 20.0);
    assert!(sample(&text, "seekless_operation_errors_total{operation=\"rmdir\"}") == 1.0);
    let seconds = "seekless_operation_duration_seconds_sum{operation=\"write\"}";
    assert!(sample(&text, seconds) > 0.0 && !before.contains(seconds));
    let free = "seekless_space_bytes{kind=\"free\"}";
    assert!(sample(&text, free) + 200_000.0 <= sample(&before, free), "20 files of 10 kB");
    assert!(sample(&text, "seekless_process_resident_memory_bytes") > 1e6);
    assert!(sample(&text, "seekless_process_cpu_seconds_total") > 0.0);
    assert!(text.lines().all(|line| line.starts_with('#') || line.starts_with("seekless_")), "{text}");

    let json: Value = serde_json::from_str(&get(&scratch, "/statistics")).unwrap();
    let told: Value = serde_json::from_str(&scratch.good(&["stat", "--json", "mnt"])).unwrap();
    for value in [&json, &told] {
        assert_eq!(value["mount"]["stack"], "lfs / file:a.img");
        let operations = value["operations"].as_array().unwrap();
        let creates = operations.iter().find(|operation| operation["operation"] == "create").unwrap();
        assert!(creates["answered"].as_u64() >= Some(20), "{creates}");
        assert!(creates["p50_us"].as_f64() <= creates["slowest_us"].as_f64(), "{creates}");
        assert!(value["space"]["total"].as_u64() > Some(1 << 20));
    }
    let names = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.strip_prefix("# TYPE ")?.to_owned())).collect()
    };
    // The text-file collector has the samples of all mounts in one place, whatever directory was asked for.
    for place in ["mnt", "mnt/full"] {
        let stat = scratch.good(&["stat", "--prometheus", place]);
        assert_eq!(names(&stat), names(&text));
        for line in stat.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.split_once('{').is_some_and(|(_, labels)| labels.starts_with("mount=\"T/mnt\"")), "{line}");
        }
    }
    let shown = scratch.good(&["stat", "mnt"]);
    assert!(shown.contains("create") && shown.contains("slowest"), "{shown}");
    scratch.good(&["umount", "mnt"]);
    assert!(!scratch.path("socket").exists());
}

/// What the dashboard asks for exists.
#[test]
fn the_dashboard_shows_what_there_is() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    mounted(&scratch);
    scratch.write("mnt/f", "content");
    let text = get(&scratch, "/metrics");
    let dashboard: Value = serde_json::from_str(include_str!("../../assets/grafana.json")).unwrap();
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            for name in expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                if name.starts_with("seekless_") || name.starts_with("process_") {
                    asked += 1;
                    assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {expression}");
                }
            }
            for counters in expression.split("counter=").skip(1) {
                let counters = counters.split('"').nth(1).unwrap();
                for counter in counters.split('|') {
                    assert!(text.contains(&format!("counter=\"{counter}\"")), "{counter}: {expression}");
                }
            }
        }
    }
    assert!(asked >= 8, "{asked}");
    scratch.good(&["umount", "mnt"]);
}

/// Clients that ask for other things get an error in words; those that say nothing, or too much, or leave, do no harm, and
/// many at once are served or refused; the mount works on.
#[test]
fn strange_clients_do_no_harm() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    mounted(&scratch);
    for (request, status) in [
        (&b"GET / HTTP/1.0\r\n\r\n"[..], "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"\r\n\r\n", "400"),
        (b"\xff\xfe\n\n", "400"),
        (&[b'x'; 20_000], "431"),
        (b"HEAD /metrics HTTP/1.1\n\n", "200"),
    ] {
        let answer = ask(&scratch, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
    assert_eq!(ask(&scratch, b"GET /metr"), "", "it has left in the middle");
    let silent: Vec<UnixStream> = (0..100).filter_map(|_| UnixStream::connect(scratch.path("socket")).ok()).collect();
    scratch.write("mnt/f", "content");
    assert_eq!(std::fs::read(scratch.path("mnt/f")).unwrap(), b"content");
    drop(silent);
    let answered = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        ask(&scratch, b"GET /metrics HTTP/1.1\r\n\r\n").contains("seekless_info")
    });
    assert!(answered, "clients that have gone leave room for others");
    // The address of a living daemon is not taken from it.
    scratch.good(&["mkfs", "-q", "lfs / file:b.img,size=64MiB"]);
    scratch.make_directory("other");
    let socket = format!("unix:{}", scratch.path("socket").display());
    let refused = scratch.run(&["mount", "--metrics", &socket, "lfs / file:b.img", "other"]);
    assert_eq!(refused.code, 32, "{}", refused.err);
    assert!(refused.err.contains("in use") && refused.err.contains("--metrics"), "{}", refused.err);
    scratch.good(&["umount", "mnt"]);
}

/// Each line of a log of objects is one.
#[test]
fn logs_can_be_objects() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("mnt");
    scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=64MiB"]);
    scratch.good(&["mount", "--log-file", "log", "--log-format", "json", "lfs / file:a.img", "mnt"]);
    scratch.good(&["umount", "mnt"]);
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(lines.len() >= 2, "{log}");
    for (line, wanted) in lines.iter().zip(["mounted on", "unmounted from"]) {
        assert!(line["message"].as_str().unwrap().starts_with(wanted), "{line}");
        assert!(line["level"] == "info" && line["pid"].is_u64() && line["time"].is_string(), "{line}");
    }
}
