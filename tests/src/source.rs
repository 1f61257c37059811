//! The repository as text: its files, and Rust code without what only readers see.

use std::fs;
use std::path::{Path, PathBuf};

/// One text file of the repository.
#[derive(Clone, Debug)]
pub struct File {
    /// From the repository's root, with forward slashes.
    pub path: String,
    /// What it holds.
    pub text: String,
}

impl File {
    /// A file that exists in a test only.
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Whether it is Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is a manifest.
    pub fn is_manifest(&self) -> bool {
        self.path == "Cargo.toml" || self.path.ends_with("/Cargo.toml")
    }

    /// The folder of the crate that the file belongs to: what stands before `src`, `tests`, `benches` or `examples`.
    pub fn crate_folder(&self) -> &str {
        let parts: Vec<&str> = self.path.split('/').collect();
        let inside = |part: &&str| ["src", "tests", "benches", "examples", "Cargo.toml"].contains(part);
        let depth = parts.iter().skip(1).position(inside).map_or(0, |index| index + 1);
        let length = parts[..depth].iter().map(|part| part.len() + 1).sum::<usize>();
        self.path[..length].trim_end_matches('/')
    }
}

/// The root of the repository that this crate was built from.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a member of the workspace").to_owned()
}

/// All text files under version control or about to be, except what is generated: build outputs, lock files, corpora.
pub fn repository() -> Vec<File> {
    let root = root();
    let mut files = Vec::new();
    collect(&root, &root, &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).expect("the repository can be read") {
        let path = entry.expect("the repository can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_symlink() || is_generated(&name) {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, files);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let relative = path.strip_prefix(root).expect("found under the root");
            files.push(File { path: relative.to_string_lossy().replace('\\', "/"), text });
        }
    }
}

fn is_generated(name: &str) -> bool {
    let hidden = name.starts_with('.') && ![".ci", ".gitignore"].contains(&name);
    let built = name.starts_with("target") && !name.contains('.');
    hidden || built || ["Cargo.lock", "corpus", "artifacts", "coverage", "shared"].contains(&name)
}

/// Rust code with its comments and the insides of its literals blanked; lines stay where they are.
pub fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match skipped(rest) {
            Some(length) => {
                blank(&rest[..length], &mut out);
                length
            }
            None => {
                out.push(first);
                first.len_utf8()
            }
        };
        // an identifier's end, so that `br"` and `r#"` are looked for at the start of a word only
        rest = &rest[length..];
        if first.is_alphanumeric() || first == '_' {
            let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            out.push_str(&rest[..word]);
            rest = &rest[word..];
        }
    }
    out
}

fn blank(text: &str, out: &mut String) {
    out.extend(text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
}

/// The length of the comment or literal that `text` begins with, if it begins with one.
fn skipped(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(block_comment(text));
    }
    let after_prefix = text.trim_start_matches(['b', 'c']);
    if let Some(raw) = after_prefix.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') && text.len() - after_prefix.len() <= 1 {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = text.len() - raw.len() + hashes + 1;
            return Some(text[start..].find(&end).map_or(text.len(), |found| start + found + end.len()));
        }
    }
    match text.len() - after_prefix.len() {
        0 | 1 if after_prefix.starts_with('"') => Some(text.len() - after_prefix.len() + quoted(after_prefix)),
        0 if text.starts_with('\'') => character(text),
        _ => None,
    }
}

/// Block comments nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_u32;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A character literal, as opposed to a lifetime.
fn character(text: &str) -> Option<usize> {
    if text.starts_with("'\\") {
        // the escaped character may be a quote itself
        return text.get(3..)?.find('\'').map(|close| close + 4);
    }
    let (close, quote) = text.char_indices().nth(2)?;
    (quote == '\'').then_some(close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let text = "a // unsafe\nb /* x /* unsafe */\n y */ c \"unsafe \\\" unsafe\" d r#\"unsafe \" x\"# e b\"unsafe\" 'f' '\\'' '\\u{1f}' &'g h";
        let code = code(text);
        assert_eq!(code.lines().count(), text.lines().count());
        assert_eq!(code.split_whitespace().collect::<String>(), "abcde&'gh");
    }

    #[test]
    fn words_that_end_like_a_literal_prefix_stay() {
        assert_eq!(code("for r in b { car\"x\" }"), "for r in b { car    }");
    }

    #[test]
    fn an_open_literal_or_comment_ends_with_the_file() {
        for text in ["\"x", "/* x", "r#\"x", "// x", "'\\", "'", "b\"", "'\\n"] {
            assert_eq!(code(text).len(), text.len(), "{text}");
        }
    }

    #[test]
    fn a_file_knows_its_crate() {
        let folder = |path| File::new(path, "").crate_folder().to_owned();
        assert_eq!(folder("transport/src/ring/mod.rs"), "transport");
        assert_eq!(folder("tests/tests/layering.rs"), "tests");
        assert_eq!(folder("ffi/sys/src/lib.rs"), "ffi/sys");
        assert_eq!(folder("ffi/c/Cargo.toml"), "ffi/c");
        assert_eq!(folder("Cargo.toml"), "");
    }
}
