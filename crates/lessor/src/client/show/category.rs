//! The names of the error categories.

use wire::ErrorCategory;

pub(crate) const ALL: [ErrorCategory; 6] = [
    ErrorCategory::UserCode,
    ErrorCategory::DataQuality,
    ErrorCategory::Infrastructure,
    ErrorCategory::Configuration,
    ErrorCategory::Timeout,
    ErrorCategory::Cancelled,
];

pub(crate) fn name(category: ErrorCategory) -> &'static str {
    match category {
        ErrorCategory::UserCode => "USER_CODE",
        ErrorCategory::DataQuality => "DATA_QUALITY",
        ErrorCategory::Infrastructure => "INFRASTRUCTURE",
        ErrorCategory::Configuration => "CONFIGURATION",
        ErrorCategory::Timeout => "TIMEOUT",
        ErrorCategory::Cancelled => "CANCELLED",
    }
}

pub(crate) fn from_name(text: &str) -> Option<ErrorCategory> {
    ALL.into_iter().find(|category| name(*category) == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_category_is_named_as_on_the_wire() {
        for category in ALL {
            assert_eq!(serde_json::to_value(category).unwrap(), name(category));
        }
    }
}
