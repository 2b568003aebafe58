//! HTML pages: single files that need no network and no build. The data is in the page as JSON; its script draws it.

pub mod charts;

use anyhow::Result;
use mae_study::figures::escape;
use serde::Serialize;

const TEMPLATE: &str = include_str!("template.html");
const STYLE: &str = include_str!("style.css");
const COMMON: &str = include_str!("common.js");
/// Script of the pages of `mae analyze`.
pub const ANALYSIS: &str = include_str!("analysis.js");
/// Script of the pages of `mae reproduce` and `mae transfer`.
pub const STUDY: &str = concat!(include_str!("charts.js"), include_str!("study.js"));
/// Script of the pages of `mae report`.
pub const REPORT: &str = concat!(include_str!("charts.js"), include_str!("report.js"));

/// Page that `script` fills with `data`.
pub fn page(title: &str, script: &str, data: &impl Serialize) -> Result<String> {
    let parts = [
        ("{{title}}", escape(title)),
        ("{{style}}", STYLE.to_owned()),
        ("{{data}}", json_in_html(&serde_json::to_string(data)?)),
        ("{{script}}", format!("{COMMON}\n{script}")),
    ];
    // Each mark is replaced once, from the front; inserted text is not searched again.
    let mut page = String::new();
    let mut rest = TEMPLATE;
    for (mark, text) in parts {
        let (before, after) = rest.split_once(mark).expect("the template has every mark, in this order");
        page += before;
        page += &text;
        rest = after;
    }
    Ok(page + rest)
}

/// JSON that is safe inside HTML: without `<`, `>`, `&` and the line separators that scripts do not accept. It parses to
/// the same values.
fn json_in_html(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out += &format!("\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The JSON of a page, as a browser would find it.
    fn data_of(page: &str) -> serde_json::Value {
        let (_, rest) = page.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn hostile_words_stay_data() {
        let words =
            ["</script><script>alert(1)</script>", "<!--", "a & b", "\u{2028}", "{{script}}", "\"'`\\"];
        for script in [ANALYSIS, REPORT, STUDY] {
            let page = page("<b>&\"", script, &words).unwrap();
            assert_eq!(data_of(&page), serde_json::json!(words));
            assert_eq!(page.matches("<script").count(), 2, "the data and the program");
            assert_eq!(page.matches("</script>").count(), 2);
            assert!(page.contains("<title>&lt;b&gt;&amp;&quot;</title>") && !page.contains("alert(1)<"));
        }
    }

    #[test]
    fn pages_need_nothing_else() {
        for script in [ANALYSIS, REPORT, STUDY] {
            let page = page("t", script, &0).unwrap();
            // Names of XML languages are no addresses to fetch.
            let page = page.replace("http://www.w3.org/2000/svg", "");
            for sign in
                ["http://", "https://", "src=", "<link", "@import", "url(", "fetch(", "innerHTML", "eval("]
            {
                assert!(!page.contains(sign), "the page has `{sign}`");
            }
            assert!(page.contains("prefers-color-scheme: dark") && page.contains("width=device-width"));
        }
    }

    /// Node checks the syntax where it is installed.
    #[test]
    fn scripts_parse() {
        for script in [ANALYSIS, REPORT, STUDY] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("page.js");
            std::fs::write(&file, format!("{COMMON}\n{script}")).unwrap();
            match std::process::Command::new("node").arg("--check").arg(&file).output() {
                Ok(checked) => {
                    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
                }
                Err(_) => eprintln!("node is not installed: the scripts' syntax was not checked"),
            }
        }
    }
}
