//! Known fields: detects unknown fields of a message. Protocol buffers skip them, but a skipped limit or switch would change the
//! meaning of a request.

use std::collections::HashMap;
use std::sync::LazyLock;

use prost::Message as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorSet};

/// Fields of a message by number; for message fields, the message name.
type KnownFields = HashMap<u32, Option<String>>;

static MESSAGES: LazyLock<HashMap<String, KnownFields>> = LazyLock::new(|| {
    let described = FileDescriptorSet::decode(crate::DESCRIPTORS).unwrap_or_default();
    let mut messages = HashMap::new();
    for file in &described.file {
        for message in &file.message_type {
            add(&mut messages, file.package(), message);
        }
    }
    messages
});

fn add(messages: &mut HashMap<String, KnownFields>, within: &str, message: &DescriptorProto) {
    let name = format!("{within}.{}", message.name());
    for nested in &message.nested_type {
        add(messages, &name, nested);
    }
    let field = |field: &prost_types::FieldDescriptorProto| {
        let nested = (field.r#type() == Type::Message).then(|| field.type_name().trim_start_matches('.'));
        (u32::try_from(field.number()).unwrap_or_default(), nested.map(str::to_owned))
    };
    let _none = messages.insert(name, message.field.iter().map(field).collect());
}

/// The number of a field in `bytes` that the message `name` does not have, if any.
pub(crate) fn unknown(name: &str, mut bytes: &[u8]) -> Option<u32> {
    let Some(fields) = MESSAGES.get(name) else { return Some(0) };
    while !bytes.is_empty() {
        let Ok((number, wire)) = decode_key(&mut bytes) else { return Some(0) };
        let Some(field) = fields.get(&number) else { return Some(number) };
        let (Some(nested), WireType::LengthDelimited) = (field, wire) else {
            if skip_field(wire, number, &mut bytes, DecodeContext::default()).is_err() {
                return Some(number);
            }
            continue;
        };
        let length = decode_varint(&mut bytes).ok().and_then(|length| usize::try_from(length).ok());
        let Some((inside, rest)) = length.and_then(|length| bytes.split_at_checked(length)) else {
            return Some(number);
        };
        if let Some(number) = unknown(nested, inside) {
            return Some(number);
        }
        bytes = rest;
    }
    None
}

/// Counts the values in `bytes`, a message `name`. Stops soon after `most`.
pub(crate) fn count(name: &str, mut bytes: &[u8], most: usize) -> usize {
    let (fields, mut values) = (MESSAGES.get(name), 0);
    while !bytes.is_empty() && values <= most {
        values += 1;
        // The decoder reports malformed bytes.
        let Ok((number, wire)) = decode_key(&mut bytes) else { return values };
        let before = bytes;
        if skip_field(wire, number, &mut bytes, DecodeContext::default()).is_err() {
            return values;
        }
        let nested = fields.and_then(|fields| fields.get(&number)).and_then(Option::as_deref);
        if let (Some(nested), WireType::LengthDelimited) = (nested, wire) {
            let mut inside = before.get(..before.len() - bytes.len()).unwrap_or_default();
            if decode_varint(&mut inside).is_ok() {
                values += count(nested, inside, most.saturating_sub(values));
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::v1;

    #[test]
    fn a_field_that_nobody_knows_is_found_at_any_depth() {
        let command = v1::Command {
            session: "s".to_owned(),
            argv: vec!["true".to_owned()],
            environment: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
            terminal: Some(v1::TerminalSize { rows: 1, columns: 2 }),
            ..v1::Command::default()
        };
        let whole = v1::ExecRequest { command: Some(command), background: true }.encode_to_vec();
        assert_eq!(unknown("ringfence.v1.ExecRequest", &whole), None);
        assert_eq!(unknown("ringfence.v1.ExecStreamRequest", &whole), Some(2));
        // Field 9 in the terminal size of a command.
        assert_eq!(unknown("ringfence.v1.ExecRequest", &[0x0a, 4, 0x42, 2, 0x48, 1]), Some(9));
        assert_eq!(unknown("ringfence.v1.ExecRequest", &[0x18, 1]), Some(3));
        assert_eq!(unknown("ringfence.v1.NoSuch", &[]), Some(0));
    }

    #[test]
    fn values_are_counted_at_any_depth_and_not_for_ever() {
        let command = |words: usize| {
            let environment = BTreeMap::from([("A".to_owned(), "b".to_owned())]);
            let argv = vec![String::new(); words];
            let command = v1::Command { argv, environment, ..v1::Command::default() };
            v1::ExecRequest { command: Some(command), background: true }.encode_to_vec()
        };
        let count = |bytes: &[u8]| count("ringfence.v1.ExecRequest", bytes, 1000);
        // The command, its words, a variable with name and value, and the switch.
        assert_eq!(count(&command(7)), 1 + 7 + 3 + 1);
        assert_eq!(count(&command(500_000)), 1001);
        assert_eq!((count(&[]), count(&[0xff; 20]), count(&[0x0a, 0xff])), (0, 1, 1));
    }
}
