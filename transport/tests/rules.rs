//! What the documents promise about rules and labels, checked against the sources as text.
#![cfg(not(vervain_loom))]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Rust files below a folder, with their paths; this one, which holds made-up numbers, apart.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("rules.rs") {
                found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

/// Rule numbers such as `LL-3` in a text.
fn rules(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let is_rule = |word: &&str| {
        word.split_once('-').is_some_and(|(family, number)| {
            ["CR", "LL", "L8", "SI", "AB", "SP", "MP", "FF", "CQ", "CN", "FE", "CA"].contains(&family)
                && !number.is_empty()
                && number.bytes().all(|digit| digit.is_ascii_digit())
        })
    };
    words.filter(is_rule).map(str::to_owned).collect()
}

/// The code before the first in-file test module, and the tests.
fn split_tests(text: &str) -> (&str, &str) {
    text.split_at(text.find("#[cfg(test)]").or(text.find("#[cfg(all(test")).unwrap_or(text.len()))
}

#[test]
fn every_rule_is_cited_by_code_and_by_a_test_and_every_cited_rule_exists() {
    let written: BTreeSet<String> = read("docs/protocols.md")
        .lines()
        .filter_map(|line| line.strip_prefix("- **")?.split_once("**").map(|(rule, _)| rule.to_owned()))
        .collect();
    let (mut code, mut tests) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in sources("transport/src") {
        // the bodies of fuzz targets and property tests, and the suite of all fabrics, are tests
        let is_test = path.ends_with("fuzzing.rs") || path.contains("/tests") || path.contains("/conformance");
        let (before, after) = if is_test { ("", &text[..]) } else { split_tests(&text) };
        code.append(&mut rules(before));
        tests.append(&mut rules(after));
    }
    for (_, text) in sources("transport/tests") {
        tests.append(&mut rules(&text));
    }
    let missing = |from: &BTreeSet<String>| written.difference(from).cloned().collect::<Vec<_>>();
    assert!(written.len() > 25, "the document lists the rules as `- **XX-1** ...`");
    assert_eq!(missing(&code), [""; 0], "rules that no code cites");
    assert_eq!(missing(&tests), [""; 0], "rules that no test cites");
    let cited: BTreeSet<String> = code.union(&tests).cloned().collect();
    assert_eq!(cited.difference(&written).collect::<Vec<_>>(), [""; 0], "cited rules that are not written");
}

/// `SYNC a -> b` is (a, "->", b).
fn synchronisations(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.lines()
        .filter_map(|line| {
            let story = line.trim_start().strip_prefix("// SYNC ")?;
            Some(story.split(':').next()?.split(',').filter_map(|pair| {
                let mut words = pair.split_whitespace();
                Some((words.next()?, words.next()?, words.next()?))
            }))
        })
        .flatten()
}

#[test]
fn every_label_of_rings_and_protocols_stands_at_both_ends() {
    let mut arrows: BTreeMap<(String, String), BTreeSet<&str>> = BTreeMap::new();
    let files: Vec<_> = ["sync", "wire", "ring"].map(|room| sources(&format!("transport/src/{room}"))).concat();
    for (path, text) in &files {
        for (here, arrow, there) in synchronisations(text) {
            let (from, to) = match arrow {
                "->" | "<->" => (here, there),
                "<-" => (there, here),
                other => panic!("{path}: `SYNC {here} {other} {there}` has no arrow"),
            };
            arrows.entry((from.to_owned(), to.to_owned())).or_default().insert(arrow);
        }
    }
    assert!(arrows.len() > 10);
    for ((from, to), ends) in &arrows {
        let mirrored = ends.contains("<->") && arrows.contains_key(&(to.clone(), from.clone()));
        assert!(mirrored || ends.len() == 2, "{from} -> {to} stands at one end only: {ends:?}");
    }
}

#[test]
fn every_label_has_a_place_in_the_document() {
    let document = read("docs/ordering.md");
    let mut missing = BTreeSet::new();
    for (path, text) in ["transport/src", "collectives/src"].into_iter().flat_map(sources) {
        for line in text.lines().filter_map(|line| line.trim_start().strip_prefix("// SYNC ")) {
            let pair = line.split(':').next().unwrap_or_default();
            let labels = pair.split([' ', ',', ';']).filter(|word| word.contains('.') && !word.ends_with('.'));
            missing.extend(labels.filter(|label| !document.contains(&format!("`{label}`"))).map(|label| {
                let file = Path::new(&path).strip_prefix(root()).unwrap().display();
                format!("{label} ({file})")
            }));
        }
    }
    assert_eq!(missing, BTreeSet::new(), "docs/ordering.md does not name these labels");
}

#[test]
fn every_label_that_the_code_names_is_listed_for_the_mutation_check() {
    let mut named = BTreeSet::new();
    for (_, text) in sources("transport/src") {
        for call in ["label(\"", "fence_at(\""] {
            named.extend(text.split(call).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
    let listed: BTreeSet<String> = vervain_transport::sync::LABELS.iter().map(|label| label.to_string()).collect();
    // the essay of sync.rs names one as an example
    assert_eq!(named, listed);
    let document = read("docs/ordering.md");
    assert!(listed.iter().all(|label| document.contains(&format!("`{label}`"))));
}

#[test]
fn rule_numbers_and_labels_are_recognised() {
    assert_eq!(rules("LL-3, (CR-12) but UTF-8, LL-x, ALL-3"), ["CR-12", "LL-3"].map(str::to_owned).into());
    let text = "  // SYNC a.b -> c.d, e.f <- g.h: why\n// SYNC x <-> y: why";
    let found: Vec<_> = synchronisations(text).collect();
    assert_eq!(found, [("a.b", "->", "c.d"), ("e.f", "<-", "g.h"), ("x", "<->", "y")]);
}
