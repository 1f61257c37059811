//! Strangers on the port of a tcp fabric, and peers that do not answer: none holds up anybody else, and all end by a deadline.
//! Time is virtual: deadlines pass because the test says so.
#![cfg(target_os = "linux")]

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use vervain_transport::{
    Kind, Rank, Time,
    auth::{Dialer, Purpose, Secret},
    fabric::{
        Access, Event, Fabric, Identity, LinkId, Op, Span, Target,
        tcp::{Options, Tcp},
    },
    sync,
};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn identity(rank: u32) -> Identity {
    Identity { rank: Rank::new(rank), incarnation: u64::from(rank) + 10, secret: Secret::from_bytes([3; 32]) }
}

fn fabric(rank: u32, options: Options) -> Tcp {
    Tcp::new(identity(rank), Options { address: Some(LOCAL), ..options }).unwrap()
}

/// Poll everything until `found` says so; real time bounds only a hang.
fn until<T>(fabrics: &mut [&mut Tcp], now: Time, mut found: impl FnMut(usize, Event) -> Option<T>) -> T {
    let limit = Time::now().after(Duration::from_secs(60));
    let mut events = Vec::with_capacity(64);
    while Time::now() < limit {
        for (index, fabric) in fabrics.iter_mut().enumerate() {
            fabric.poll(now, &mut events);
            for event in events.drain(..) {
                if let Some(value) = found(index, event) {
                    return value;
                }
            }
        }
        sync::spin_loop();
    }
    panic!("nothing came within a minute");
}

fn connect(server: &mut Tcp, client: &mut Tcp, now: Time) -> [LinkId; 2] {
    client.dial(Rank::new(0), &server.address(), now.after(Duration::from_secs(30))).unwrap();
    let mut links = [None, None];
    until(&mut [server, client], now, |index, event| {
        match event {
            Event::Up { link, .. } => links[index] = Some(link),
            Event::Down { error, .. } => panic!("{error}"),
            Event::Done { .. } | Event::Revoked { .. } => {}
        }
        links[0].zip(links[1])
    });
    links.map(Option::unwrap)
}

