//! The messages and stubs of ByteStream, as compiled from `proto/google/bytestream/bytestream.proto`. Content is shared
//! where other crates' messages would copy it.

pub use generated::*;

#[allow(clippy::all)]
mod generated {
    include!("../generated/google.bytestream.rs");
}
