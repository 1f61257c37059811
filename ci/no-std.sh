#!/usr/bin/env bash
# Show that the transport without its feature `std` needs neither std nor an operating system.
#
# A static library with a panic handler of its own takes the crate in: were std anywhere below, there would be two handlers and
# the compiler would refuse (E0152). The same library with `std` must be refused: that shows that the check can fail.
# An example with rings in statics is built the same way, linked into a C program, and run.
# Where a compiler with std's source is at hand, two more targets are checked: one without an operating system, one of 32 bits.
set -uo pipefail
cd "$(dirname "$0")/.."
source ci/lib.sh

root=$PWD
mkdir -p "$log_dir"
probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT

# make_probe FEATURES: the library, with these features of the transport.
make_probe() {
    mkdir -p "$probe/src"
    cp Cargo.lock "$probe/"
    cat >"$probe/Cargo.toml" <<EOF
[package]
name = "no-std-probe"
version = "0.0.0"
edition = "2024"

[lib]
crate-type = ["staticlib"]

[dependencies]
vervain-transport = { path = "$root/transport", default-features = false, features = [$1] }

[profile.dev]
panic = "abort"

[workspace]
EOF
    cat >"$probe/src/lib.rs" <<'EOF'
#![no_std]
extern crate vervain_transport;

use core::alloc::{GlobalAlloc, Layout};

struct Nothing;

unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static NOTHING: Nothing = Nothing;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
EOF
}

build() {
    CARGO_TARGET_DIR=$root/target-no-std timeout 300 "$@" --quiet --manifest-path "$probe/Cargo.toml"
}

make_probe ''
if build cargo build; then pass "without std and alloc"; else fail "without std and alloc"; fi

make_probe '"alloc"'
cat >>"$probe/src/lib.rs" <<'EOF'

extern crate alloc;

/// An endpoint over a fabric that is not ours.
pub fn endpoint(fabric: alloc::boxed::Box<dyn vervain_transport::fabric::Fabric>) -> vervain_transport::Result<usize> {
    use vervain_transport::{Time, endpoint::{Endpoint, Limits}, wire::advert::Who};
    let who = Who { endpoint: 1, incarnation: 2 };
    let mut endpoint = Endpoint::over(who, alloc::vec![fabric], Limits::default())?;
    endpoint.poll(Time::from_nanos(1));
    endpoint.address().map(|bytes| bytes.len())
}
EOF
if build cargo build; then pass "without std, with alloc: the endpoint too"; else fail "without std, with alloc: the endpoint too"; fi

# the example as a user has it: a static library, and a machine below it, which is C here
cp Cargo.lock tests/no-std-ring/
if ! CARGO_TARGET_DIR=$root/target-no-std timeout 300 cargo build --quiet --manifest-path tests/no-std-ring/Cargo.toml; then
    fail "the example with a ring in a static builds"
elif ! command -v gcc >/dev/null; then
    skip "the example with a ring in a static runs" "no gcc; it links the example with a C program"
elif gcc -Wall -Wextra -Werror -o "$probe/ring" tests/no-std-ring/host.c target-no-std/debug/libno_std_ring.a -lpthread \
    && timeout 60 "$probe/ring"; then
    pass "the example with a ring in a static runs"
else
    fail "the example with a ring in a static runs"
fi

make_probe ''
for triple in x86_64-unknown-none i686-unknown-linux-gnu; do
    if ! tsan_toolchain; then
        skip "$triple" "no compiler with std's source; ci/setup.sh tsan installs it"
    elif RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 build /usr/bin/cargo check -Zbuild-std=core --target "$triple"; then
        pass "$triple"
    else
        fail "$triple"
    fi
done

make_probe '"std"'
if build cargo build 2>"$probe/errors"; then
    fail "the check notices std"
elif grep -q E0152 "$probe/errors"; then
    pass "the check notices std"
else
    cat "$probe/errors"
    fail "the check notices std (another error)"
fi
total no-std
