//! The layer of all routes. Every request passes it, so a call with an API key or a certificate is admitted without waiting,
//! and its future is that of its route.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::{MatchedPath, Request};
use axum::response::{IntoResponse, Response};
use tonic::Status;
use tower::{Layer, Service};

use super::audit::{Action, Admitted, Entry};
use super::identity::Identity;
use super::revocable_call::Revocation;
use super::{Authenticated, authenticate, authorize, of_token};
use crate::app::App;
use crate::convert::Problem;
use crate::edge::fallback::is_grpc;
use crate::edge::permissions::{self, Call};

#[derive(Clone)]
pub(crate) struct AuthLayer {
    app: App,
}

impl AuthLayer {
    pub(crate) fn new(app: App) -> AuthLayer {
        AuthLayer { app }
    }
}

impl<S> Layer<S> for AuthLayer {
    type Service = AuthService<S>;

    fn layer(&self, route: S) -> AuthService<S> {
        AuthService { app: self.app.clone(), route }
    }
}

#[derive(Clone)]
pub(crate) struct AuthService<S> {
    app: App,
    route: S,
}

/// The answer of a route, or a refusal.
type Answer = Result<Response, Infallible>;

impl<S> Service<Request> for AuthService<S>
where
    S: Service<Request, Response = Response, Error = Infallible, Future: Unpin + Send>
        + Clone
        + Send
        + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = AuthFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.route.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> AuthFuture<S::Future> {
        let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        let call = permissions::find(request.method(), request.uri().path(), route);
        let token = match authenticate(&self.app, &request, call) {
            Authenticated::Now(known) => return self.admit(request, call, known),
            Authenticated::Token(token) => token.to_owned(),
        };
        let mut service = self.clone();
        AuthFuture::Token(Box::pin(async move {
            let known = of_token(&service.app, &token).await;
            service.admit(request, call, known.map(Some)).await
        }))
    }
}

impl<S> AuthService<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    fn admit(
        &mut self,
        mut request: Request,
        call: Option<&'static Call>,
        known: Result<Option<Arc<Identity>>, Problem>,
    ) -> AuthFuture<S::Future> {
        let (identity, acting) = match known {
            Ok(identity) => {
                let acting = authorize(&mut request, call, identity.as_ref());
                (identity, acting)
            }
            Err(problem) => (None, Err(problem)),
        };
        let entry = Entry::of(&request, call, identity.as_ref());
        let acting = match acting {
            Ok(acting) => acting,
            Err(problem) => {
                self.app.audit.denied(&entry, problem.code.name(), &self.app.handle);
                return AuthFuture::Refused(ready(Ok(if is_grpc(request.headers()) {
                    Status::from(problem).into_http()
                } else {
                    problem.into_response()
                })));
            }
        };
        let admitted = Admitted::new(self.app.clone(), acting, entry);
        let action = admitted.action();
        request.extensions_mut().insert(admitted);
        // Other calls are over so soon that it does not matter.
        let long = call.filter(|call| call.is_long).zip(identity);
        let revocation = long.map(|(call, identity)| Revocation::new(self.app.clone(), identity, call));
        AuthFuture::Admitted { answer: self.route.call(request), revocation, action }
    }
}

pub(crate) enum AuthFuture<F> {
    Refused(Ready<Answer>),
    Admitted {
        answer: F,
        /// Of a call that ends with its credential.
        revocation: Option<Revocation>,
        action: Option<Action>,
    },
    Token(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

impl<F: Future<Output = Answer> + Unpin> Future for AuthFuture<F> {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let (answer, revocation, action) = match self.get_mut() {
            AuthFuture::Refused(refused) => return Pin::new(refused).poll(context),
            AuthFuture::Token(token) => return token.as_mut().poll(context),
            AuthFuture::Admitted { answer, revocation, action } => (answer, revocation, action),
        };
        let polled = match revocation {
            Some(revocation) => revocation.poll_call(answer, context),
            None => Pin::new(answer).poll(context),
        };
        if let (Poll::Ready(Ok(response)), Some(action)) = (&polled, action.take_if(|_| polled.is_ready())) {
            action.ended(response);
        }
        polled
    }
}
