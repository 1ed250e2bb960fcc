//! The code in `generated/` is what comes of `proto/`. It is kept here because what compiles protocols takes longer to build than
//! everything that the daemon needs of gRPC.

use std::path::{Path, PathBuf};
use std::{fs, io};

use prost::Message as _;
use prost_types::FileDescriptorSet;
use ringfence_grpc::Rpc;

const FILES: &[&str] = &["activity", "approval", "call", "daemon", "device", "file", "identity", "session"];

fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn described() -> Result<FileDescriptorSet, protox::Error> {
    let files = FILES.iter().map(|file| format!("ringfence/v1/{file}.proto"));
    protox::compile(files, [own("../../proto")])
}

fn make(described: FileDescriptorSet, directory: &Path) -> io::Result<()> {
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names().boxed(".ringfence.v1.CallChunk.chunk.ended");
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .out_dir(directory)
        .btree_map(".")
        .compile_fds_with_config(described, config)
}

#[test]
fn the_code_is_what_the_protocol_says() {
    let directory = tempfile::tempdir().unwrap();
    let fresh = directory.path();
    let mut described = described().unwrap();
    make(described.clone(), fresh).unwrap();
    // Comments are for whoever reads the code.
    described.file.iter_mut().for_each(|file| file.source_code_info = None);
    fs::write(fresh.join("ringfence.v1.bin"), described.encode_to_vec()).unwrap();
    for name in ["ringfence.v1.rs", "ringfence.v1.bin"] {
        if fs::read(own("generated").join(name)).ok() != fs::read(fresh.join(name)).ok() {
            panic!("out of date; to update: cp {}/* crates/grpc/generated/", directory.keep().display());
        }
    }
}

#[test]
fn every_file_of_the_protocol_is_compiled() {
    let entries =
        fs::read_dir(own("../../proto/ringfence/v1")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut found: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, FILES.iter().map(|file| format!("{file}.proto")).collect::<Vec<_>>());
}

/// What the protocol says to people of a method is what it is in the table.
#[test]
fn the_protocol_names_the_method_of_the_table() {
    let mut named = 0;
    for file in &described().unwrap().file {
        for location in file.source_code_info.iter().flat_map(|info| &info.location) {
            // Field 6 of a file are its services, field 2 of a service its methods.
            let [6, service, 2, method] = location.path[..] else { continue };
            let service = &file.service[usize::try_from(service).unwrap()];
            let method = &service.method[usize::try_from(method).unwrap()];
            let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
            let name = format!(" `{}`", Rpc::at(&path).unwrap().method.name());
            assert!(location.leading_comments().starts_with(&name), "{path} is{name}");
            named += 1;
        }
    }
    assert_eq!(named, Rpc::ALL.len());
}
