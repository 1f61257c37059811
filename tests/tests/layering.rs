//! The rules of CONTRIBUTING.md that a program can check, over all files of the repository.
//!
//! Each rule is a function from files to complaints. It is applied to the repository, which must have none, and to files
//! made up to break it, which must have one each: a check that cannot fail checks nothing.

use vervain_tests::source::{self, File};

/// Which crates of ours a crate may name: what lies below it.
const BELOW: &[(&str, &[&str])] = &[
    ("ffi/sys", &[]),
    ("transport", &["sys"]),
    ("gpudirect", &["sys", "transport"]),
    ("kernels", &["sys", "transport"]),
    ("collectives", &["sys", "transport", "gpudirect", "kernels"]),
    ("cli", &["sys", "transport", "gpudirect", "kernels", "collectives"]),
    ("ffi/c", &["sys", "transport", "gpudirect", "kernels", "collectives"]),
    ("ffi/nccl", &["sys", "transport", "gpudirect", "kernels", "collectives"]),
    ("ffi/nccl-net", &["sys", "transport", "gpudirect", "kernels", "collectives"]),
    ("tests", &["sys", "transport", "gpudirect", "kernels", "collectives"]),
    ("tests/no-std-ring", &["sys", "transport"]),
    ("fuzz", &["sys", "transport", "gpudirect", "kernels", "collectives"]),
];

/// Where `unsafe` may stand, and what for. A path is a file without its `.rs`, or a folder.
const UNSAFE_ROOMS: &[(&str, &str)] = &[
    ("transport/src/sync", "the word cells that loom replaces; futex"),
    ("transport/src/time", "reading the clock"),
    ("transport/src/wire", "views of bytes as layouts"),
    ("transport/src/ring", "slots that two threads hand to each other"),
    ("transport/src/fabric", "mapped memory, registered memory, system calls"),
    ("transport/src/endpoint/descriptor", "epoll and eventfd"),
    ("transport/src/endpoint/memory", "memory that peers write"),
    ("transport/src/endpoint/messages", "slots that a fabric fills"),
    ("transport/src/endpoint/regions", "memory that fabrics are given, and borrowed when nothing uses it"),
    ("transport/examples/lora", "mapping a file, and registering memory by address"),
    ("transport/src/host", "system calls that say what the machine has"),
    ("transport/src/testing/fake/memory", "regions of the simulated fabric"),
    ("transport/src/testing/fake/fabric", "passes the promise of `Fabric::register` on"),
    ("transport/src/testing/fake/tests", "looks into regions"),
    ("tests/no-std-ring/src", "calls from and to a machine without an operating system"),
    ("cli/src/perf/invoke", "buffers given by address: types are known at run time only"),
    ("collectives/src/buffer", "memory that peers write"),
    ("collectives/src/communicator", "buffers given by address"),
    ("collectives/src/executor", "buffers given by address"),
    ("collectives/src/launch/sys", "signals, and what a child does before it becomes a program"),
    ("collectives/src/reduce", "vector instructions on buffers given by address"),
];

/// Files longer than this are two ideas.
const LINES: usize = 600;

type Rule = fn(&[File]) -> Vec<String>;

fn apply(rule: Rule) {
    let complaints = rule(&source::repository());
    assert!(complaints.is_empty(), "{} complaints\n{}", complaints.len(), complaints.join("\n"));
}

/// The rule complains once about this file, and not about an empty one in its place.
fn notices(rule: Rule, path: &str, text: &str) {
    assert_eq!(rule(&[File::new(path, text)]).len(), 1, "{path}: {text}");
    accepts(rule, path, "");
}

fn accepts(rule: Rule, path: &str, text: &str) {
    assert_eq!(rule(&[File::new(path, text)]), Vec::<String>::new(), "{path}: {text}");
}

// Imports point down only.

fn names_lower_crates_only(files: &[File]) -> Vec<String> {
    let relevant = files.iter().filter(|file| file.is_rust() || file.is_manifest());
    relevant.flat_map(names_in).filter_map(|(file, line, name)| upward(file, line, &name)).collect()
}

/// Every crate of ours that a file names, as `vervain-NAME` or `vervain_NAME`, with its line.
fn names_in(file: &File) -> Vec<(&File, usize, String)> {
    let text = if file.is_rust() { source::code(&file.text) } else { dependencies(&file.text) };
    let ours = |word: &str| {
        let word = word.replace('-', "_");
        word.strip_prefix("vervain_").filter(|name| *name != "loom").map(str::to_owned)
    };
    let mut names = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-'));
        names.extend(words.filter_map(ours).map(|name| (file, line + 1, name)));
    }
    names
}

