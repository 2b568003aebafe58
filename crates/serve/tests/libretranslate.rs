//! LibreTranslate's interface over real sockets.

use mae::data::moses::Dashes;
use mae::data::{TextRecord, TextRules};
use mae_serve::{Config, Preparation};
use serde_json::{Value, json};

use crate::common::Running;

fn translate(server: &Running, body: Value) -> Value {
    let answer = server.post("/translate", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[test]
fn languages_and_rules_of_a_text_are_those_of_the_folder() {
    let rules = TextRules { tokenize: Some(Dashes::Keep), lowercase: true, ..TextRules::default() };
    let start = |preparation: Preparation| {
        let record = TextRecord::new("fr", "en", rules.clone());
        Running::start(|config: &mut Config| {
            record.save(&config.models[0].folder).unwrap();
            config.preparation = preparation;
        })
    };
    let read = |server: &Running, text: &str| {
        let found = server.post("/v1/gates", &json!({"q": text})).json();
        found["sentences"][0]["source_tokens"].clone()
    };
    let server = start(Preparation::Folder);
    // The name of the folder, de-en, says less.
    assert_eq!(server.get("/languages").json()[0]["code"], "fr");
    assert_eq!(read(&server, "A b, c!"), json!(["a", "b", ",", "c", "!", "</s>"]));
    let ask = |text: &str| json!({"q": text, "source": "fr", "target": "en"});
    let plain = translate(&server, ask("A b c!"));
    let tokenised = start(Preparation::Tokenised);
    assert_eq!(read(&tokenised, "A b, c!"), json!(["A", "b,", "c!", "</s>"]));
    assert_eq!(plain, translate(&tokenised, ask("a b c !")));
}

#[test]
fn texts_come_as_json_forms_and_queries() {
    let server = Running::start(|_| {});
    let one = translate(&server, json!({"q": "a b c", "source": "de", "target": "en"}));
    let text = one["translatedText"].as_str().unwrap();
    assert!(!text.is_empty() && one.get("alternatives").is_none() && one.get("detectedLanguage").is_none());
    let list = translate(&server, json!({"q": ["a b c", "d"], "source": "DE", "target": "en"}));
    assert_eq!(list["translatedText"][0], text);
    assert_eq!(list["translatedText"].as_array().unwrap().len(), 2);
    let form = "application/x-www-form-urlencoded";
    let answer = server.send("POST", "/translate", form, "q=a+b%20c&source=de&target=en&alternatives=0");
    assert_eq!(answer.json()["translatedText"], text);
    let answer = server.send("POST", "/translate?q=a%20b%20c&source=de&target=en", "text/plain", "");
    assert_eq!(answer.json()["translatedText"], text);
    let same = translate(&server, json!({"q": "a b c", "source": "en", "target": "en"}));
    assert_eq!(same["translatedText"], "a b c");
    for header in ["access-control-allow-origin: *", "access-control-allow-methods: get, post"] {
        assert!(answer.head.contains(header), "{answer:?}");
    }
}

#[test]
fn sentences_keep_their_places() {
    let server = Running::start(|_| {});
    let alone = |text: &str| {
        let found = translate(&server, json!({"q": text, "source": "de", "target": "en"}));
        found["translatedText"].as_str().unwrap().to_owned()
    };
    let text = "  A b .\r\n\r\n\tC d .  B c\n🙂 --\n";
    let want = format!("  {}\r\n\r\n\t{}  {}\n🙂 --\n", alone("A b ."), alone("C d ."), alone("B c"));
    assert_eq!(alone(text), want);
    let page = "<p class=\"x\">a b</p>\n<ul><li>c &amp; d</li></ul>";
    let found = translate(&server, json!({"q": page, "source": "de", "target": "en", "format": "html"}));
    let want = format!("<p class=\"x\">{}</p>\n<ul><li>{}</li></ul>", alone("a b"), alone("c & d"));
    assert_eq!(found["translatedText"], want);
    let found = translate(&server, json!({"q": "a never-seen b", "source": "de", "target": "en"}));
    assert_eq!(found["warnings"], json!({"cutTokens": 0, "unknownTokens": 1}));
    let found = translate(&server, json!({"q": "a ".repeat(40), "source": "de", "target": "en"}));
    assert_eq!(found["warnings"], json!({"cutTokens": 17, "unknownTokens": 0}));
}

#[test]
fn alternatives_and_languages() {
    let server = Running::start(|_| {});
    let found = translate(&server, json!({"q": "a b c", "source": "de", "target": "en", "alternatives": 3}));
    let others = found["alternatives"].as_array().unwrap();
    assert!(!others.is_empty() && others.len() <= 3);
    assert!(!others.contains(&found["translatedText"]));
    let found =
        translate(&server, json!({"q": ["a", "b"], "source": "auto", "target": "en", "alternatives": 1}));
    let unknown = json!({"confidence": 0.0, "language": "de"});
    assert_eq!(found["detectedLanguage"], json!([unknown, unknown]));
    assert!(found["alternatives"][1].is_array());
    let detected = server.post("/detect", &json!({"q": "Das Haus ist alt und der Garten ist schön"})).json();
    assert_eq!(detected[0]["language"], "de");
    assert!(detected[0]["confidence"].as_f64().unwrap() > 50.0);
    let languages = server.get("/languages").json();
    let want = json!([{"code": "de", "name": "German", "targets": ["de", "en"]},
                      {"code": "en", "name": "English", "targets": ["en"]}]);
    assert_eq!(languages, want);
    assert_eq!(server.get("/health").json(), json!({"status": "ok"}));
    let settings = server.get("/frontend/settings").json();
    assert_eq!((&settings["charLimit"], &settings["keyRequired"]), (&json!(-1), &json!(false)));
    let other =
        translate(&server, json!({"q": "a b c", "source": "de", "target": "en", "model": "base-de-en"}));
    assert_ne!(other["translatedText"], "");
}

#[test]
fn refusals_are_word_for_word() {
    let server = Running::start(|config| {
        (config.limits.characters, config.limits.batch, config.limits.alternatives) = (Some(10), Some(3), 4);
    });
    let cases = [
        (json!({"source": "de", "target": "en"}), "Invalid request: missing q parameter"),
        (json!({"q": "", "source": "de", "target": "en"}), "Invalid request: missing q parameter"),
        (json!({"q": [], "source": "de", "target": "en"}), "Invalid request: missing q parameter"),
        (
            json!({"q": ["a", 5], "source": "de", "target": "en"}),
            "Invalid request: expected a text or a list of texts",
        ),
        (json!({"q": "a", "target": "en"}), "Invalid request: missing source parameter"),
        (json!({"q": "a", "source": "de"}), "Invalid request: missing target parameter"),
        (json!({"q": "a", "source": "zz", "target": "en"}), "zz is not supported"),
        (json!({"q": "a", "source": "de", "target": "zz"}), "zz is not supported"),
        (json!({"q": "a", "source": "de", "target": "en", "format": "pdf"}), "pdf format is not supported"),
        (
            json!({"q": "a", "source": "de", "target": "en", "alternatives": "x"}),
            "Invalid request: alternatives parameter is not a number",
        ),
        (
            json!({"q": "a", "source": "de", "target": "en", "alternatives": 5}),
            "Invalid request: alternatives parameter must be <= 4",
        ),
        (
            json!({"q": "a b c d a b", "source": "de", "target": "en"}),
            "Invalid request: request (11) exceeds text limit (10)",
        ),
        (
            json!({"q": ["a", "b", "c", "d"], "source": "de", "target": "en"}),
            "Invalid request: request (4) exceeds text limit (3)",
        ),
        (
            json!({"q": "a", "source": "en", "target": "de"}),
            "German (de) is not available as a target language from English (en)",
        ),
    ];
    for (body, message) in cases {
        assert_eq!(server.post("/translate", &body).refusal(), (400, message.to_owned()), "{body}");
    }
    for body in ["[1]", "{", "\"q\"", "{\"q\": \"\\ud800\"}", "\u{1}"] {
        let answer = server.send("POST", "/translate", "application/json", body);
        assert_eq!(answer.refusal(), (400, "Invalid JSON format".to_owned()), "{body}");
    }
    assert_eq!(server.get("/translate").status, 405);
    assert_eq!(server.get("/nothing").refusal(), (404, "Not found".to_owned()));
}

#[test]
fn keys_and_limits_are_kept() {
    let server = Running::start(|config| {
        let path = std::env::temp_dir().join(format!("mae-serve-keys-{}", std::process::id()));
        std::fs::write(&path, "slow 3\nfree\n").unwrap();
        config.access.keys = Some(path);
        config.access.per_minute = Some(100);
    });
    let ask = |key: Option<&str>, q: Value| {
        let answer =
            server.post("/translate", &json!({"q": q, "source": "de", "target": "en", "api_key": key}));
        (
            answer.status,
            answer.head.contains("retry-after"),
            answer.json()["error"].as_str().map(str::to_owned),
        )
    };
    let no_key = "Please contact the server operator to get an API key".to_owned();
    assert_eq!(ask(None, json!("a")), (400, false, Some(no_key)));
    assert_eq!(ask(Some("x"), json!("a")), (403, false, Some("Invalid API key".into())));
    assert_eq!(ask(Some("slow"), json!(["a", "b", "c"])).0, 200);
    assert_eq!(ask(Some("slow"), json!("a")), (429, true, Some("Slowdown: 3 per 1 minute".into())));
    assert_eq!(ask(Some("free"), json!("a")).0, 200);
    assert_eq!(server.get("/metrics").status, 401);
    assert_eq!(server.get("/health").status, 200);
    let body = json!({"prompt": "the"}).to_string();
    assert_eq!(server.send("POST", "/v1/completions", "application/json", &body).status, 401);
    let head =
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer free\r\n";
    let answer = server.raw(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    assert_eq!(answer.status, 200, "{answer:?}");
}
