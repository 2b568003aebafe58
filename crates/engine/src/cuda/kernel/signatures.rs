//! Compares every kernel's signature in CUDA with its declaration in Rust. Needs neither a GPU nor NVRTC.

use std::collections::BTreeMap;
use std::path::Path;

use super::{CType, Field, KernelFile, Signature};
use crate::cuda::compile::{PRELUDE, PRELUDE_CONSTANTS, files};

/// Parameters or fields as CUDA declares them: name and type, with lengths of arrays as written.
type Declared = Vec<(String, String)>;

/// Text without comments and preprocessor lines.
fn code_of(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Names, numbers and single characters.
fn tokens(code: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length =
            if is_word(first) { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// The tokens up to the bracket that closes the one before them, and those behind it.
fn split_at_close<'a, 'b>(tokens: &'a [&'b str]) -> (&'a [&'b str], &'a [&'b str]) {
    let mut depth = 1;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "(" | "{" | "[" => depth += 1,
            ")" | "}" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (&tokens[..at], &tokens[at + 1..]);
        }
    }
    panic!("a bracket is not closed: {}", tokens.join(" "));
}

/// `const act *q, *k` or `u32 first[8]`: the names with their types. A parameter is a declaration of one name.
fn declared(tokens: &[&str]) -> Declared {
    let tokens: Vec<&str> = tokens.iter().copied().filter(|&token| token != "__restrict__").collect();
    let (constant, tokens) = match tokens.as_slice() {
        ["const", rest @ ..] => ("const ", rest),
        rest => ("", rest),
    };
    let (base, names) = tokens.split_first().expect("a declaration has a type");
    let one = |name: &[&str]| match *name {
        [name] => (name.to_owned(), format!("{constant}{base}")),
        ["*", name] => (name.to_owned(), format!("{constant}{base}*")),
        [name, "[", length, "]"] => (name.to_owned(), format!("{constant}{base}[{length}]")),
        ["*", name, "[", length, "]"] => (name.to_owned(), format!("{constant}{base}*[{length}]")),
        _ => panic!("a declaration that this test cannot read: {}", tokens.join(" ")),
    };
    names.split(|&token| token == ",").map(one).collect()
}

/// Every kernel of a file and its parameters. A kernel that a macro makes is none that this can read, and a failure.
fn kernels_of(text: &str) -> BTreeMap<String, Declared> {
    let code = code_of(text);
    let all = tokens(&code);
    let mut kernels = BTreeMap::new();
    for at in (0..all.len()).filter(|&at| all[at] == "__global__") {
        assert_eq!(all[at - 4..at], ["extern", "\"", "C", "\""], "a kernel must be extern \"C\"");
        assert_eq!(all[at + 1], "void");
        let mut rest = &all[at + 2..];
        if let ["__launch_bounds__", "(", bounds @ ..] = rest {
            rest = split_at_close(bounds).1;
        }
        let [name, "(", rest @ ..] = rest else { panic!("no kernel: {}", rest[..8].join(" ")) };
        let (parameters, body) = split_at_close(rest);
        assert_eq!(body[0], "{", "{name}");
        let parameters = parameters.split(|&token| token == ",").flat_map(declared).collect();
        assert!(kernels.insert((*name).to_owned(), parameters).is_none(), "`{name}` is there twice");
    }
    kernels
}

/// The fields of a struct.
fn fields_of(text: &str, wanted: &str) -> Option<Declared> {
    let code = code_of(text);
    let all = tokens(&code);
    let at = all.windows(3).position(|window| window == ["struct", wanted, "{"])?;
    let (body, _) = split_at_close(&all[at + 3..]);
    Some(body.split(|&token| token == ";").filter(|part| !part.is_empty()).flat_map(declared).collect())
}

/// One kernel file: its text with all headers, and the values of its constants.
struct Source {
    text: String,
    constants: BTreeMap<&'static str, String>,
}

impl Source {
    fn of(file: &KernelFile) -> Self {
        let headers = file.headers.iter().map(|(_, text)| *text);
        let text = std::iter::once(PRELUDE).chain(headers).chain([file.text]).collect();
        let constants = PRELUDE_CONSTANTS.iter().chain(file.constants);
        Self { text, constants: constants.map(|(name, value)| (*name, value.text())).collect() }
    }

    /// The same type with the value of a constant as the length of an array.
    fn resolved(&self, ctype: &str) -> String {
        let Some((element, length)) = ctype.strip_suffix(']').and_then(|ctype| ctype.split_once('[')) else {
            return ctype.to_owned();
        };
        format!("{element}[{}]", self.constants.get(length).map_or(length, String::as_str))
    }

    /// Differences of `rust` and `cuda`, and of all structs that Rust passes by value.
    fn differences(&self, what: &str, rust: &[Field], cuda: &Declared) -> Vec<String> {
        let ours: Declared =
            rust.iter().map(|field| (field.name.to_owned(), field.ctype.to_string())).collect();
        let theirs: Declared =
            cuda.iter().map(|(name, ctype)| (name.clone(), self.resolved(ctype))).collect();
        let mut differences = Vec::new();
        for at in 0..ours.len().max(theirs.len()) {
            if ours.get(at) != theirs.get(at) {
                let show = |side: Option<&(String, String)>| {
                    side.map_or("nothing".to_owned(), |(name, ctype)| format!("`{ctype} {name}`"))
                };
                let (ours, theirs) = (show(ours.get(at)), show(theirs.get(at)));
                differences.push(format!("{what}, place {at}: Rust passes {ours}, CUDA takes {theirs}"));
            }
        }
        let structs = rust.iter().flat_map(|field| struct_in(&field.ctype));
        differences.extend(structs.flat_map(|(name, fields)| match fields_of(&self.text, name) {
            Some(cuda) => self.differences(&format!("struct {name}"), fields, &cuda),
            None => vec![format!("struct {name} is not in CUDA")],
        }));
        differences
    }
}

