//! Adds and removes one hook in a user's settings file; everything else stays, including comments.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::Value;

/// Why a settings file is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AgentSettingsError {
    #[error(transparent)]
    Utf8(#[from] std::str::Utf8Error),
    /// The parser's message.
    #[error("{0}")]
    Json(String),
    #[error("it is no object")]
    NoObject,
    #[error("`hooks` is no object")]
    NoHooks,
    #[error("the list of hooks is no list")]
    NoList,
    #[error("a name is in it twice")]
    Twice,
}

/// `hooks.EVENT`, an array.
#[derive(Debug)]
pub(super) struct HookSlot {
    pub(super) event: &'static str,
    /// The version field of a new file.
    pub(super) version: Option<u32>,
    /// Settings beside `hooks` that Ringfence sets to `true`; without them the agent acts without a hook.
    pub(super) switches: &'static [&'static str],
}

/// Adds the hook once, as the first entry, so that it runs before hooks that rewrite the call.
pub(super) fn with(
    before: Option<&[u8]>,
    spot: &HookSlot,
    entry: &Value,
    mark: &str,
) -> Result<Vec<u8>, AgentSettingsError> {
    let (bom, text) = match before {
        Some(bytes) => text(bytes)?,
        None => ("", ""),
    };
    if let Ok(root) = parsed(text)
        && let [only] = ours(&root, spot, mark).as_slice()
        && value(&only.to_string()).map(|group| part_of_ours(group, mark)).as_ref() == Ok(entry)
        && value(text).is_ok_and(|settings| off(&settings, spot).next().is_none())
    {
        return Ok(before.unwrap_or_default().to_vec());
    }
    let root = parsed(if text.trim().is_empty() { "{}\n" } else { text })?;
    let object = root.object_value().ok_or(AgentSettingsError::NoObject)?;
    if let (None, Some(version)) = (before, spot.version) {
        object.append("version", CstInputValue::Number(version.to_string()));
    }
    remove(&root, spot, mark);
    let hooks = object.object_value_or_create("hooks").ok_or(AgentSettingsError::NoHooks)?;
    let event = hooks.array_value_or_create(spot.event).ok_or(AgentSettingsError::NoList)?;
    event.ensure_multiline();
    event.insert(0, input(entry));
    set(&object, spot);
    let after = checked(root.to_string(), spot, entry, mark)?;
    Ok(format!("{bom}{after}").into_bytes())
}

/// Removes the hook, and lists that become empty.
///
/// `original` is the earlier content, if known: what it contained stays.
pub(super) fn without(
    before: &[u8],
    spot: &HookSlot,
    mark: &str,
    original: Option<&[u8]>,
) -> Result<Vec<u8>, AgentSettingsError> {
    let (bom, text) = text(before)?;
    let root = parsed(text)?;
    if ours(&root, spot, mark).is_empty() {
        return Ok(before.to_vec());
    }
    remove(&root, spot, mark);
    unset(&root, spot, original);
    Ok(format!("{bom}{root}").into_bytes())
}

/// Splits off the byte order mark of some editors.
fn text(bytes: &[u8]) -> Result<(&str, &str), AgentSettingsError> {
    const BOM: &str = "\u{feff}";
    let text = std::str::from_utf8(bytes)?;
    Ok(text.strip_prefix(BOM).map_or(("", text), |rest| (BOM, rest)))
}

fn parsed(text: &str) -> Result<CstRootNode, AgentSettingsError> {
    CstRootNode::parse(text, &ParseOptions::default())
        .map_err(|error| AgentSettingsError::Json(error.to_string()))
}

fn hooks(root: &CstRootNode) -> Option<CstObject> {
    root.object_value()?.object_value("hooks")
}

/// Entries that contain Ringfence's hook.
fn ours(root: &CstRootNode, spot: &HookSlot, mark: &str) -> Vec<CstNode> {
    let event = hooks(root).and_then(|hooks| hooks.array_value(spot.event));
    let entries = event.map(|event| event.elements()).unwrap_or_default();
    entries.into_iter().filter(|entry| entry.to_string().contains(mark)).collect()
}

/// A group may contain hooks of several owners.
fn group(entry: &CstNode) -> Option<CstArray> {
    entry.as_object()?.array_value("hooks")
}

