//! Prints the OpenAPI document, as it is committed in docs/openapi.json.

fn main() {
    print!("{}", server::openapi::text());
}
