//! The launcher has its own entry point and no C library: whatever glibc does before `main` costs more than
//! the launcher itself (docs/adr/0003).
fn main() {
    for argument in
        ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-z,noexecstack"]
    {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
