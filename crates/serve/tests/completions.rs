//! OpenAI's and OpenNMT-py's interfaces, and our own, over real sockets.

use serde_json::{Value, json};

use crate::common::{Answer, Running};

/// The objects of a stream of events, without the last mark.
fn events(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.head.contains("content-type: text/event-stream"), "{answer:?}");
    // Chunks of the transfer have lines of their own.
    let lines: Vec<&str> = answer.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (last, events) = lines.split_last().unwrap();
    assert_eq!(*last, "[DONE]");
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

#[test]
fn streams_add_up_to_the_whole() {
    let server = Running::start(|_| {});
    let ask =
        json!({"model": "lm", "prompt": ["the history", "of words"], "max_tokens": 12, "seed": 3, "n": 2});
    let whole = server.post("/v1/completions", &ask).json();
    assert_eq!(whole["object"], "text_completion");
    let choices = whole["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    assert_ne!(choices[0]["text"], choices[1]["text"], "draws of a prompt differ");
    let mut streamed = ask.clone();
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    let events = events(&server.post("/v1/completions", &streamed));
    let (usage, parts) = events.split_last().unwrap();
    assert_eq!((&usage["choices"], &usage["usage"]), (&json!([]), &whole["usage"]));
    for (index, choice) in choices.iter().enumerate() {
        let own: Vec<&Value> =
            parts.iter().map(|part| &part["choices"][0]).filter(|c| c["index"] == index).collect();
        let text: String = own.iter().map(|part| part["text"].as_str().unwrap()).collect();
        assert_eq!(choice["text"], text);
        assert_eq!(own.last().unwrap()["finish_reason"], choice["finish_reason"]);
    }
    let tokens = whole["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(tokens, 4);
}

#[test]
fn completions_have_options() {
    let server = Running::start(|_| {});
    let ask = |mut body: Value| {
        body["prompt"] = json!("the history");
        server.post("/v1/completions", &body)
    };
    let greedy = ask(json!({"max_tokens": 5, "temperature": 0, "logprobs": 2, "echo": true})).json();
    let choice = &greedy["choices"][0];
    let text = choice["text"].as_str().unwrap();
    assert!(text.starts_with("the history "), "{text}");
    let tokens = choice["logprobs"]["tokens"].as_array().unwrap();
    assert_eq!(choice["logprobs"]["top_logprobs"][0].as_object().unwrap().len(), 2);
    let first = tokens[0].as_str().unwrap();
    let likeliest = &choice["logprobs"]["top_logprobs"][0][first];
    assert_eq!(likeliest, &choice["logprobs"]["token_logprobs"][0], "a greedy token is the likeliest");
    let stopped = ask(json!({"max_tokens": 5, "temperature": 0, "stop": [first]})).json();
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    assert!(!stopped["choices"][0]["text"].as_str().unwrap().contains(first));
    let none = ask(json!({"max_tokens": 0, "echo": true})).json();
    assert_eq!(none["choices"][0]["text"], "the history");
    let refused = |body: Value| {
        let answer = ask(body);
        (answer.status, answer.json()["error"]["message"].as_str().unwrap().to_owned())
    };
    assert_eq!(refused(json!({"model": "x"})), (404, "The model `x` does not exist".into()));
    assert_eq!(refused(json!({"n": 0})).0, 400);
    assert_eq!(refused(json!({"max_tokens": 5000})), (400, "max_tokens must be at most 1024".into()));
    assert!(refused(json!({"temperature": -1})).1.contains("temperature = -1"));
    let ids = server.post("/v1/completions", &json!({"prompt": [1, 2]}));
    assert!(ids.json()["error"]["message"].as_str().unwrap().contains("token ids"));
    let models = server.get("/v1/models").json();
    let names: Vec<&str> =
        models["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["lm", "de-en", "base-de-en"]);
}

#[test]
fn opennmt_answers_lists_of_lists() {
    let server = Running::start(|_| {});
    let ask = |body: Value| server.post("/translator/translate", &body);
    let found = ask(json!([{"src": "a b", "id": 0}, {"src": "c"}])).json();
    assert_eq!((found.as_array().unwrap().len(), found[0].as_array().unwrap().len()), (1, 2));
    assert_eq!((&found[0][0]["src"], &found[0][0]["n_best"]), (&json!("a b"), &json!(1)));
    assert!(found[0][0]["pred_score"].as_f64().unwrap() < 0.0);
    let libre = server.post("/translate", &json!({"q": "a b", "source": "de", "target": "en"})).json();
    assert_eq!(found[0][0]["tgt"], libre["translatedText"]);
    let other = ask(json!([{"src": "a b", "id": "base-de-en"}])).json();
    assert!(other[0][0]["tgt"].is_string());
    let missing = ask(json!([{"src": "a", "id": 7}]));
    assert_eq!(
        (missing.status, missing.json()),
        (200, json!({"error": "No such model '7'", "status": "error"}))
    );
    assert_eq!(ask(json!({"src": "a"})).json()["status"], "error");
    assert_eq!(server.get("/translator/models").json()[1]["model"], "base-de-en");
}

#[test]
fn gates_are_reported_and_experts_switched_off() {
    let server = Running::start(|_| {});
    let ask = |body: Value| server.post("/v1/gates", &body);
    let found = ask(json!({"q": "a b c! D a", "alternatives": 2})).json();
    assert_eq!(found["experts"], json!([[0], [1], [2], [3]]));
    let sentence = &found["sentences"][1];
    assert_eq!(sentence["source_tokens"], json!(["D", "a", "</s>"]));
    assert_eq!(sentence["unknown_tokens"], 1);
    let attentions = sentence["attentions"].as_array().unwrap();
    let kinds: Vec<&str> = attentions.iter().map(|a| a["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["encoder", "decoder", "cross", "decoder", "cross"]);
    let tokens = sentence["tokens"].as_array().unwrap().len();
    assert_eq!(attentions[1]["values"].as_array().unwrap().len(), tokens);
    let row = attentions[1]["values"][0].as_array().unwrap();
    assert!((row.iter().map(|g| g.as_f64().unwrap()).sum::<f64>() - 1.0).abs() < 1e-4);
    let off =
        |name: &str, experts: Value| json!({"q": "a b c", "off": [{"attention": name, "experts": experts}]});
    let changed = ask(off("decoder.layers.1.encoder_attn", json!([0, 1]))).json();
    let plain = ask(json!({"q": "a b c"})).json();
    assert_ne!(changed["sentences"][0]["score"], plain["sentences"][0]["score"]);
    let heads =
        ask(json!({"q": "a b c", "off": [{"attention": "encoder.layers.0.self_attn", "heads": [2]}]})).json();
    assert_ne!(heads["sentences"][0]["score"], plain["sentences"][0]["score"]);
    let (status, text) = ask(off("encoder.layers.9.self_attn", json!([0]))).refusal();
    assert!(status == 400 && text.contains("no attention encoder.layers.9"), "{text}");
    let (status, text) =
        ask(json!({"q": "a", "model": "base-de-en", "off": [{"attention": "x", "heads": [0]}]})).refusal();
    assert!(status == 400 && text.contains("no mixture"), "{text}");
}

#[test]
fn the_document_describes_every_endpoint() {
    let server = Running::start(|_| {});
    let spec = server.get("/spec").json();
    assert_eq!(spec["openapi"], "3.1.0");
    let paths = spec["paths"].as_object().unwrap();
    for (path, operations) in paths {
        assert!(
            operations.as_object().unwrap().values().all(|o| o["responses"]["200"].is_object()),
            "{path}"
        );
        if operations.get("get").is_some() {
            assert_eq!(server.get(path).status, 200, "{path}");
        }
    }
    let q = &paths["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        ["q"];
    assert_eq!(q["oneOf"][1]["type"], "array");
    let page = server.get("/");
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{page:?}");
}