fn struct_in(ctype: &CType) -> Option<(&'static str, &'static [Field])> {
    match *ctype {
        CType::Struct(name, fields) => Some((name, fields)),
        CType::Array(element, _) => struct_in(element),
        CType::Plain(_) | CType::Const(_) | CType::Mut(_) => None,
    }
}

fn differences_of(file: &KernelFile) -> Vec<String> {
    let source = Source::of(file);
    let mut cuda = kernels_of(file.text);
    let mut differences = Vec::new();
    for Signature { name, parameters } in file.kernels {
        differences.extend(match cuda.remove(*name) {
            Some(theirs) => source.differences(&format!("kernel {name}"), parameters, &theirs),
            None => vec![format!("kernel {name} is not in CUDA, or is declared twice")],
        });
    }
    differences.extend(cuda.keys().map(|name| format!("kernel {name} is not declared in Rust")));
    let named: Vec<String> = tokens(&code_of(&source.text)).into_iter().map(str::to_owned).collect();
    for (name, _) in file.constants {
        if !named.iter().any(|token| token == name) {
            differences.push(format!("constant {name} is not used"));
        }
        for again in [format!("#define {name} "), format!("constexpr int {name} ")] {
            if source.text.contains(&again) {
                differences.push(format!("constant {name} is defined in CUDA, too"));
            }
        }
    }
    differences.into_iter().map(|difference| format!("{}.cu: {difference}", file.name)).collect()
}

#[test]
fn every_kernel_takes_what_rust_passes() {
    let differences: Vec<String> = files().flat_map(differences_of).collect();
    assert!(differences.is_empty(), "\n{}\n", differences.join("\n"));
}

/// Kernel files on the disk are those that Rust knows, so that no kernel escapes the test above.
#[test]
fn every_kernel_file_is_known() {
    fn visit(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("sources can be read") {
            let path = entry.expect("sources can be read").path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if path.is_dir() {
                visit(&path, found);
            } else if matches!(extension, Some("cu" | "cuh")) {
                found.push(path.file_name().and_then(|name| name.to_str()).expect("ASCII names").to_owned());
            }
        }
    }
    let mut found = Vec::new();
    visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let headers = files().flat_map(|file| file.headers).map(|(name, _)| (*name).to_owned());
    let mut known: Vec<String> = headers.chain(["prelude.cuh".to_owned()]).collect();
    known.sort();
    known.dedup();
    known.extend(files().map(|file| format!("{}.cu", file.name)));
    known.sort();
    found.sort();
    assert_eq!(found, known);
}

#[test]
fn signatures_are_read() {
    let text = "// extern \"C\" __global__ void none(u32 a)\n#define X 1\nextern \"C\" __global__ void \
                __launch_bounds__(2 * X, Y(1, 2))\nsome(const act* __restrict__ x, Segments s, float* y, u64 n) {}";
    let pair = |name: &str, ctype: &str| (name.to_owned(), ctype.to_owned());
    let some = vec![pair("x", "const act*"), pair("s", "Segments"), pair("y", "float*"), pair("n", "u64")];
    assert_eq!(kernels_of(text), BTreeMap::from([("some".to_owned(), some)]));
    let text =
        "struct Some {\n    const act *q, *k;  // a comment\n    u32 rows, cols;\n    Other job[MOST];\n};";
    let some = vec![
        pair("q", "const act*"),
        pair("k", "const act*"),
        pair("rows", "u32"),
        pair("cols", "u32"),
        pair("job", "Other[MOST]"),
    ];
    assert_eq!(fields_of(text, "Some"), Some(some));
    assert_eq!(fields_of(text, "Other"), None);
}

/// Findings of the test above for a swap, a wrong type, a missing and a surplus parameter.
#[test]
fn differences_are_named() {
    const U32: CType = CType::Plain("u32");
    let text = "extern \"C\" __global__ void swapped(u32 rows, u32 cols) {}\n\
                extern \"C\" __global__ void typed(float* x, u32 n) {}\n\
                extern \"C\" __global__ void forgotten(u32 n) {}";
    let rust = [
        Signature {
            name: "swapped",
            parameters: &[Field { name: "cols", ctype: U32 }, Field { name: "rows", ctype: U32 }],
        },
        Signature { name: "typed", parameters: &[Field { name: "x", ctype: CType::Const("float") }] },
        Signature { name: "absent", parameters: &[] },
    ];
    let file = KernelFile { name: "some", text, headers: &[], constants: &[], kernels: rust.to_vec().leak() };
    let differences = differences_of(&file).join("\n");
    for expected in [
        "kernel swapped, place 0: Rust passes `u32 cols`, CUDA takes `u32 rows`",
        "kernel swapped, place 1: Rust passes `u32 rows`, CUDA takes `u32 cols`",
        "kernel typed, place 0: Rust passes `const float* x`, CUDA takes `float* x`",
        "kernel typed, place 1: Rust passes nothing, CUDA takes `u32 n`",
        "kernel absent is not in CUDA",
        "kernel forgotten is not declared in Rust",
    ] {
        assert!(differences.contains(expected), "{expected}\n{differences}");
    }
}
