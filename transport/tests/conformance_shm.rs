//! The shared-memory fabric passes the suite of all fabrics, in each of its ways to reach memory.
#![cfg(all(feature = "testing", target_os = "linux"))]

use vervain_transport::fabric::{
    Fabric, Identity,
    conformance::{self, Make},
    shm::{Options, Shm},
};

fn run(options: &Options) {
    let make: &mut Make<'_> =
        &mut |identity: Identity| Box::new(Shm::new(identity, options.clone()).unwrap()) as Box<dyn Fabric>;
    conformance::run(make);
}

#[test]
fn pulling_from_memory_files() {
    run(&Options::default());
}

#[test]
fn staging_where_pulls_are_forbidden() {
    run(&Options { forbid_pull: true, ..Options::default() });
}

#[test]
fn files_in_a_directory() {
    let directory = Some(std::env::temp_dir());
    run(&Options { directory, ..Options::default() });
}