/// A group with only Ringfence's hooks.
fn part_of_ours(mut entry: Value, mark: &str) -> Value {
    if let Some(hooks) = entry.get_mut("hooks").and_then(Value::as_array_mut) {
        hooks.retain(|hook| hook.to_string().contains(mark));
    }
    entry
}

fn remove_from(entry: CstNode, mark: &str) {
    if let Some(group) = group(&entry) {
        let found = group.elements().into_iter().filter(|hook| hook.to_string().contains(mark));
        found.for_each(CstNode::remove);
        if !group.elements().is_empty() {
            return;
        }
    }
    entry.remove();
}

fn remove(root: &CstRootNode, spot: &HookSlot, mark: &str) {
    let found = ours(root, spot, mark);
    if found.is_empty() {
        return;
    }
    found.into_iter().for_each(|entry| remove_from(entry, mark));
    let Some(hooks) = hooks(root) else { return };
    if let Some(event) = hooks.get(spot.event)
        && event.array_value().is_some_and(|event| event.elements().is_empty())
    {
        event.remove();
    }
    if hooks.properties().is_empty()
        && let Some(hooks) = root.object_value().and_then(|object| object.get("hooks"))
    {
        hooks.remove();
    }
}

/// Settings that differ from what Ringfence sets.
fn off<'s>(settings: &Value, spot: &'s HookSlot) -> impl Iterator<Item = &'s str> {
    let is_on = |name: &str| settings.get(name) == Some(&Value::Bool(true));
    spot.switches.iter().copied().filter(move |name| !is_on(name))
}

fn set(object: &CstObject, spot: &HookSlot) {
    for name in spot.switches {
        match object.get(name) {
            Some(property) => property.set_value(CstInputValue::Bool(true)),
            None => {
                object.append(name, CstInputValue::Bool(true));
            }
        }
    }
}

/// Restores the switches; an unknown original stays set, which is the stricter state.
fn unset(root: &CstRootNode, spot: &HookSlot, original: Option<&[u8]>) {
    let settings = |bytes| text(bytes).and_then(|(_, text)| value(text)).ok();
    let Some(original) = original.and_then(settings) else { return };
    let Some(object) = root.object_value() else { return };
    for name in spot.switches {
        match (object.get(name), original.get(*name)) {
            (Some(property), None) => property.remove(),
            (Some(property), Some(before)) => property.set_value(input(before)),
            (None, _) => {}
        }
    }
}

/// Refuses duplicate keys: the agent uses the last one, but the edit would change the first.
fn checked(after: String, spot: &HookSlot, entry: &Value, mark: &str) -> Result<String, AgentSettingsError> {
    let value = value(&after)?;
    let entries = value.get("hooks").and_then(|hooks| hooks.get(spot.event)).and_then(Value::as_array);
    let ours: Vec<&Value> =
        entries.into_iter().flatten().filter(|one| one.to_string().contains(mark)).collect();
    let twice = off(&value, spot).next().is_some();
    if ours == [entry] && !twice { Ok(after) } else { Err(AgentSettingsError::Twice) }
}

/// Parses a file without its comments.
pub(super) fn read(bytes: &[u8]) -> Result<Value, AgentSettingsError> {
    value(text(bytes)?.1)
}

