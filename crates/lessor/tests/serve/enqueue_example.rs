//! The Rust example of docs/tables.md. A test compares both and runs it.

pub(super) async fn order_book(client: &mut tokio_postgres::Client) -> Result<String, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    let order: i64 =
        transaction.query_one("INSERT INTO orders (item) VALUES ($1) RETURNING id", &[&"book"]).await?.get(0);
    let payload = format!("{{\"order\": {order}}}");
    let enqueue = "SELECT lessor.enqueue('mail', $1::text::jsonb, '{\"maxAttempts\": 5}')::text";
    let task: String = transaction.query_one(enqueue, &[&payload]).await?.get(0);
    transaction.commit().await?;
    Ok(task)
}
