//! Builder methods that set one field.

/// Defines methods of the form `name(argument: type): field = value;`.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($argument:ident: $type:ty): $($field:ident).+ = $value:expr;)*) => {$(
        $(#[$doc])*
        pub fn $name(mut self, $argument: $type) -> Self {
            self.$($field).+ = $value;
            self
        }
    )*};
}
pub(crate) use setters;
