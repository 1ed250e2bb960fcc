set -e
here=$(pwd)
cd crate
rm -rf target
PATH="$here/toolchain/bin:$PATH" CARGO_HOME="$here/cargo-home" cargo build --quiet --offline
