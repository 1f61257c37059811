//! Memory that can be passed to another process: unnamed, reserved before it is mapped, and checked when it arrives.
//!
//! A memfd is sealed against shrinking, and a received one must be: a peer that truncated it would kill us with SIGBUS.
//! Files in a directory (`VERVAIN_SHM_DIR`) have no seals. They are accepted only by a fabric that was itself given a
//! directory, and then an authenticated peer that truncates its own file can still kill us; strangers cannot.
//! Space is reserved by fallocate, so that a full file system is an error here and not a SIGBUS later.

use std::{
    fmt,
    io::{self, ErrorKind},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::Arc,
};

use memmap2::{Advice, MmapOptions, MmapRaw};

use super::copy;
use crate::{Error, Kind, Result, fabric::Access};

/// Where memory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The kernel's own unnamed memory files.
    Memory,
    /// Unnamed files in a directory.
    Directory(PathBuf),
}

/// Whether large memory asks for huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugePages {
    /// From 2 MiB on, where the system allows it.
    #[default]
    Large,
    /// Never ask.
    Never,
}

/// Why memory could not be reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The directory or file system that is full.
    pub path: PathBuf,
    /// Bytes that were asked for.
    pub needed: u64,
    /// Bytes that were free.
    pub free: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, needed, free } = self;
        write!(f, "shared memory in {} has {free} bytes free and {needed} are needed; ", path.display())?;
        f.write_str("free some, enlarge it, or name another directory in VERVAIN_SHM_DIR")
    }
}

/// Why no segment was made.
#[derive(Debug)]
pub(super) enum Failure {
    Full(Shortage),
    System(io::Error),
}

/// Our own memory: mapped, and open to be passed on.
#[derive(Debug)]
pub(super) struct Segment {
    pub file: OwnedFd,
    pub map: Arc<MmapRaw>,
}

impl Place {
    /// `bytes` of zeroed memory, of which the first `reserved` are reserved now and the rest by [`Segment::reserve`].
    pub fn segment(&self, bytes: usize, reserved: usize, huge: HugePages) -> Result<Segment, Failure> {
        debug_assert!(bytes.is_multiple_of(page_size()) && bytes > 0 && reserved <= bytes);
        self.refuse_beyond_memory(reserved)?;
        let file = self.create()?;
        truncate(file.as_fd(), bytes)?;
        self.allocate(file.as_fd(), 0, reserved)?;
        if *self == Place::Memory {
            seal(file.as_fd())?;
        }
        let map = Arc::new(map(file.as_fd(), bytes)?);
        advise(&map, huge);
        Ok(Segment { file, map })
    }

    /// Whether received files must be sealed.
    pub fn demands_seals(&self) -> bool {
        *self == Place::Memory
    }

    fn create(&self) -> io::Result<OwnedFd> {
        match self {
            Place::Memory => create_memfd(),
            Place::Directory(path) => {
                let mut options = std::fs::OpenOptions::new();
                let file = options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(path)?;
                Ok(file.into())
            }
        }
    }

    fn allocate(&self, file: BorrowedFd<'_>, at: usize, bytes: usize) -> Result<(), Failure> {
        if bytes == 0 {
            return Ok(());
        }
        loop {
            // SAFETY: no pointers are passed; the descriptor is open.
            if unsafe { libc::fallocate(file.as_raw_fd(), 0, at as libc::off_t, bytes as libc::off_t) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::ENOSPC | libc::ENOMEM | libc::EDQUOT) => return Err(Failure::Full(self.shortage(bytes))),
                _ => return Err(error.into()),
            }
        }
    }

    /// The kernel's memory files have no limit of their own: filling them up would call the out-of-memory killer.
    fn refuse_beyond_memory(&self, bytes: usize) -> Result<(), Failure> {
        if *self != Place::Memory || bytes < LARGE {
            return Ok(());
        }
        self.lacks(bytes).map_or(Ok(()), |shortage| Err(Failure::Full(shortage)))
    }

    /// What is missing for `bytes` more; `None` if they fit, or if nobody knows what is free.
    pub fn lacks(&self, bytes: usize) -> Option<Shortage> {
        let shortage = self.shortage(bytes);
        (shortage.free != 0 && shortage.free < shortage.needed).then_some(shortage)
    }

    fn shortage(&self, needed: usize) -> Shortage {
        let (path, free) = match self {
            Place::Memory => (PathBuf::from("memfd"), available_memory()),
            Place::Directory(path) => (path.clone(), free_in(path)),
        };
        Shortage { path, needed: needed as u64, free }
    }
}

