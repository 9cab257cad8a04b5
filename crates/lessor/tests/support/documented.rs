//! The lines that docs/security.md tells users to copy for clients that others wrote. The clients' tests use these lines, and the test of the
//! document compares them with it.

/// The flags of Bazel for a server with TLS that asks for a key.
pub(crate) fn bazel_flags(address: &str, ca_file: &str, key: &str) -> [String; 3] {
    [
        format!("--remote_executor=grpcs://{address}"),
        format!("--tls_certificate={ca_file}"),
        format!("--remote_header=authorization=Bearer {key}"),
    ]
}

/// The remote storage of ccache, whose key is a password, without the layout that every use of it adds.
pub(crate) fn ccache_storage(key: &str, port: u16) -> String {
    format!("http://user:{key}@127.0.0.1:{port}/cache")
}

/// The layout of the HTTP cache.
pub(crate) const CCACHE_LAYOUT: &str = "|layout=bazel";
