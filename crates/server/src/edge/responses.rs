//! The error responses that endpoints have in common, for the OpenAPI document.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

pub(crate) type Responses = BTreeMap<String, RefOr<Response>>;

/// A response with this status and body, which needs no description. `admin::openapi` lists the schemas of the bodies.
pub(crate) struct Fails<const STATUS: u16, Body = wire::Problem>(PhantomData<Body>);

impl<const STATUS: u16, Body: ToSchema> IntoResponses for Fails<STATUS, Body> {
    fn responses() -> Responses {
        [response::<Body>(STATUS, "")].into()
    }
}

/// Defines a type that stands for several responses with one body, each with its description.
macro_rules! failures {
    ($Name:ident: $Body:ty { $($status:literal $description:literal),* }) => {
        pub(crate) struct $Name;

        impl utoipa::IntoResponses for $Name {
            fn responses() -> $crate::edge::responses::Responses {
                [$($crate::edge::responses::response::<$Body>($status, $description)),*].into()
            }
        }
    };
}
pub(crate) use failures;

pub(crate) fn response<Body: ToSchema>(status: u16, description: &str) -> (String, RefOr<Response>) {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Body::name()))).build();
    let response = ResponseBuilder::new().description(description).content("application/json", content);
    (status.to_string(), response.build().into())
}