impl Segment {
    /// The same memory through a descriptor that cannot be mapped for writing.
    ///
    /// It keeps mistakes out, and peers of other users. A process of our own user could open it again for writing, as it
    /// could look into our address space.
    pub fn read_only(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        std::fs::File::open(path).map(OwnedFd::from)
    }

    /// Put fresh pages with the same contents in the place of these: whoever has mapped the old ones keeps them, and reaches
    /// nothing of ours any more. What others store meanwhile is in the copy, or is not.
    pub fn renew(&mut self, place: &Place, huge: HugePages) -> Result<(), Failure> {
        let (start, bytes) = (self.map.as_mut_ptr(), self.map.len());
        let fresh = place.segment(bytes, bytes, huge)?;
        // SAFETY: two mappings of `bytes` bytes each, of which the new one is known to nobody else.
        unsafe { copy::observe(start, fresh.map.as_mut_ptr(), bytes) };
        // SAFETY: `start` and `bytes` are the mapping that `self.map` owns.
        unsafe { remap(start, bytes, libc::MAP_SHARED, fresh.file.as_raw_fd())? };
        advise(&self.map, huge);
        self.file = fresh.file;
        Ok(())
    }

    /// Reserve what [`Place::segment`] left out.
    pub fn reserve(&self, place: &Place, at: usize, bytes: usize) -> Result<(), Failure> {
        place.allocate(self.file.as_fd(), at, bytes)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::System(error)
    }
}

/// Map a file that a peer sent and that must be exactly `bytes` long, as far as `access` goes. The descriptor is closed.
pub(super) fn adopt(file: OwnedFd, bytes: usize, demand_seals: bool, access: Access) -> Result<MmapRaw> {
    let metadata = std::fs::File::from(file);
    let size = metadata.metadata()?.len();
    if bytes == 0 || size != bytes as u64 {
        return Err(Kind::Corrupt.into());
    }
    if demand_seals && !is_sealed(metadata.as_fd()) {
        return Err(Kind::Corrupt.into());
    }
    Ok(match access {
        Access::Read => MmapOptions::new().len(bytes).map_raw_read_only(&metadata)?,
        Access::Write | Access::ReadWrite => map(metadata.as_fd(), bytes)?,
    })
}

