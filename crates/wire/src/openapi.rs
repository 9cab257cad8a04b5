//! OpenAPI schemas of the types that serialize by hand.

use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};

use crate::{Json, Seconds};

impl utoipa::PartialSchema for Json {
    fn schema() -> RefOr<Schema> {
        let any = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
        any.description(Some("Any JSON value.")).build().into()
    }
}

impl utoipa::ToSchema for Json {}

impl utoipa::PartialSchema for Seconds {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new().schema_type(Type::Number);
        number.description(Some("Seconds, with a fraction where they are not whole.")).build().into()
    }
}

impl utoipa::ToSchema for Seconds {}