/// Whether the fabric has closed this connection.
fn is_closed(stranger: &mut TcpStream) -> bool {
    stranger.set_nonblocking(true).unwrap();
    loop {
        match stranger.read(&mut [0; 256]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

fn strangers(to: SocketAddr) -> Vec<TcpStream> {
    let hello = *Dialer::new(&identity(1), Purpose::Link, Rank::new(0)).unwrap().hello();
    let messages: [&[u8]; 5] = [&[], &hello[..36], &hello, &[0xff; 36], b"GET / HTTP/1.1\r\n\r\n"];
    let one = |bytes: &&[u8]| {
        let mut stranger = TcpStream::connect(to).unwrap();
        stranger.write_all(bytes).unwrap();
        stranger
    };
    messages.iter().map(one).collect()
}

#[test]
fn strangers_hold_nobody_up_and_are_gone_at_their_deadline() {
    let mut server = fabric(0, Options::default());
    let mut client = fabric(1, Options::default());
    let mut silent = strangers(server.local());
    let now = Time::now();
    connect(&mut server, &mut client, now);
    assert!(silent.iter_mut().all(|stranger| !is_closed(stranger)), "they still have time");
    let late = now.after(Duration::from_secs(11));
    let limit = Time::now().after(Duration::from_secs(60));
    while !silent.iter_mut().all(is_closed) {
        server.poll(late, &mut Vec::new());
        assert!(Time::now() < limit, "a stranger is still connected");
    }
}

#[test]
fn garbage_and_floods_are_dropped_at_once() {
    let mut server = fabric(0, Options::default());
    let now = Time::now();
    let mut flood = TcpStream::connect(server.local()).unwrap();
    flood.set_nonblocking(true).unwrap();
    let limit = Time::now().after(Duration::from_secs(60));
    // Lengths and counts of all ones, as much as the socket takes.
    while !is_closed(&mut flood) {
        let _ = flood.write(&[0xff; 65536]);
        server.poll(now, &mut Vec::new());
        assert!(Time::now() < limit, "the flood goes on");
    }
    let mut client = fabric(1, Options::default());
    connect(&mut server, &mut client, now);
}

#[test]
fn a_crowd_of_strangers_leaves_room_for_a_peer() {
    let mut server = fabric(0, Options { pending: 4, ..Options::default() });
    let mut client = fabric(1, Options::default());
    let crowd: Vec<_> = (0..20).map(|_| TcpStream::connect(server.local()).unwrap()).collect();
    let start = Time::now();
    client.dial(Rank::new(0), &server.address(), Time::NEVER).unwrap();
    let (mut step, mut events) = (0, Vec::with_capacity(8));
    // Every round is a tenth of a second later: patience ends after a second, long before the deadline of the handshake.
    while !events.iter().any(|event| matches!(event, Event::Up { .. })) {
        step += 1;
        let now = start.after(Duration::from_millis(100 * step));
        server.poll(now, &mut events);
        client.poll(start, &mut Vec::new());
        assert!(step < 10_000, "the peer is kept out");
    }
    drop(crowd);
}

#[test]
fn peer_that_accepts_and_never_answers_times_out() {
    let listener = TcpListener::bind((LOCAL, 0)).unwrap();
    let mut address = fabric(0, Options::default()).address();
    address[6..8].copy_from_slice(&listener.local_addr().unwrap().port().to_le_bytes());
    let mut client = fabric(1, Options { sockets: 3, ..Options::default() });
    let now = Time::now();
    let link = client.dial(Rank::new(0), &address, now.after(Duration::from_secs(5))).unwrap();
    client.poll(now.after(Duration::from_secs(4)), &mut Vec::new());
    let late = now.after(Duration::from_secs(5));
    let error = until(&mut [&mut client], late, |_, event| match event {
        Event::Down { link: down, error } if down == link => Some(error),
        other => panic!("{other:?}"),
    });
    assert_eq!((error.kind(), error.rank()), (Kind::TimedOut, Some(Rank::new(0))));
    assert_eq!(client.post(link, &[]).unwrap_err().kind(), Kind::LinkFailed);
}

#[test]
fn outgoing_sockets_have_the_chosen_address() {
    let here = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let listener = TcpListener::bind((LOCAL, 0)).unwrap();
    let mut address = fabric(0, Options::default()).address();
    address[6..8].copy_from_slice(&listener.local_addr().unwrap().port().to_le_bytes());
    let mut client = Tcp::new(identity(1), Options { address: Some(here), sockets: 2, ..Options::default() }).unwrap();
    assert_eq!(client.local().ip(), here);
    client.dial(Rank::new(0), &address, Time::NEVER).unwrap();
    assert_eq!(listener.accept().unwrap().1.ip(), here);
}

#[test]
fn impossible_options_are_refused() {
    let refuse = |options| Tcp::new(identity(0), options).unwrap_err().kind();
    assert_eq!(refuse(Options { sockets: 0, ..Options::default() }), Kind::InvalidArgument);
    assert_eq!(refuse(Options { sockets: 17, ..Options::default() }), Kind::InvalidArgument);
    assert_eq!(refuse(Options { pending: 0, ..Options::default() }), Kind::InvalidArgument);
    let any = Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    assert_eq!(refuse(Options { address: any, ..Options::default() }), Kind::InvalidArgument);
    let interface = Some("nosuch0".to_owned());
    assert_eq!(refuse(Options { interface, ..Options::default() }), Kind::InvalidArgument);
}

#[test]
fn both_sides_may_send_more_than_all_buffers_hold() {
    const BYTES: u64 = 48 << 20;
    for sockets in [1, 4] {
        let options = Options { sockets, ..Options::default() };
        let [mut server, mut client] = [0, 1].map(|rank| fabric(rank, options.clone()));
        let links = connect(&mut server, &mut client, Time::now());
        let regions = [server.allocate(2 * BYTES as usize).unwrap(), client.allocate(2 * BYTES as usize).unwrap()];
        let keys = [
            server.advertise(links[0], regions[0], Access::ReadWrite).unwrap(),
            client.advertise(links[1], regions[1], Access::ReadWrite).unwrap(),
        ];
        let remotes = [server.import(links[0], &keys[1]).unwrap(), client.import(links[1], &keys[0]).unwrap()];
        for (index, fabric) in [&mut server, &mut client].into_iter().enumerate() {
            let local = Span { region: regions[index], offset: 0, bytes: BYTES };
            let target = Target { remote: remotes[index], offset: BYTES };
            assert_eq!(fabric.post(links[index], &[Op::Write { token: 1, local, target, immediate: None }]), Ok(1));
        }
        let mut done = 0;
        until(&mut [&mut server, &mut client], Time::now(), |_, event| {
            done += i32::from(matches!(event, Event::Done { result: Ok(_), .. }));
            (done == 2).then_some(())
        });
    }
}
