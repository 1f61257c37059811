//! Programs of others, as child processes on the same two cores.

use std::{
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

/// A port for the peers: below the ones that the kernel hands out.
fn port() -> String {
    static NEXT: Mutex<u16> = Mutex::new(0);
    let mut next = NEXT.lock().expect("no panic");
    *next += 1;
    (11_000 + std::process::id() as u16 % 8000 + *next).to_string()
}

/// `program` on `core`, ended after 20 seconds at the latest.
fn command(core: usize, program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "2", "20", "taskset", "-c", &core.to_string(), program]);
    command.env("UCX_TLS", "tcp").env("UCX_NET_DEVICES", "lo").env("UCX_WARN_UNUSED_ENV_VARS", "n");
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// Start a server, run a client, return what the client printed if both ended well.
fn run(server: &mut Command, client: &mut Command) -> Option<String> {
    let mut server = server.stdout(Stdio::null()).spawn().ok()?;
    std::thread::sleep(Duration::from_millis(300));
    let output = client.output();
    if !output.as_ref().is_ok_and(|output| output.status.success()) {
        end(&mut server);
        return None;
    }
    server.wait().ok()?;
    String::from_utf8(output.ok()?.stdout).ok()
}

fn end(server: &mut Child) {
    // `timeout` passes its end on to the program.
    let _ = Command::new("kill").arg(server.id().to_string()).status();
    let _ = server.wait();
}

/// Microseconds per message of a test of `ucx_perftest`.
pub fn ucx(test: &str, bytes: usize, count: usize) -> Option<f64> {
    let (port, bytes, count) = (port(), bytes.to_string(), count.to_string());
    let mut client = command(0, "ucx_perftest");
    client.args(["-p", &port, "127.0.0.1", "-t", test, "-s", &bytes, "-n", &count, "-w", "5", "-f"]);
    let text = run(command(1, "ucx_perftest").args(["-p", &port]), &mut client)?;
    // The last line: count, then microseconds: median or typical, average, overall.
    let overall = text.lines().last()?.split_whitespace().nth(3)?;
    overall.parse().ok()
}

/// Microseconds per `bytes` bytes of iperf3 with `sockets` sockets.
pub fn iperf3(sockets: u32, bytes: usize, congestion: Option<&str>) -> Option<f64> {
    let (port, sockets) = (port(), sockets.to_string());
    let mut client = command(0, "iperf3");
    client.args(["-p", &port, "-c", "127.0.0.1", "-t", "1.5", "-P", &sockets, "-J"]);
    if let Some(congestion) = congestion {
        client.args(["-C", congestion]);
    }
    let text = run(command(1, "iperf3").args(["-s", "-1", "-p", &port]), &mut client)?;
    let received = text.split("\"sum_received\"").nth(1)?;
    let rate = received.split("\"bits_per_second\":").nth(1)?.split([',', '\n', '}']).next()?;
    let bits: f64 = rate.trim().parse().ok()?;
    Some(bytes as f64 / (bits / 8e6))
}
