"""Asks a running `mae serve` with clients that others wrote.

    pip install libretranslatepy openai prometheus_client openapi-spec-validator
    mae serve de-en=MODEL lm=LANGUAGE_MODEL --port 5000
    python3 tools/check_clients.py http://127.0.0.1:5000 --text 'Guten Morgen' --pair de-en [--lm lm] [--api-key KEY]

`--ready` only says whether the clients are installed. The test `serve` of crates/cli starts a server and runs this.
"""

import argparse
import json
import sys
import urllib.request


def get(url, key):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


def libretranslate(args):
    from libretranslatepy import LibreTranslateAPI

    api = LibreTranslateAPI(args.url + "/", args.api_key)
    source, target = args.pair.split("-")
    text = api.translate(args.text, source, target)
    assert isinstance(text, str) and text, text
    assert api.translate(args.text, "auto", target)
    found = api.detect(args.text)
    assert found and 0 <= found[0]["confidence"] <= 100 and found[0]["language"], found
    languages = {language["code"]: language for language in api.languages()}
    assert target in languages[source]["targets"], languages
    return f"libretranslatepy: {args.text!r} is {text!r}"


def openai_client(args):
    import openai

    client = openai.OpenAI(base_url=args.url + "/v1", api_key=args.api_key or "none", max_retries=0)
    names = [model.id for model in client.models.list()]
    assert args.lm in names, names
    asked = dict(model=args.lm, prompt="the", max_tokens=8, seed=3, temperature=0.8, logprobs=2)
    whole = client.completions.create(**asked)
    choice = whole.choices[0]
    assert choice.finish_reason in ("stop", "length") and len(choice.logprobs.tokens) == whole.usage.completion_tokens
    events = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(event.choices[0].text for event in events if event.choices)
    assert text == choice.text, (text, choice.text)
    assert events[-1].usage == whole.usage, events[-1]
    try:
        client.completions.create(model="no such model", prompt="a")
        raise AssertionError("a model that is not there was found")
    except openai.NotFoundError:
        pass
    with client.completions.create(model=args.lm, prompt="the", max_tokens=500, stream=True) as stream:
        next(iter(stream))
    return f"openai {openai.__version__}: streamed {len(events)} events, {whole.usage.completion_tokens} tokens"


def metrics(args):
    from prometheus_client.parser import text_string_to_metric_families

    families = {family.name: family for family in text_string_to_metric_families(get(args.url + "/metrics", args.api_key))}
    for name, kind in [("mae_requests", "counter"), ("mae_request_duration_seconds", "histogram"),
                       ("mae_queue_sentences", "gauge"), ("mae_search_seconds", "histogram")]:
        assert families[name].type == kind, (name, families.get(name))
    return f"prometheus_client: {len(families)} metrics"


def document(args):
    from openapi_spec_validator import validate

    spec = json.loads(get(args.url + "/spec", args.api_key))
    validate(spec)
    return f"openapi-spec-validator: {len(spec['paths'])} paths"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--text", default="Guten Morgen")
    parser.add_argument("--pair", default="de-en")
    parser.add_argument("--lm")
    parser.add_argument("--api-key")
    parser.add_argument("--ready", action="store_true")
    args = parser.parse_args()
    if args.ready:
        import libretranslatepy, openai, openapi_spec_validator, prometheus_client  # noqa: F401, E401
        return
    checks = [libretranslate, metrics, document] + ([openai_client] if args.lm else [])
    for check in checks:
        print(check(args))
    print(f"{len(checks)} clients are content")


if __name__ == "__main__":
    sys.exit(main())