/// The dependency tables of a member's manifest; all else blank.
fn dependencies(manifest: &str) -> String {
    let mut inside = false;
    let mut kept = String::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.contains("dependencies") && !line.contains("workspace");
        }
        kept.push_str(if inside && !line.trim_start().starts_with('#') { line } else { "" });
        kept.push('\n');
    }
    kept
}

fn upward(file: &File, line: usize, name: &str) -> Option<String> {
    let folder = file.crate_folder();
    if folder.is_empty() {
        return None;
    }
    let Some((_, below)) = BELOW.iter().find(|(known, _)| *known == folder) else {
        return Some(format!("{}: the crate {folder} has no place in the layers", file.path));
    };
    let itself = folder.rsplit('/').next() == Some(&name.replace('_', "-"));
    (!itself && !below.contains(&name)).then(|| format!("{}:{line}: {folder} must not know {name}", file.path))
}

#[test]
fn imports_point_down() {
    apply(names_lower_crates_only);
}

#[test]
fn imports_that_point_up_are_noticed() {
    let rule = names_lower_crates_only;
    notices(rule, "transport/src/lib.rs", "use vervain_collectives::Plan;");
    notices(rule, "transport/src/lib.rs", "fn f() { vervain_collectives::run() }");
    notices(rule, "transport/Cargo.toml", "[dev-dependencies]\nvervain-collectives.workspace = true");
    notices(rule, "gpudirect/Cargo.toml", "[dependencies]\nvervain-kernels.workspace = true");
    notices(rule, "collectives/src/lib.rs", "use vervain_cli as cli;");
    notices(rule, "surprise/src/lib.rs", "use vervain_transport::Rank;");
    accepts(rule, "collectives/src/lib.rs", "use vervain_transport::Rank; // not vervain_cli");
    accepts(rule, "transport/src/lib.rs", "#[cfg(vervain_loom)] use vervain_transport::sync;");
}

// The transport does not know which device memory belongs to.

fn transport_names_no_device(files: &[File]) -> Vec<String> {
    let word = ["cu", "da"].concat();
    let says = |file: &&File| file.crate_folder() == "transport" && file.text.to_lowercase().contains(&word);
    files.iter().filter(says).map(|file| format!("{}: says {word}", file.path)).collect()
}

#[test]
fn transport_is_free_of_devices() {
    apply(transport_names_no_device);
}

#[test]
fn a_device_in_the_transport_is_noticed() {
    let text = ["// what CU", "DA does here"].concat();
    notices(transport_names_no_device, "transport/src/lib.rs", &text);
    accepts(transport_names_no_device, "kernels/src/lib.rs", &text);
}

// Atomics have one door, so that loom can stand in it.

fn atomics_come_from_sync(files: &[File]) -> Vec<String> {
    let door = |file: &File| file.path == "transport/src/sync.rs" || file.path.starts_with("transport/src/sync/");
    let cells = ["core::sync::atomic", "std::sync::atomic", "core::cell::UnsafeCell", "std::cell::UnsafeCell"];
    let model = ["loom::", "hint::spin_loop", "std::thread::yield_now"];
    let complaint = |file: &File| {
        let code = source::code(&file.text).split_whitespace().collect::<String>().replace("sync::spin_loop", "");
        let code =
            if code.contains("usestd::thread;") { code.replace("thread::yield", "std::thread::yield") } else { code };
        let found = cells.iter().chain(&model).find(|word| code.contains(**word))?;
        Some(format!("{}: names {found}, which comes from vervain_transport::sync", file.path))
    };
    files.iter().filter(|file| file.is_rust() && !door(file)).filter_map(complaint).collect()
}

#[test]
fn atomics_are_named_in_sync_only() {
    apply(atomics_come_from_sync);
}

#[test]
fn atomics_elsewhere_are_noticed() {
    notices(atomics_come_from_sync, "transport/src/ring/spsc.rs", "use core::sync::atomic::AtomicU64;");
    notices(atomics_come_from_sync, "collectives/src/lib.rs", "static X: std::sync :: atomic::AtomicBool = 0;");
    notices(atomics_come_from_sync, "cli/src/main.rs", "std::hint::spin_loop()");
    notices(atomics_come_from_sync, "cli/src/main.rs", "use std::thread; fn f() { g(); thread::yield_now() }");
    accepts(atomics_come_from_sync, "transport/src/sync.rs", "use core::sync::atomic::AtomicU64;");
    accepts(atomics_come_from_sync, "cli/src/main.rs", "use vervain_transport::sync::thread; thread::yield_now()");
    accepts(atomics_come_from_sync, "transport/src/ring/spsc.rs", "use crate::sync::{AtomicU64, UnsafeCell};");
}

// Unsafe code lives in few rooms.

