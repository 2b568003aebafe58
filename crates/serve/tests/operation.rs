//! Many clients, slow ones and broken ones; stopping and loading again.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use mae::model::System;
use mae_serve::Batching;
use serde_json::{Value, json};

use crate::common::{Answer, Running, save_translator};

fn body(text: &str) -> Value {
    json!({"q": text, "source": "de", "target": "en"})
}

fn translation(server: &Running, text: &str) -> String {
    let answer = server.post("/translate", &body(text));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["translatedText"].as_str().unwrap().to_owned()
}

/// Sentence number i, of some words.
fn sentence(i: usize) -> String {
    let words = ["a", "b", "c", "d"];
    (0..=i % 7).map(|k| words[(i * 7 + k * k + i / 4) % 4]).collect::<Vec<_>>().join(" ")
}

/// A number of the metrics.
fn metric(server: &Running, name: &str) -> f64 {
    let text = server.get("/metrics").body;
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_sentence_is_translated_alone_as_in_a_crowd() {
    let found = [Batching::Joining, Batching::Waiting].map(crowd);
    assert_eq!(found[0], found[1]);
}

/// Asks with many clients at once; returns the translations of single sentences.
fn crowd(batching: Batching) -> Vec<String> {
    let server = Running::start(|config| (config.limits.budget.sentences, config.batching) = (7, batching));
    let alone: Vec<String> = (0..24).map(|i| translation(&server, &sentence(i))).collect();
    std::thread::scope(|scope| {
        for client in 0..8 {
            let (server, alone) = (&server, &alone);
            scope.spawn(move || {
                for turn in 0..12 {
                    let i = (5 * client + turn) % 24;
                    if turn % 3 == 0 {
                        let list: Vec<String> = (0..24).map(sentence).collect();
                        let asked =
                            json!({"q": list, "source": "de", "target": "en", "alternatives": turn % 2});
                        let found = server.post("/translate", &asked).json();
                        assert_eq!(found["translatedText"], json!(alone));
                    } else {
                        assert_eq!(translation(server, &sentence(i)), alone[i]);
                    }
                }
            });
        }
    });
    assert_eq!(metric(&server, "mae_queue_sentences{model=\"de-en\"}"), 0.0);
    assert_eq!(metric(&server, "mae_engine_failures_total{model=\"de-en\"}"), 0.0);
    alone
}

#[test]
fn a_full_queue_refuses_and_a_book_does_not_starve_a_sentence() {
    let server = Running::start(|config| {
        (config.limits.queue, config.limits.budget.sentences) = (50, 2);
    });
    let book: Vec<String> = (0..4000).map(sentence).collect();
    std::thread::scope(|scope| {
        let reader =
            scope.spawn(|| server.post("/translate", &json!({"q": book, "source": "de", "target": "en"})));
        while metric(&server, "mae_queue_sentences{model=\"de-en\"}") < 60.0 {}
        let refused = server.post("/translate", &body("a b"));
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(refused.head.contains("retry-after: ") && refused.refusal().1.starts_with("Overloaded"));
        assert_eq!(reader.join().unwrap().json()["translatedText"].as_array().unwrap().len(), 4000);
    });
    let server = Running::start(|config| config.limits.budget.sentences = 2);
    std::thread::scope(|scope| {
        let reader =
            scope.spawn(|| server.post("/translate", &json!({"q": book, "source": "de", "target": "en"})));
        while metric(&server, "mae_queue_sentences{model=\"de-en\"}") < 1000.0 {}
        translation(&server, "a b");
        let left = metric(&server, "mae_queue_sentences{model=\"de-en\"}");
        assert!(left > 0.0, "the sentence waited for the book");
        assert_eq!(reader.join().unwrap().status, 200);
    });
}

#[test]
fn a_wait_that_would_be_too_long_is_refused() {
    let server = Running::start(|config| {
        (config.limits.wait, config.limits.budget.sentences) = (Duration::from_millis(20), 2);
        config.limits.queue = 100_000;
    });
    let list = |count| -> Vec<String> { (0..count).map(sentence).collect() };
    let ask = |count| server.post("/translate", &json!({"q": list(count), "source": "de", "target": "en"}));
    std::thread::scope(|scope| {
        let book = scope.spawn(|| ask(12_000));
        while metric(&server, "mae_queue_sentences{model=\"de-en\"}") < 5_000.0 {}
        // As soon as the pace is known, another book is refused; a sentence waits one turn only.
        let refused = loop {
            let answer = ask(4000);
            if answer.status != 200 {
                break answer;
            }
            assert!(!book.is_finished(), "nothing was refused");
        };
        let (status, message) = refused.refusal();
        assert!(status == 503 && message.starts_with("Overloaded: the wait would be about"), "{refused:?}");
        assert!(refused.head.contains("retry-after: "));
        translation(&server, "a b");
        assert!(!book.is_finished(), "the sentence waited for the book");
        assert_eq!(book.join().unwrap().status, 200);
    });
}

#[test]
fn the_work_of_a_client_that_leaves_is_dropped() {
    let server = Running::start(|config| config.limits.budget.sentences = 2);
    let book: Vec<String> = (0..20_000).map(sentence).collect();
    let text = json!({"q": book, "source": "de", "target": "en"}).to_string();
    let mut stream = server.connect();
    let head = "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    write!(stream, "{head}Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
    while metric(&server, "mae_queue_sentences{model=\"de-en\"}") < 10_000.0 {}
    drop(stream);
    while metric(&server, "mae_queue_sentences{model=\"de-en\"}") > 0.0 {}
    assert!(metric(&server, "mae_sentences_dropped_total{model=\"de-en\"}") > 1000.0);
    // A stream that is closed in the middle.
    let asked = json!({"prompt": "the", "max_tokens": 60, "n": 8, "stream": true}).to_string();
    let mut stream = server.connect();
    write!(
        stream,
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{asked}",
        asked.len()
    )
    .unwrap();
    stream.read_exact(&mut [0; 20]).unwrap();
    drop(stream);
    while metric(&server, "mae_batch_sentences{model=\"lm\"}") > 0.0 {
        translation(&server, "a");
        server.post("/v1/completions", &json!({"prompt": "the", "max_tokens": 1}));
    }
}

#[test]
fn broken_and_slow_clients_do_no_harm() {
    let server = Running::start(|config| {
        (config.limits.header, config.limits.transfer) =
            (Duration::from_millis(300), Duration::from_millis(300));
        (config.limits.body, config.limits.connections) = (1 << 20, 40);
    });
    // Headers that never end, on more connections than half of those allowed.
    let mut slow: Vec<_> = (0..25).map(|_| server.connect()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"POST /translate HT").unwrap());
    translation(&server, "a b");
    for mut stream in slow {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).ok();
    }
    // A body that never comes.
    let head = "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    let mut stream = server.connect();
    write!(stream, "{head}Content-Length: 100\r\n\r\n{{").unwrap();
    assert_eq!(Answer::read(&mut stream).status, 408);
    // A client that says no more, and one that leaves in the middle of its body.
    let text = body("a b").to_string();
    let mut stream = server.connect();
    write!(stream, "{head}Connection: close\r\nContent-Length: {}\r\n\r\n{text}", text.len()).unwrap();
    stream.shutdown(Shutdown::Write).ok();
    Answer::read(&mut stream);
    let mut stream = server.connect();
    write!(stream, "{head}Content-Length: 100\r\n\r\n{{").unwrap();
    drop(stream);
    // Too much of everything.
    let huge = "x".repeat((1 << 20) + 1);
    assert_eq!(server.send("POST", "/translate", "application/json", &huge).status, 413);
    let chunked =
        format!("{head}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n100001\r\n{huge}\r\n0\r\n\r\n");
    assert_eq!(server.raw(chunked.as_bytes()).status, 413);
    let many: String = (0..200).map(|i| format!("X-{i}: y\r\n")).collect();
    assert_eq!(server.raw(format!("GET /health HTTP/1.1\r\nHost: x\r\n{many}\r\n").as_bytes()).status, 431);
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(100_000));
    assert!([414, 431].contains(&server.raw(long.as_bytes()).status));
    // A line of nearly a megabyte.
    let line = "a ".repeat(400_000);
    let answer = server.post("/translate", &body(&line));
    assert_eq!(answer.status, 200, "{}", answer.head);
    assert!(answer.json()["warnings"]["cutTokens"].as_u64().unwrap() > 0);
    // No UTF-8, no HTTP, no path.
    assert_eq!(server.send("POST", "/translate", "application/json", b"{\"q\": \"\xff\xfe\"}").status, 400);
    let form = server.send(
        "POST",
        "/translate",
        "application/x-www-form-urlencoded",
        b"q=%ff%fe&source=de&target=en",
    );
    assert_eq!(form.status, 200);
    assert_eq!(server.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").status, 400);
    assert_eq!(
        server.raw(b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").status,
        404
    );
    translation(&server, "a b");
}

#[test]
fn a_connection_too_many_is_refused() {
    let server = Running::start(|config| config.limits.connections = 3);
    let mut held: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for stream in &mut held {
        write!(stream, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
    }
    let refused = server.get("/health");
    assert_eq!(refused.refusal(), (503, "Overloaded: too many connections; try again later".to_owned()));
    assert!(refused.head.contains("retry-after"));
    drop(held);
    while server.get("/health").status != 200 {}
}

#[test]
fn a_stopped_server_finishes_what_it_has_begun() {
    let server = Running::start(|config| config.limits.budget.sentences = 2);
    let book: Vec<String> = (0..3000).map(sentence).collect();
    let address = server.address;
    let log = std::thread::scope(|scope| {
        let mut idle = server.connect();
        write!(idle, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        idle.read_exact(&mut [0; 12]).unwrap();
        let mut stream = server.connect();
        let reader = scope.spawn(move || {
            let text = json!({"q": book, "source": "de", "target": "en"}).to_string();
            let head = "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
            write!(stream, "{head}Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
            Answer::read(&mut stream)
        });
        while metric(&server, "mae_queue_sentences{model=\"de-en\"}") < 100.0 {}
        let log = server.stop();
        assert_eq!(reader.join().unwrap().json()["translatedText"].as_array().unwrap().len(), 3000);
        log
    });
    assert!(std::net::TcpStream::connect(address).is_err());
    // The thread of the log may still write its last line.
    let begun = Instant::now();
    while !log.text().contains("\"stopped\"") && begun.elapsed() < Duration::from_secs(5) {}
    let text = log.text();
    assert!(text.contains("\"listening\"") && text.contains("\"stopped\""), "{text}");
    assert!(text.contains("\"sentences\":3000") && !text.contains("texts"), "no text is written: {text}");
}

#[test]
fn models_are_replaced_while_serving() {
    let server = Running::start(|config| config.log_texts = mae_serve::LogTexts::Written);
    let before = translation(&server, "a b c d");
    let folder = server.place.path().join("de-en");
    let reloads = || metric(&server, "mae_reloads_total");
    std::fs::write(folder.join("config.toml"), "format = 7\n").unwrap();
    server.control.reload();
    while !server.log.text().contains("\"reload\"") {}
    assert_eq!(translation(&server, "a b c d"), before, "the model from before is kept");
    std::fs::remove_dir_all(&folder).unwrap();
    save_translator(&folder, System::MAE, 77);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        translation(&server, "a b c d");
                    }
                })
            })
            .collect();
        server.control.reload();
        while reloads() < 1.0 {}
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    assert_ne!(translation(&server, "a b c d"), before);
    assert!(server.log.text().contains("\"texts\":[\"a b c d\"]"), "texts were asked for");
}
