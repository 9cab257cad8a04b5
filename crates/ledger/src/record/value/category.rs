//! The numbers of the error categories. A number never changes its meaning.

use authority::Category;

use crate::record::error::DecodeError;

pub fn number(category: Category) -> u32 {
    match category {
        Category::UserCode => 1,
        Category::DataQuality => 2,
        Category::Infrastructure => 3,
        Category::Configuration => 4,
        Category::Timeout => 5,
        Category::Cancelled => 6,
    }
}

pub fn from_number(wanted: u32) -> Result<Category, DecodeError> {
    if wanted == 0 {
        return Err(DecodeError::Missing("the category of an error"));
    }
    let known = Category::ALL.into_iter().find(|category| number(*category) == wanted);
    known.ok_or(DecodeError::Newer("a category of errors"))
}
