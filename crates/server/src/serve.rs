//! Runs the whole server on one listener: the routes, the accept loop, the push dispatcher and the watch over certificates.

use std::future::Future;
use std::pin::Pin;

use coordinator::ConfigurationFollower;
use tokio::task::JoinSet;

use crate::app::App;
use crate::edge::auth::AuthMode;
use crate::edge::listener::{self, Drained, Limits, Listener};
use crate::edge::tls;
use crate::push;
use crate::router::router;

type Shutdown<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Serves until `shutdown` resolves and what was running is done. Dropping the future cuts everything at once.
pub async fn serve(
    listener: impl Into<Listener>,
    app: App,
    shutdown: impl Future<Output = ()> + Send,
) -> Drained {
    serve_with(listener, app, Limits::default(), shutdown).await
}

/// As [`serve`], with other limits.
pub async fn serve_with(
    listener: impl Into<Listener>,
    app: App,
    limits: Limits,
    shutdown: impl Future<Output = ()> + Send,
) -> Drained {
    serve_until(listener.into(), app, limits, Box::pin(shutdown)).await
}

/// Boxed, so that the server is compiled once, in this crate, and not in every crate that awaits it.
fn serve_until<'a>(
    listener: Listener,
    app: App,
    limits: Limits,
    shutdown: Shutdown<'a>,
) -> Pin<Box<dyn Future<Output = Drained> + Send + 'a>> {
    Box::pin(async move {
        // Before the keys are read, so that no change in between is missed.
        let follower = app.handle.follow_configuration();
        let needs_keys = app.auth == AuthMode::Keys;
        let loaded = if needs_keys { app.keys.load(&app.handle).await } else { Ok(()) };
        if let Err(error) = loaded {
            tracing::error!(%error, "the API keys cannot be read, so every call is refused until they can");
        }
        // Ends with this function, however that ends.
        let mut beside = JoinSet::new();
        beside.spawn(follow_configuration(app.clone(), follower, loaded.is_err()));
        if let Ok(address) = listener.tcp.local_addr() {
            beside.spawn(push::run(app.clone(), address, listener.tls.is_some()));
        }
        if let Some(tls) = &listener.tls {
            beside.spawn(tls::watch(tls.clone(), app.metrics.clone()));
        }
        listener::run(listener, router(app.clone()), app, limits, shutdown).await
    })
}

/// Reads the keys if they are lacking, and follows the changes that other nodes make to keys and queues, where there are others.
async fn follow_configuration(app: App, follower: Option<ConfigurationFollower>, lacks_keys: bool) {
    if lacks_keys {
        app.keys.follow(&app.handle).await;
    }
    let Some(mut follower) = follower else { return };
    loop {
        let change = follower.next().await;
        drop(app.push.wake_on_drop());
        if app.auth == AuthMode::Keys {
            app.keys.follow(&app.handle).await;
        }
        follower.followed(change);
    }
}
