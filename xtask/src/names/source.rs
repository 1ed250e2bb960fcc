//! What one source file says: its types, the tuples its functions take, and the subjects of its comments.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{Attribute, FnArg, Ident, ImplItemFn, Item, ItemFn, ItemMod, Signature, TraitItemFn, Type};

use super::words;
use crate::lexer;

/// Something at a line.
pub(super) struct At {
    pub(super) line: usize,
    pub(super) text: String,
}

#[derive(Default)]
pub(super) struct Facts {
    /// Structs, enums, unions, traits and aliases of modules that are no tests.
    pub(super) types: Vec<At>,
    /// Words with a capital among the arguments of macros that make items.
    pub(super) made_by_macros: Vec<String>,
    /// Modules with a file of their own that exist in tests alone.
    pub(super) test_modules: Vec<String>,
    pub(super) tuple_parameters: Vec<At>,
    pub(super) subjectless: Vec<At>,
}

impl Facts {
    pub(super) fn of(text: &str) -> syn::Result<Self> {
        let mut facts = Self::default();
        facts.visit_file(&syn::parse_file(text)?);
        for (line, comment) in lexer::comments(text) {
            let found = words::subjectless(comment).into_iter();
            facts.subjectless.extend(found.map(|word| At { line, text: format!("who is \"{word}\"?") }));
        }
        Ok(facts)
    }

    /// A type that is written once for each platform is one type.
    pub(super) fn distinct_types(&self) -> BTreeSet<&str> {
        self.types.iter().map(|at| at.text.as_str()).collect()
    }

    fn add_type(&mut self, name: &Ident) {
        self.types.push(At { line: name.span().start().line, text: name.to_string() });
    }

    fn add_tuples(&mut self, signature: &Signature) {
        for input in &signature.inputs {
            let FnArg::Typed(input) = input else { continue };
            if is_tuple(&input.ty) {
                let line = signature.ident.span().start().line;
                self.tuple_parameters.push(At { line, text: format!("`{}` takes a tuple", signature.ident) });
            }
        }
    }
}

impl<'ast> Visit<'ast> for Facts {
    fn visit_item(&mut self, item: &'ast Item) {
        if attributes(item).iter().any(is_test) {
            if let Item::Mod(module) = item {
                self.test_modules.extend(module.content.is_none().then(|| module.ident.to_string()));
            }
            return;
        }
        match item {
            Item::Struct(item) => self.add_type(&item.ident),
            Item::Enum(item) => self.add_type(&item.ident),
            Item::Union(item) => self.add_type(&item.ident),
            Item::Trait(item) => self.add_type(&item.ident),
            Item::Type(item) => self.add_type(&item.ident),
            Item::Macro(item) if item.ident.is_none() => {
                self.made_by_macros.extend(capital_words(&item.mac.tokens.to_string()));
            }
            Item::Macro(item) => self.made_by_macros.extend(capital_words(&item.mac.tokens.to_string())),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.add_tuples(&item.sig);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !item.attrs.iter().any(is_test) {
            self.add_tuples(&item.sig);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.add_tuples(&item.sig);
    }
}

/// `(A, B)` or a reference to one.
fn is_tuple(parameter: &Type) -> bool {
    match parameter {
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        Type::Reference(reference) => is_tuple(&reference.elem),
        Type::Paren(inner) => is_tuple(&inner.elem),
        _ => false,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(ItemMod { attrs, .. }) => attrs,
        Item::Fn(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[test]` or `#[cfg(test)]`.
fn is_test(attribute: &Attribute) -> bool {
    let cfg =
        attribute.path().is_ident("cfg") && attribute.parse_args::<Ident>().is_ok_and(|word| word == "test");
    cfg || attribute.path().is_ident("test")
}

fn capital_words(tokens: &str) -> Vec<String> {
    let words = tokens.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase())).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[At]) -> Vec<&str> {
        list.iter().map(|at| at.text.as_str()).collect()
    }

    #[test]
    fn types_of_tests_and_of_functions_are_not_counted() {
        let text = "struct A; mod inner { pub enum B { C } } fn f() { struct Local; } #[cfg(test)] mod tests { struct D; } #[cfg(test)] mod far;";
        let facts = Facts::of(text).unwrap();
        assert_eq!(names(&facts.types), ["A", "B"]);
        assert_eq!(facts.test_modules, ["far"]);
    }

    #[test]
    fn tuples_among_parameters_are_found_in_functions_methods_and_traits() {
        let text = "fn a(x: (u8, u8), y: ()) {} struct S; impl S { fn b(&self, (x, y): &(u8, u8)) {} } trait T { fn c(x: (u8,)); }\nfn fine(x: &[(u8, u8)]) -> (u8, u8) {}";
        let facts = Facts::of(text).unwrap();
        assert_eq!(
            names(&facts.tuple_parameters),
            ["`a` takes a tuple", "`b` takes a tuple", "`c` takes a tuple"]
        );
    }

    #[test]
    fn subjects_are_looked_for_in_comments_alone() {
        let text = "/// Nobody may.\nfn a() { let user = \"nobody\"; } // for somebody\n";
        let found: Vec<usize> = Facts::of(text).unwrap().subjectless.iter().map(|at| at.line).collect();
        assert_eq!(found, [1, 2]);
    }
}