/// Put private pages in the place of a peer's memory: what is stored there from here on, by whoever still has the address,
/// goes nowhere.
pub(super) fn let_go(map: &MmapRaw) -> io::Result<()> {
    // SAFETY: the range is the mapping that `map` owns.
    unsafe { remap(map.as_mut_ptr(), map.len(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1) }
}

/// Replace a mapping in one step.
///
/// # Safety
/// `start` and `bytes` are a whole mapping of ours to which nobody holds a reference.
unsafe fn remap(start: *mut u8, bytes: usize, flags: libc::c_int, file: libc::c_int) -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: by the caller's contract nothing but that mapping is replaced; it stays valid for reads and writes.
    let at = unsafe { libc::mmap(start.cast(), bytes, protection, flags | libc::MAP_FIXED, file, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn advise(map: &MmapRaw, huge: HugePages) {
    if huge == HugePages::Large && map.len() >= HUGE {
        // a system without huge pages for shared memory refuses, and nothing is lost
        let _ = map.advise(Advice::HugePage);
    }
}

/// `bytes` rounded up to whole pages, at least one.
pub(super) fn whole_pages(bytes: usize) -> Result<usize> {
    let rounded = bytes.max(1).checked_next_multiple_of(page_size()).ok_or(Error::new(Kind::SizeOverflow))?;
    if rounded > isize::MAX as usize { Err(Kind::SizeOverflow.into()) } else { Ok(rounded) }
}

fn map(file: BorrowedFd<'_>, bytes: usize) -> io::Result<MmapRaw> {
    MmapOptions::new().len(bytes).map_raw(file.as_raw_fd())
}

fn create_memfd() -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    memfd(flags | MFD_NOEXEC_SEAL).or_else(|error| match error.kind() {
        // before Linux 6.3 the flag is unknown
        ErrorKind::InvalidInput => memfd(flags),
        _ => Err(error),
    })
}

fn memfd(flags: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string; nothing else is passed.
    let file = unsafe { libc::memfd_create(c"vervain".as_ptr(), flags) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours alone.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // others must not open again for writing what they get for reading
    // SAFETY: no pointers are passed; the descriptor is open.
    if unsafe { libc::fchmod(file.as_raw_fd(), 0o600) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

fn truncate(file: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    // SAFETY: no pointers are passed; the descriptor is open.
    if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

fn seal(file: BorrowedFd<'_>) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no pointers are passed; the descriptor is open.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

fn is_sealed(file: BorrowedFd<'_>) -> bool {
    // SAFETY: no pointers are passed; the descriptor is open.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

/// Memory that could be used without swapping; 0 if unknown.
fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix("kB")).and_then(|text| text.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Free bytes of the file system that holds `path`; 0 if unknown.
fn free_in(path: &std::path::Path) -> u64 {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return 0 };
    // SAFETY: all zeros is a valid statvfs.
    let mut status: libc::statvfs = unsafe { core::mem::zeroed() };
    // SAFETY: `path` is a C string and `status` a live statvfs that the call fills in.
    if unsafe { libc::statvfs(path.as_ptr(), &mut status) } != 0 {
        return 0;
    }
    status.f_bavail * status.f_frsize
}

/// Size of a page.
pub(super) fn page_size() -> usize {
    // SAFETY: no pointers are passed.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Size of a huge page; smaller memory does not ask for one.
const HUGE: usize = 2 << 20;
/// From here on a request is compared with the memory that is available.
const LARGE: usize = 16 << 20;
/// `MFD_NOEXEC_SEAL` of linux/memfd.h.
const MFD_NOEXEC_SEAL: libc::c_uint = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Access = Access::ReadWrite;

    fn file(bytes: usize) -> OwnedFd {
        Place::Memory.segment(bytes, bytes, HugePages::Never).unwrap().file
    }

    #[test]
    fn received_file_of_another_size_is_refused() {
        let page = page_size();
        assert!(adopt(file(page), page, true, BOTH).is_ok());
        for claimed in [0, 1, page - 1, page + 1, 2 * page] {
            assert_eq!(adopt(file(page), claimed, true, BOTH).unwrap_err().kind(), Kind::Corrupt, "{claimed}");
        }
    }

    #[test]
    fn received_file_that_could_shrink_is_refused() {
        let page = page_size();
        let unsealed = || {
            let file = create_memfd().unwrap();
            truncate(file.as_fd(), page).unwrap();
            file
        };
        assert_eq!(adopt(unsealed(), page, true, BOTH).unwrap_err().kind(), Kind::Corrupt);
        assert!(adopt(unsealed(), page, false, BOTH).is_ok());
    }

    #[test]
    fn received_descriptor_that_is_no_file_is_refused() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(adopt(one.into(), page_size(), false, BOTH).is_err());
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(adopt(null.into(), page_size(), false, BOTH).is_err());
    }

    #[test]
    fn own_memory_cannot_be_truncated() {
        let file = file(page_size());
        assert!(truncate(file.as_fd(), 0).is_err());
        assert!(truncate(file.as_fd(), 2 * page_size()).is_err());
    }

    fn places() -> [Place; 2] {
        [Place::Memory, Place::Directory(std::env::temp_dir())]
    }

    /// A word of the mapping.
    fn word(map: &MmapRaw, at: usize) -> &crate::sync::AtomicU64 {
        assert!(at + 8 <= map.len());
        // SAFETY: 8 aligned bytes of a live mapping.
        unsafe { crate::sync::AtomicU64::from_ptr(map.as_mut_ptr().add(at).cast()) }
    }

    #[test]
    fn descriptor_for_reading_cannot_be_mapped_for_writing() {
        for place in places() {
            let bytes = page_size();
            let segment = place.segment(bytes, bytes, HugePages::Never).unwrap();
            let read_only = || segment.read_only().unwrap();
            assert!(adopt(read_only(), bytes, place.demands_seals(), Access::ReadWrite).is_err(), "{place:?}");
            let map = adopt(read_only(), bytes, place.demands_seals(), Access::Read).unwrap();
            word(&segment.map, 0).store(7, crate::sync::Ordering::Relaxed);
            assert_eq!(word(&map, 0).load(crate::sync::Ordering::Relaxed), 7);
        }
    }

    #[test]
    fn renewed_memory_keeps_contents_and_address_and_loses_those_who_mapped_it() {
        use crate::sync::Ordering::Relaxed;
        for place in places() {
            let bytes = 2 * page_size();
            let mut segment = place.segment(bytes, bytes, HugePages::Large).unwrap();
            let share = |segment: &Segment| {
                adopt(segment.file.try_clone().unwrap(), bytes, place.demands_seals(), BOTH).unwrap()
            };
            let old = share(&segment);
            word(&old, bytes - 8).store(3, Relaxed);
            let start = segment.map.as_ptr();
            segment.renew(&place, HugePages::Large).unwrap();
            assert_eq!((segment.map.as_ptr(), word(&segment.map, bytes - 8).load(Relaxed)), (start, 3));
            word(&old, 0).store(5, Relaxed);
            assert_eq!(word(&segment.map, 0).load(Relaxed), 0);
            let new = share(&segment);
            word(&new, 0).store(9, Relaxed);
            assert_eq!(word(&segment.map, 0).load(Relaxed), 9);
        }
    }

    #[test]
    fn memory_that_was_let_go_is_private() {
        use crate::sync::Ordering::Relaxed;
        let bytes = page_size();
        for access in [Access::Read, BOTH] {
            let segment = Place::Memory.segment(bytes, bytes, HugePages::Never).unwrap();
            let map = adopt(segment.file.try_clone().unwrap(), bytes, true, access).unwrap();
            let_go(&map).unwrap();
            word(&map, 8).store(1, Relaxed);
            assert_eq!(word(&segment.map, 8).load(Relaxed), 0, "{access:?}");
        }
    }

    #[test]
    fn more_than_the_machine_has_is_a_shortage_with_numbers() {
        let bytes = 1 << 50;
        let Err(Failure::Full(shortage)) = Place::Memory.segment(bytes, bytes, HugePages::Never) else {
            panic!("granted")
        };
        assert_eq!(shortage.needed, 1 << 50);
        assert!(shortage.free > 0 && shortage.free < shortage.needed);
        assert!(shortage.to_string().contains("memfd"));
    }

    #[test]
    fn sizes_round_up_to_whole_pages_and_overflow_is_refused() {
        let page = page_size();
        for (bytes, pages) in [(0, 1), (1, 1), (page - 1, 1), (page, 1), (page + 1, 2)] {
            assert_eq!(whole_pages(bytes).unwrap(), pages * page);
        }
        for bytes in [usize::MAX, usize::MAX - page, isize::MAX as usize] {
            assert_eq!(whole_pages(bytes).unwrap_err().kind(), Kind::SizeOverflow);
        }
    }
}