fn value(text: &str) -> Result<Value, AgentSettingsError> {
    let value = jsonc_parser::parse_to_serde_value(text, &ParseOptions::default());
    value.map(Option::unwrap_or_default).map_err(|error| AgentSettingsError::Json(error.to_string()))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input).collect()),
        Value::Object(values) => {
            CstInputValue::Object(values.iter().map(|(name, value)| (name.clone(), input(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SPOT: HookSlot = HookSlot { event: "PreToolUse", version: None, switches: &["closed"] };
    const MARK: &str = "MARK";

    fn entry() -> Value {
        json!({ "matcher": "*", "hooks": [{ "type": "command", "command": "x '\\'' || { echo MARK; }" }] })
    }

    fn added(before: &str) -> String {
        String::from_utf8(with(Some(before.as_bytes()), &SPOT, &entry(), MARK).unwrap()).unwrap()
    }

    #[test]
    fn everything_around_the_hook_stays_as_it_is() {
        for before in [
            "{}",
            "{\n}\n",
            "{\n  \"b\": 1,\n  \"a\": [1,  2]\n}\n",
            "{\n\t\"hooks\": {\n\t\t\"PreToolUse\": [\n\t\t\t{ \"matcher\": \"y\" }\n\t\t]\n\t}\n}\n",
            "{\"hooks\":{\"Stop\":[]},\"z\":null}",
            "{\n  // why\n  \"a\": 1, /* b */\n}\n",
        ] {
            let after = added(before);
            let value = |text: &str| value(text).unwrap();
            let mut expected = value(before);
            let list = &mut expected["hooks"]["PreToolUse"];
            let mut entries = vec![entry()];
            entries.extend(list.as_array().cloned().unwrap_or_default());
            *list = Value::Array(entries);
            expected["closed"] = Value::Bool(true);
            assert_eq!(value(&after), expected, "{after}");
            for line in before.lines().filter(|line| line.trim().len() > 2 && !line.contains("hooks")) {
                assert!(after.contains(line.trim_end_matches(['}', '\n'])), "{line:?} is not in {after}");
            }
            assert_eq!(added(&after), after, "twice is once");
            let back = without(after.as_bytes(), &SPOT, MARK, Some(before.as_bytes())).unwrap();
            let back = String::from_utf8(back).unwrap();
            assert_eq!(value(&back), value(before), "{back}");
        }
    }

    /// Only Ringfence's hook is removed, in whatever group it is.
    #[test]
    fn a_hook_of_somebody_else_in_our_group_stays() {
        let theirs = json!({ "type": "command", "command": "theirs" });
        for place in [0, 1] {
            let mut grouped = value(&added("{}")).unwrap();
            let list = grouped["hooks"]["PreToolUse"][0]["hooks"].as_array_mut().unwrap();
            list.insert(place, theirs.clone());
            let text = format!("{grouped:#}");
            assert_eq!(added(&text), text, "it has the hook already");
            let alone = json!({ "hooks": { "PreToolUse": [{ "matcher": "*", "hooks": [theirs] }] } });
            let left = without(text.as_bytes(), &SPOT, MARK, Some(b"{}")).unwrap();
            assert_eq!(value(std::str::from_utf8(&left).unwrap()), Ok(alone));
            let moved = value(&added(&text.replace("x '", "old '"))).unwrap();
            assert_eq!(moved["hooks"]["PreToolUse"][0], entry());
            assert_eq!(moved["hooks"]["PreToolUse"][1], json!({ "matcher": "*", "hooks": [theirs] }));
        }
    }

    #[test]
    fn a_mark_of_byte_order_stays_where_it_is() {
        let before = "\u{feff}{\"a\": 1}";
        let after = added(before);
        assert_eq!(after, format!("\u{feff}{}", added(before.trim_start_matches('\u{feff}'))));
        assert_eq!(added(&after), after, "twice is once");
        let back = without(after.as_bytes(), &SPOT, MARK, None).unwrap();
        assert!(back.starts_with("\u{feff}{".as_bytes()), "{}", String::from_utf8_lossy(&back));
    }

    #[test]
    fn a_setting_that_was_there_is_again_what_it_was() {
        for before in ["{\"closed\": false}", "{\"closed\": true}", "{\"a\": 1}"] {
            let after = added(before);
            assert_eq!(value(&after).unwrap()["closed"], true);
            let edited = after.replacen('{', "{\"edited\": 1, ", 1);
            let back = without(edited.as_bytes(), &SPOT, MARK, Some(before.as_bytes())).unwrap();
            let mut expected = value(before).unwrap();
            expected["edited"] = json!(1);
            assert_eq!(value(std::str::from_utf8(&back).unwrap()).unwrap(), expected);
        }
    }

    #[test]
    fn what_cannot_be_edited_is_refused() {
        for before in [
            "[]",
            "{",
            "7",
            "{\"hooks\": []}",
            "{\"hooks\": {\"PreToolUse\": {}}}",
            "{\"hooks\":{},\"hooks\":{}}",
        ] {
            assert!(with(Some(before.as_bytes()), &SPOT, &entry(), MARK).is_err(), "{before}");
        }
        assert!(with(Some(b"\xff"), &SPOT, &entry(), MARK).is_err());
    }

    #[test]
    fn a_hook_that_leads_elsewhere_is_replaced() {
        let old = added("{}").replace("x '", "old '");
        // The position among the settings does not matter.
        let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(parsed(&added(&old)), parsed(&added("{}")));
    }
}
