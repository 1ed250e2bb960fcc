use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Files in the directories that all processes of the machine share.
#[derive(Debug)]
pub(super) struct SharedFiles {
    nonce: String,
}

const DIRECTORIES: [&str; 2] = ["/tmp", "/dev/shm"];

impl SharedFiles {
    pub(super) fn make(nonce: &str, secret: &str) -> io::Result<Self> {
        let made = Self { nonce: nonce.to_owned() };
        for directory in DIRECTORIES {
            fs::write(made.path(directory, "kept"), secret)?;
        }
        Ok(made)
    }

    fn path(&self, directory: &str, what: &str) -> PathBuf {
        Path::new(directory).join(format!("ringfence-{what}-{}", self.nonce))
    }
}

impl Drop for SharedFiles {
    fn drop(&mut self) {
        for directory in DIRECTORIES {
            for what in ["kept", "made"] {
                let _ = fs::remove_file(self.path(directory, what));
            }
        }
    }
}
