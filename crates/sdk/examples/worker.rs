//! A whole worker. Start `lessor up`, run this with `cargo run --package lessor-sdk --example worker`, and submit:
//! `lessor submit greetings '"world"' --wait`.

use lessor_sdk::{Error, Failure, Task, Worker};

async fn greet(task: Task) -> Result<String, Failure> {
    let name: String = task.payload()?;
    Ok(format!("Hello, {name}!"))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    Worker::new().concurrency(4).handler("greetings", greet).run().await
}