fn unsafe_stays_in_its_rooms(files: &[File]) -> Vec<String> {
    let is_in = |path: &str, room: &str| path.strip_prefix(room).is_some_and(|rest| rest.starts_with(['/', '.']));
    let room = |path: &str| UNSAFE_ROOMS.iter().any(|(room, _)| is_in(path, room));
    let trial = |path: &str| path.contains("/tests/") || path.contains("/benches/");
    let has = |file: &&File| words(&source::code(&file.text)).any(|word| word == "unsafe");
    let rust = files.iter().filter(|file| file.is_rust() && !room(&file.path) && !trial(&file.path));
    rust.filter(has).map(|file| format!("{}: unsafe code outside of the rooms for it", file.path)).collect()
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_'))
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    apply(unsafe_stays_in_its_rooms);
}

#[test]
fn unsafe_code_elsewhere_is_noticed() {
    notices(unsafe_stays_in_its_rooms, "transport/src/proto/ll.rs", "fn f() { unsafe { g() } }");
    notices(unsafe_stays_in_its_rooms, "transport/src/ringside.rs", "unsafe impl Send for X {}");
    notices(unsafe_stays_in_its_rooms, "cli/src/main.rs", "unsafe fn f() {}");
    accepts(unsafe_stays_in_its_rooms, "transport/src/proto/mod.rs", "#![forbid(unsafe_code)] // no unsafe \n");
    accepts(unsafe_stays_in_its_rooms, "transport/src/ring/spsc.rs", "fn f() { unsafe { g() } }");
}

// A dependency has a reason.

fn dependencies_have_reasons(files: &[File]) -> Vec<String> {
    files.iter().filter(|file| file.is_manifest()).flat_map(bare_dependencies).collect()
}

/// Entries of dependency tables that neither come from the workspace nor stand in a paragraph that begins with a comment.
fn bare_dependencies(manifest: &File) -> Vec<String> {
    let mut bare = Vec::new();
    let (mut inside, mut explained) = (false, false);
    for line in manifest.text.lines().map(str::trim) {
        match line {
            "" => explained = false,
            _ if line.starts_with('[') => (inside, explained) = (line.contains("dependencies"), false),
            _ if line.starts_with('#') => explained = true,
            _ if inside && !explained && !is_of_the_workspace(line) => {
                bare.push(format!("{}: no reason for {line}", manifest.path))
            }
            _ => {}
        }
    }
    bare
}

fn is_of_the_workspace(line: &str) -> bool {
    line.starts_with("vervain-") || line.contains("workspace = true")
}

#[test]
fn every_dependency_has_its_reason() {
    apply(dependencies_have_reasons);
}

#[test]
fn a_dependency_without_reason_is_noticed() {
    let rule = dependencies_have_reasons;
    notices(rule, "Cargo.toml", "[workspace.dependencies]\n# why\na = \"1\"\n\nb = \"2\"");
    notices(rule, "transport/Cargo.toml", "# an essay\n[dependencies]\na = { version = \"1\" }");
    accepts(rule, "transport/Cargo.toml", "[package]\nname = \"x\"\n[dependencies]\na.workspace = true");
}

// A file is one idea.

fn files_are_short(files: &[File]) -> Vec<String> {
    let source = |path: &str| [".rs", ".sh", ".py", ".c", ".toml"].iter().any(|end| path.ends_with(end));
    let long = |file: &&File| source(&file.path) && file.text.lines().count() > LINES;
    files.iter().filter(long).map(|file| format!("{}: more than {LINES} lines; split it", file.path)).collect()
}

#[test]
fn no_file_is_long() {
    apply(files_are_short);
}

#[test]
fn a_long_file_is_noticed() {
    notices(files_are_short, "cli/src/main.rs", &"\n".repeat(LINES + 1));
    accepts(files_are_short, "cli/src/main.rs", &"\n".repeat(LINES));
}

// Nothing depends on one machine's folders.

fn no_machine_paths(files: &[File]) -> Vec<String> {
    let folders: Vec<String> = ["work", "root", "home", "tmp/wt"].iter().map(|folder| format!("/{folder}/")).collect();
    let absolute =
        |text: &str, at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric() || "._-)}/$~*".contains(c));
    let names = |text: &str, folder: &String| text.match_indices(folder.as_str()).any(|(at, _)| absolute(text, at));
    let complaint = |file: &File| {
        let found = folders.iter().find(|folder| names(&file.text, folder))?;
        Some(format!("{}: names the machine's folder {found}", file.path))
    };
    files.iter().filter_map(complaint).collect()
}

#[test]
fn no_file_names_a_folder_of_a_machine() {
    apply(no_machine_paths);
}

#[test]
fn a_folder_of_a_machine_is_noticed() {
    notices(no_machine_paths, "ci/test.sh", &["cd /ho", "me/someone"].concat());
    notices(no_machine_paths, "docs/design.md", &["see `/wo", "rk/notes`"].concat());
    accepts(no_machine_paths, "ci/test.sh", "cd ../work/x; ls \"$base/home/x\"");
}
