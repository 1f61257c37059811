//! Packets and descriptors between two processes: abstract SEQPACKET sockets and the epoll set that watches them.

use core::time::Duration;
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use socket2::{Domain, SockAddr, Socket, Type};

use super::address::Name;

/// Most descriptors in one packet.
pub(super) const DESCRIPTORS: usize = 2;
/// Size of the largest packet, in bytes.
pub(super) const PACKET: usize = 128;

/// What arrived in one packet.
#[derive(Debug)]
pub(super) struct Packet {
    bytes: [u8; PACKET],
    length: usize,
    /// Descriptors that came with it; those that nobody takes are closed.
    pub files: [Option<OwnedFd>; DESCRIPTORS],
}

impl Packet {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The packet's bytes, if it has just this many.
    pub fn exactly<const N: usize>(&self) -> Option<&[u8; N]> {
        self.bytes().try_into().ok()
    }
}

/// What a socket had for us.
#[derive(Debug)]
pub(super) enum Incoming {
    Packet(Packet),
    Nothing,
    /// The other end is closed, or sent what does not fit a packet.
    End,
}

/// A socket that peers dial.
pub(super) fn listen(name: &Name) -> io::Result<OwnedFd> {
    let socket = seqpacket()?;
    socket.bind(&socket_address(name)?)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A connection to the socket of this name. `WouldBlock` if too many are waiting there.
pub(super) fn connect(name: &Name) -> io::Result<OwnedFd> {
    let socket = seqpacket()?;
    socket.connect(&socket_address(name)?)?;
    Ok(socket.into())
}

/// The next waiting connection; `WouldBlock` if there is none.
pub(super) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: null for the address and its length is allowed; the descriptor is open.
    let file = unsafe { libc::accept4(listener.as_raw_fd(), core::ptr::null_mut(), core::ptr::null_mut(), flags) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// The process at the other end, as this process numbers it; 0 if it is in no namespace of ours.
pub(super) fn peer_process(socket: BorrowedFd<'_>) -> libc::pid_t {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let out = (&raw mut credentials).cast();
    // SAFETY: `credentials` and `length` are live and `length` is the size of the former.
    unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, out, &mut length) };
    credentials.pid
}

/// Readable when the process at the other end of a socket has ended, whoever holds its end open. `None` if it is ours, or if
/// the kernel has no such thing or does not show us that process.
pub(super) fn peer_watch(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    let process = peer_process(socket);
    if process <= 0 || process.unsigned_abs() == std::process::id() {
        return None;
    }
    // SAFETY: no pointers are passed.
    let file = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    let file = RawFd::try_from(file).ok().filter(|&file| file >= 0)?;
    // SAFETY: the descriptor is new and ours alone.
    Some(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Send one packet with copies of `files`; it goes whole or not at all.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    debug_assert!(bytes.len() <= PACKET && files.len() <= DESCRIPTORS);
    let mut control = Control::new();
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = header(&mut part, &mut control);
    attach(&mut message, files);
    // SAFETY: `message` points to live `part`, `bytes` and `control`, which the call only reads.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Take one packet, if one is there.
pub(super) fn receive(socket: BorrowedFd<'_>) -> Incoming {
    let mut packet = Packet { bytes: [0; PACKET], length: 0, files: [const { None }; DESCRIPTORS] };
    let mut control = Control::new();
    let mut part = libc::iovec { iov_base: packet.bytes.as_mut_ptr().cast(), iov_len: PACKET };
    let mut message = header(&mut part, &mut control);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: `message` points to live buffers of the lengths it names.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, flags) };
    if length < 0 {
        return match io::Error::last_os_error().kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Incoming::Nothing,
            // the other end was closed with packets of ours in it; that is said once, and before what it had sent
            io::ErrorKind::ConnectionReset => receive(socket),
            _ => Incoming::End,
        };
    }
    detach(&message, &mut packet.files);
    packet.length = length as usize;
    if length == 0 || message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Incoming::End;
    }
    Incoming::Packet(packet)
}

/// The other end is gone, or its process ([`peer_watch`]), of which a child may hold that end open. One system call.
pub(super) fn is_gone(socket: &OwnedFd, process: Option<&OwnedFd>) -> bool {
    let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
    // poll passes over a descriptor of -1
    let process = process.map_or(-1, AsRawFd::as_raw_fd);
    let mut polls = [entry(socket.as_raw_fd(), libc::POLLRDHUP), entry(process, libc::POLLIN)];
    // SAFETY: two live pollfds.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), 2, 0) };
    let has_ended = polls[1].revents & libc::POLLIN != 0;
    ready > 0 && (has_ended || polls[0].revents & (libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR) != 0)
}

/// Send nothing more; the other end sees the end, and its own end can still be seen.
pub(super) fn finish(socket: BorrowedFd<'_>) {
    // SAFETY: no pointers are passed; the descriptor is open.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_WR) };
}

/// The sockets that are watched, each with a number of the caller's.
#[derive(Debug)]
pub(super) struct Watch(OwnedFd);

