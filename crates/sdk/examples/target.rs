//! A whole push target. Start `lessor up --allow-private-push-targets`, run this with `LISTEN` (an address) and
//! `LESSOR_PUSH_SECRET` set, let the queue push to it as docs/writing-workers.md shows, and submit:
//! `lessor submit greetings '"world"' --wait`.

use axum::{Router, body::Bytes, http::HeaderMap, http::StatusCode, routing::post};
use lessor_sdk::{Failure, Target, Task};

async fn greet(task: Task) -> Result<String, Failure> {
    let name: String = task.payload()?;
    Ok(format!("Hello, {name}!"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = Target::with(greet).secret(std::env::var("LESSOR_PUSH_SECRET")?).open()?;
    let (accepts, address) = (target.clone(), std::env::var("LISTEN")?);
    let accept = move |headers: HeaderMap, body: Bytes| async move {
        StatusCode::from_u16(accepts.accept(&headers, &body).status()).unwrap_or_default()
    };
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listens at {}", listener.local_addr()?);
    tokio::spawn(async { axum::serve(listener, Router::new().route("/", post(accept))).await });
    Ok(target.run().await?)
}
