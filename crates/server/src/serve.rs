//! Runs the whole server on one listener: the routes, the accept loop and the push dispatcher.

use std::future::Future;
use std::pin::Pin;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::app::App;
use crate::edge::auth::AuthMode;
use crate::edge::listener::{self, Drained, Limits};
use crate::push;
use crate::router::router;

type Shutdown<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Serves until `shutdown` resolves and what was running is done. Dropping the future cuts everything at once.
pub async fn serve(listener: TcpListener, app: App, shutdown: impl Future<Output = ()> + Send) -> Drained {
    serve_with(listener, app, Limits::default(), shutdown).await
}

/// As [`serve`], with other limits.
pub async fn serve_with(
    listener: TcpListener,
    app: App,
    limits: Limits,
    shutdown: impl Future<Output = ()> + Send,
) -> Drained {
    serve_until(listener, app, limits, Box::pin(shutdown)).await
}

/// Boxed, so that the server is compiled once, in this crate, and not in every crate that awaits it.
fn serve_until<'a>(
    listener: TcpListener,
    app: App,
    limits: Limits,
    shutdown: Shutdown<'a>,
) -> Pin<Box<dyn Future<Output = Drained> + Send + 'a>> {
    Box::pin(async move {
        // Without its keys a server that needs them admits nobody.
        if app.auth == AuthMode::Keys
            && let Err(error) = app.keys.load(&app.handle).await
        {
            tracing::error!(%error, "the API keys cannot be read, so every call is refused");
        }
        // Ends with this function, however that ends.
        let mut dispatcher = JoinSet::new();
        if let Ok(address) = listener.local_addr() {
            dispatcher.spawn(push::run(app.clone(), address));
        }
        listener::run(listener, router(app.clone()), app, limits, shutdown).await
    })
}
