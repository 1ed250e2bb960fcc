use schemars::generate::SchemaSettings;

use super::super::format::Top;

/// What is published for editors.
fn schema() -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<Top>();
    serde_json::to_string_pretty(&schema).unwrap() + "\n"
}

#[test]
fn show() {
    println!("{}", schema());
}
