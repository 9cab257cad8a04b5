//! What a sandbox shows of the system, all of it read-only: programs, libraries, and the settings that they need.
//! Nothing of other users, no state, no secrets.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// On most systems these are links into /usr.
const PROGRAMS: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];

const SETTINGS: [&str; 12] = [
    "/etc/alternatives",
    "/etc/ca-certificates.conf",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

/// As arguments of bubblewrap.
pub fn shown() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    for place in PROGRAMS.into_iter().chain(SETTINGS) {
        let path = Path::new(place);
        match (fs::read_link(path), path.exists()) {
            (Ok(target), true) if PROGRAMS.contains(&place) => {
                arguments.extend(["--symlink".into(), target.into(), place.into()]);
            }
            (_, true) => arguments.extend(["--ro-bind", place, place].map(OsString::from)),
            (_, false) => {}
        }
    }
    arguments
}