impl Watch {
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let file = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours alone.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(file) }))
    }

    /// Can be read when some socket has something.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Report `number` when the socket has something or is closed. Closing the socket ends it.
    pub fn add(&self, socket: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, number)
    }

    /// Report another number for a socket from here on.
    pub fn renumber(&self, socket: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, number)
    }

    fn control(&self, operation: i32, socket: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLRDHUP) as u32, u64: number };
        // SAFETY: `event` is live; both descriptors are open.
        let result = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, socket.as_raw_fd(), &mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Numbers that have something, after at most `limit`, rounded up to a millisecond.
    pub fn wait(&self, numbers: &mut [u64; BATCH], limit: Duration) -> usize {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        let milliseconds = limit.as_micros().div_ceil(1000).min(1000) as i32;
        // SAFETY: `events` has room for BATCH entries.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), BATCH as i32, milliseconds) };
        let count = count.max(0) as usize;
        for (number, event) in numbers.iter_mut().zip(&events[..count]) {
            *number = event.u64;
        }
        count
    }
}

/// Most sockets reported at once.
pub(super) const BATCH: usize = 32;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Room for one control message with [`DESCRIPTORS`] descriptors, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

// SAFETY: CMSG_SPACE only computes.
const CONTROL: usize = unsafe { libc::CMSG_SPACE((DESCRIPTORS * size_of::<RawFd>()) as u32) } as usize;

impl Control {
    fn new() -> Self {
        Self([0; CONTROL])
    }
}

fn seqpacket() -> io::Result<Socket> {
    // close-on-exec is set by `Socket::new`
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn socket_address(name: &Name) -> io::Result<SockAddr> {
    let mut path = String::from("\0vervain-");
    for byte in name {
        path.push_str(&format!("{byte:02x}"));
    }
    SockAddr::unix(path)
}

fn header(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all zeros is a valid msghdr.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    message
}

fn attach(message: &mut libc::msghdr, files: &[BorrowedFd<'_>]) {
    if files.is_empty() {
        message.msg_control = core::ptr::null_mut();
        message.msg_controllen = 0;
        return;
    }
    let bytes = size_of_val(files) as u32;
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute; the control buffer has room for DESCRIPTORS >= files.len(), so the
    // first header and its data lie within it.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(bytes) as _;
        let first = libc::CMSG_FIRSTHDR(message);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = libc::CMSG_LEN(bytes) as _;
        for (index, file) in files.iter().enumerate() {
            libc::CMSG_DATA(first).cast::<RawFd>().add(index).write_unaligned(file.as_raw_fd());
        }
    }
}

/// Take ownership of every descriptor in the message; what has no room in `files` is closed.
// the type of cmsg_len differs between C libraries
#[allow(clippy::unnecessary_cast)]
fn detach(message: &libc::msghdr, files: &mut [Option<OwnedFd>; DESCRIPTORS]) {
    let mut free = files.iter_mut();
    // SAFETY: the kernel filled `message` and its control buffer; the CMSG functions stay within msg_controllen. Every
    // descriptor is new and ours alone.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(message);
        while let Some(head) = control.as_ref() {
            if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
                let count = (head.cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                for index in 0..count {
                    let file = libc::CMSG_DATA(control).cast::<RawFd>().add(index).read_unaligned();
                    let file = OwnedFd::from_raw_fd(file);
                    if let Some(place) = free.next() {
                        *place = Some(file);
                    }
                }
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth;
    use std::os::fd::AsFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        let name = auth::random().unwrap();
        let listener = listen(&name).unwrap();
        let one = connect(&name).unwrap();
        let other = accept(listener.as_fd()).unwrap();
        (one, other)
    }

    #[test]
    fn packet_arrives_whole_with_its_descriptors() {
        let (one, other) = pair();
        let file = std::fs::File::open("/dev/null").unwrap();
        send(one.as_fd(), b"abc", &[file.as_fd(), file.as_fd()]).unwrap();
        send(one.as_fd(), b"d", &[]).unwrap();
        let Incoming::Packet(first) = receive(other.as_fd()) else { panic!("nothing") };
        assert_eq!(first.bytes(), b"abc");
        assert!(first.files.iter().all(Option::is_some));
        let Incoming::Packet(second) = receive(other.as_fd()) else { panic!("nothing") };
        assert_eq!(second.exactly::<1>(), Some(b"d"));
        assert!(second.files.iter().all(Option::is_none));
        assert!(matches!(receive(other.as_fd()), Incoming::Nothing));
        assert_eq!(peer_process(other.as_fd()), std::process::id() as i32);
    }

    #[test]
    fn closed_end_and_oversized_packet_are_an_end() {
        let (one, other) = pair();
        let long = [0; PACKET + 1];
        // SAFETY: `long` is live and of that length.
        unsafe { libc::send(one.as_raw_fd(), long.as_ptr().cast(), long.len(), 0) };
        assert!(matches!(receive(other.as_fd()), Incoming::End));
        assert!(!is_gone(&other, None));
        drop(one);
        assert!(is_gone(&other, None));
        assert!(matches!(receive(other.as_fd()), Incoming::End));
    }

    #[test]
    fn packets_before_the_end_are_read_though_ours_were_not() {
        let (one, other) = pair();
        send(one.as_fd(), b"never read", &[]).unwrap();
        send(other.as_fd(), b"goodbye", &[]).unwrap();
        finish(other.as_fd());
        drop(other);
        let Incoming::Packet(last) = receive(one.as_fd()) else { panic!("lost") };
        assert_eq!(last.bytes(), b"goodbye");
        assert!(matches!(receive(one.as_fd()), Incoming::End));
    }

    #[test]
    fn nobody_listening_is_refused() {
        let error = connect(&auth::random().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
