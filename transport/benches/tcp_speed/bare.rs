//! The same ping-pong without us: two bare sockets.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::Instant,
};

use vervain_transport::host::affinity::pin_to;

/// How the answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Non-blocking reads in a loop.
    Spin,
    /// Blocking reads.
    Block,
}

/// Microseconds.
pub fn half_round_trip(bytes: usize, rounds: usize, reads: Reads) -> f64 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback works");
    let address = listener.local_addr().expect("it is bound");
    let echo = std::thread::spawn(move || {
        let _ = pin_to(1);
        let mut stream = prepare(listener.accept().expect("the other thread connects").0, reads);
        let mut buffer = vec![0; bytes];
        for _ in 0..rounds {
            read(&mut stream, &mut buffer);
            write(&mut stream, &buffer);
        }
    });
    let _ = pin_to(0);
    let mut stream = prepare(TcpStream::connect(address).expect("it listens"), reads);
    let mut buffer = vec![0; bytes];
    let started = Instant::now();
    for _ in 0..rounds {
        write(&mut stream, &buffer);
        read(&mut stream, &mut buffer);
    }
    let taken = started.elapsed();
    echo.join().expect("no panic");
    taken.as_secs_f64() * 1e6 / (2 * rounds) as f64
}

fn prepare(stream: TcpStream, reads: Reads) -> TcpStream {
    stream.set_nodelay(true).expect("a socket");
    stream.set_nonblocking(reads == Reads::Spin).expect("a socket");
    stream
}

fn read(stream: &mut TcpStream, buffer: &mut [u8]) {
    let mut got = 0;
    while got < buffer.len() {
        match stream.read(&mut buffer[got..]) {
            Ok(0) => panic!("the other thread is there"),
            Ok(count) => got += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

fn write(stream: &mut TcpStream, buffer: &[u8]) {
    let mut sent = 0;
    while sent < buffer.len() {
        match stream.write(&buffer[sent..]) {
            Ok(count) => sent += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}
