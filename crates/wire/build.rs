//! Compiles the messages and stubs of the worker service and of ByteStream. The compiler is a library, so that no protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    #[cfg(feature = "grpc")]
    grpc()?;
    Ok(())
}

#[cfg(feature = "grpc")]
fn grpc() -> Result<(), Box<dyn std::error::Error>> {
    use prost::Message;

    let files = protox::compile(["lessor/worker/v1/worker.proto"], ["proto"])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    // For reflection.
    std::fs::write(out.join("worker.bin"), files.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::grpc::codec::Messages")
        .extern_path(
            ".build.bazel.remote.execution.v2",
            "::bazel_remote_apis::build::bazel::remote::execution::v2",
        )
        .compile_fds(files)?;
    let files = protox::compile(["google/bytestream/bytestream.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::grpc::codec::Messages")
        .compile_fds(files)?;
    Ok(())
}
