//! Pages as a browser would find them.

use serde_json::Value;

/// The JSON of a page, as a browser would find it.
pub fn data_of(page: &str) -> Value {
    let (_, rest) = page.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// Every element that is opened is closed, in order; what is in scripts and styles is not looked at.
pub fn assert_well_formed(mut text: &str) {
    let mut open: Vec<&str> = Vec::new();
    while let Some((_, rest)) = text.split_once('<') {
        let (tag, after) = rest.split_once('>').expect("every tag ends");
        text = after;
        let name = tag.split_whitespace().next().unwrap_or("");
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed before {}", &text[..text.len().min(60)]);
        } else if !(name.starts_with('!') || name == "meta" || tag.ends_with('/')) {
            open.push(name);
        }
        if name == "script" || name == "style" {
            text = &text[text.find(&format!("</{name}>")).expect("it ends")..];
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}

/// Nothing is fetched from anywhere.
pub fn assert_self_contained(page: &str) {
    assert_well_formed(page);
    let page = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
}
