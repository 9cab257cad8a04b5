//! Runs the whole server on one listener: the routes, the accept loop and the push dispatcher.

use std::future::Future;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::app::App;
use crate::edge::listener::{self, Drained, Limits};
use crate::push;
use crate::router::router;

/// Serves until `shutdown` resolves and what was running is done. Dropping the future cuts everything at once.
pub async fn serve(listener: TcpListener, app: App, shutdown: impl Future<Output = ()>) -> Drained {
    serve_with(listener, app, Limits::default(), shutdown).await
}

/// As [`serve`], with other limits.
pub async fn serve_with(
    listener: TcpListener,
    app: App,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) -> Drained {
    // Ends with this function, however that ends.
    let mut dispatcher = JoinSet::new();
    if let Ok(address) = listener.local_addr() {
        dispatcher.spawn(push::run(app.clone(), address));
    }
    listener::run(listener, router(app.clone()), app, limits, shutdown).await
}
