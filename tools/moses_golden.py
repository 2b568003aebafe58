#!/usr/bin/env python3
"""Makes the golden tables in fixtures/moses with the sacremoses package (0.2.0).

    pip install sacremoses==0.2.0 && python tools/moses_golden.py

The lines are made up: sentences with the hard cases (abbreviations, numbers, apostrophes, quotes, dashes, dots,
addresses, tags, entities, odd blanks and scripts), and random strings of pieces of them with a fixed seed.

Each row of a table is `language <tab> options <tab> input <tab> output`, with backslash, tab, line feed and carriage
return written as `\\\\`, `\\t`, `\\n` and `\\r`. Options are joined by `+`; `-` is none of them:

    tokenize.tsv    a: aggressive_dash_splits; plain: escape=False; basic, web: protected_patterns
    detokenize.tsv  plain: unescape=False; inputs are outputs of tokenize.tsv, and strange ones
    languages.tsv   tokenize, tokenize+a, detokenize or normalize, for every language that has rules
    normalize.tsv   punct: pre_replace_unicode_punct; control: post_remove_control_chars; no-penn, no-quotes, no-numbers
"""

import random
from pathlib import Path

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

LINES = [
    ("en", "Hello, world!"),
    ("en", "Dr. Miller met Mrs. O'Neil on Jan. 5, at 3 p.m. sharp."),
    ("en", "See No. 7 and No. Seven, Art. 12 or Art. Twelve; pp. 3-9, pp. Nine."),
    ("en", "It's the dogs' bowl, isn't it? They'll say 'no', we've said 'yes'."),
    ("en", "the 1990's were 5's and the '60s weren't"),
    ("en", "He said: \"I can't.\" Then he left."),
    ("en", "It cost $5,300.50, i.e. 12% more (about 4,000 EUR), e.g. in A,B,C,D,E."),
    ("en", "Wait... what?.. No....! ... and..so on..."),
    ("en", "a well-known state-of-the-art 10-year-old e-mail - or -x- a- -b --c"),
    ("en", "etc. and so on, U.S. troops, U.S. Troops, p.m. Then 3.14. End."),
    ("en", "The end.'"),
    ("en", "The end.' "),
    ("en", "'Quoted at both ends.'"),
    ("en", "x < y && y > z | [a] {b} \\ ^ _ ~ ` = + * / § ° €"),
    ("en", "&amp; &lt;b&gt; &#124; are entities"),
    ("en", "Write to jane.doe@mail.example.org or see https://www.example.org/a/b-c.html, now."),
    ("en", "follow @some_one on www.example.com/x?y=1&z=2 #TopicOfTheDay!"),
    ("en", "<b>bold</b> and <a href=\"x\">link</a> and <br/>."),
    ("en", "DOTMULTI and DOTDOTMULTI or DOT MULTI, THISISPROTECTED000 THISISPROTECTEDX001 www.x.y"),
    ("en", "tab\there,  two  blanks, no-break\u00a0space, thin\u2009space, line\u2028separator"),
    ("en", "control\x01chars\x02 \x03 and \x1f separators\x7f, zero\u200bwidth, soft\u00adhyphen, \ufeffmark"),
    ("en", "naïve café, Ελληνικά, русский, עברית, हिन्दी, ไทย, 漢字 と かな, 한국어, 😀👍🏽"),
    ("en", "½ cup, x² + y³, ٣,٤ and ³,5 or 5,² and 7,"),
    ("en", "combining e\u0301 and ◌ circle"),
    ("en", "James' book, the boss's ' desk ', rock 'n' roll, o'clock, 'tis, y'all're"),
    ("en", "``Penn quotes'' and `single' ones"),
    ("en", "„low” “high” ‘single’ ‚low‘ don’t ´acute´ ´´ … – — ‐"),
    ("en", "« French » «\u00a0spaced\u00a0» x\u00a0: y\u00a0; z\u00a0? w\u00a0! 5\u00a0% 3\u00a0cm 20\u00a0ºC nº\u00a05,\u00a06"),
    ("en", "1\u00a0000\u00a0000 and 1\u00a02\u00a03\u00a04"),
    ("en", "( inside ) , ( x ) . (y) z (5 %) : ;"),
    ("en", "\"quoted\", \"again\". \"dots\"... \",\" \".\""),
    ("en", "，。、：？《》）！（；」「０１２３４５６７８９．～…━〈〉【】％ 。  x．  y"),
    ("en", ""),
    ("en", " "),
    ("en", "."),
    ("en", "'"),
    ("en", ",,,a,,b, ,c,"),
    ("en", "a.b. A.B. 1.2. ..a a.. .5 5."),
    ("en", "v. vs. rev. Rev. Sept. Sep. May. Rs. Nr. Nos. 5"),
    ("de", "Hallo, Welt!"),
    ("de", "Dr. Müller traf am 3. Mai 2019 um 15.30 Uhr z.B. Karl V. und Ludwig XIV. in Köln."),
    ("de", "Das kostet ca. 5.300,50 Euro bzw. 12 % mehr (d.h. usw.), vgl. Art. 7 Abs. 3."),
    ("de", "Er sagte: „Das geht nicht.“ Dann ging er."),
    ("de", "»Guten Tag«, sagte sie, ›na und‹?"),
    ("de", "Wie geht's? Hans' Auto, Andreas' Haus, 's ist gut."),
    ("de", "Das E-Mail-Konto der Nord-Süd-Gruppe - die 10-jährige U-Bahn, Vor- und Nachteile"),
    ("de", "Na ja... und dann.. so weiter...! Ende..."),
    ("de", "Am 99. Tag, am 100. Tag, am 0. Tag. Am 1. und am 21. April. xxi. XX. xx."),
    ("de", "Die Mio. und Mrd. steigen, o.ä., u.U. auch die MwSt. auf 19. Ende"),
    ("de", "Straße, Größe, ÄÖÜ äöü ß ẞ; c.-à-d. und s.p.a. Das"),
    ("de", "x < y & z > \"w\" | [a] 'b'"),
    ("de", "Schreib an max.muster@post.beispiel.de oder ftp://ftp.beispiel.de/pub/datei_1.txt."),
    ("de", "\"Ja\", sagte er. \"Nein.\" \"So.\"<b> \"Na...\" gut \"Ende.\""),
    ("de", "\"eins,\" zwei, \"drei.\"  \"vier.\" <x> .\".\".\" .. \"x"),
    ("de", "1\u00a0000\u00a0000 Stück zu 5\u00a0% und 20\u00a0ºC\u00a0: heiß\u00a0!"),
    ("de", "Schluss.'"),
    ("de", "(innen ) , ( x ) . 5 %  6 % : ;"),
    ("de", ""),
]

PIECES = (
    "a B ß Dr. No. z.B. e.g. ' 's '' ` \" , . .. ... - -- 1 2,3 5. ½ ² € $ ( ) [ ] <b> </b> & &amp; | @-@ @ #tag "
    "http://x.de/a u@h.de « » „ “ ” ‚ ‘ ’ – — … % : ; ? ! 漢 字 。 ． DOT MULTI s os 't ll re A.B i VI. nº ºC cm ´ é Я "
    "٣ ， ！ ％ 😀 www.a.b Art. pp. \\ { } _ / = + * ~"
).split() + [" "] * 12 + ["  ", "\t", "\u00a0", "\u200b", "\u00ad", "\x01", "\x1f", "\u2028", "\u0301"]

DETOKENIZE = [
    ("en", "The Joneses ' house &apos;s $ 5 ( ( x ) ) ; &bra; a &ket; &bar; &amp;lt; @-@ @-@ b"),
    ("en", "' a ' ' b ' \" c \" \" d \" `` e '' ` f ` „ g “ h ” „“ i „“"),
    ("en", "漢 字 a 漢 b 字 字 , 漢"),
    ("en", "'s start and 's , ' s , '1 '\u094d"),
    ("en", "¿ que ? ¡ si ! € 5 5 € % \\ {{ }}"),
    ("de", "geht &apos;s , „ ja “ , sagte &quot; er &quot; . $ 5 ( x ) Nord @-@ Süd"),
    ("de", "Hans ' Auto ' neu ' 's 漢 字"),
]


def lines():
    rng = random.Random(20)
    out = list(LINES)
    for i in range(160):
        pieces = [rng.choice(PIECES) for _ in range(rng.randint(2, 14))]
        out.append((("en", "de")[i % 2], "".join(pieces)))
    return out


def field(text):
    for plain, written in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, written)
    return text


def tokenize():
    protected = {"basic": MosesTokenizer.BASIC_PROTECTED_PATTERNS, "web": MosesTokenizer.WEB_PROTECTED_PATTERNS}
    tokenizers = {lang: MosesTokenizer(lang=lang) for lang in ("en", "de")}
    for options in ("-", "a", "plain", "basic", "web+a"):
        chosen = options.split("+")
        patterns = [pattern for name in chosen for pattern in protected.get(name, [])]
        for lang, line in lines():
            tokens = tokenizers[lang].tokenize(
                line, aggressive_dash_splits="a" in chosen, escape="plain" not in chosen, protected_patterns=patterns or None
            )
            yield lang, options, line, " ".join(tokens)


def detokenize():
    detokenizers = {lang: MosesDetokenizer(lang=lang) for lang in ("en", "de")}
    tokenized = [(lang, out) for lang, options, _, out in tokenize() if options in ("-", "a")]
    for options in ("-", "plain"):
        for lang, line in DETOKENIZE + tokenized[:: 1 if options == "-" else 7]:
            yield lang, options, line, detokenizers[lang].detokenize(line.split(), unescape=options == "-")


def normalize():
    for options in ("-", "punct+control", "no-penn", "no-quotes+no-numbers"):
        chosen = options.split("+")
        for lang, line in lines():
            normalizer = MosesPunctNormalizer(
                lang=lang,
                penn="no-penn" not in chosen,
                norm_quote_commas="no-quotes" not in chosen,
                norm_numbers="no-numbers" not in chosen,
                pre_replace_unicode_punct="punct" in chosen,
                post_remove_control_chars="control" in chosen,
            )
            yield lang, options, line, normalizer.normalize(line)


SENTENCES = {
    "cs": "Prof. Novák řekl: „Ano, např. č. 5 stojí 3,50 Kč.“ Má-li e-mail, ať píše. Roku 1989 . 5 .",
    "el": "Ο κ. Παπαδόπουλος είπε: «Ναι, π.χ. αύριο»; Όχι.",
    "es": "¿Qué tal? ¡Hola, Sr. García! Cuesta 1\u00a0000 € (aprox. 5 %). \"Dijo,\" \"sí.\" y",
    "fi": "EU:n ja USA:ssa esim. 5. pykälä, ns. \"laki\".",
    "fr": "L'eau d'Évian n'est-elle pas l'amie ? « Oui ! » M. Dupont : 5 % ; aujourd'hui, qu'il a 'dit' l' . 1\u00a0000",
    "ga": "D'fhág Seán Ó Briain an t-oileán, lch. 5 agus lch. a d' éirigh b' fhéidir",
    "hi": "डॉ. शर्मा ने कहा, \"हाँ।\" श्री. राम 5.5 लाख।",
    "hu": "Dr. Kovács jan. 5. napján, ill. kb. 3 db. Szia!",
    "is": "Nr. 5 og nr. sex, t.d. þ.e. Jón.",
    "it": "L'Italia dell'Est, un po' d'acqua, c'è l'amico. Il sig. Rossi, pag. 5, Art. 3 e Art. tre, '60",
    "ja": "東京は「日本」の首都です。カタカナ・テスト。Dr. 田中、12,000円。3.5 ％",
    "ko": "서울은 한국의 수도이다. Dr. 김씨, 12,000원. 한국어-영어 漢字",
    "lt": "Plg. 5 psl., t.y. š.m. No. 7 ir No. Septyni.",
    "lv": "Nr. 5, u.c. t.i. Rīga.",
    "nl": "Dhr. Jansen, d.w.z. nr. 5 en nr. vijf, 's ochtends z'n auto's.",
    "pl": "Prof. Kowalski, np. str. 5, nr. pięć, itd. Tak. „Cytat” ‚inny‘",
    "pt": "O Sr. Silva, pág. 5, p. ex. Art. 7 e Art. Sete. D'água.",
    "ro": "Dl. Popescu, dvs. nr. 5, etc. S-a dus într-o țară; ş.a.m.d. Așa.",
    "ru": "Проф. Иванов, т.е. г. Москва, ул. Ленина, д. 5. «Да», — сказал он. руб. Так",
    "sk": "Napr. č. 5, t. j. prof. Horváth, tzn. Áno.",
    "sl": "Npr. št. 5 in št. pet, dr. Kovač, itd. Da.",
    "sv": "T.ex. kl. 5, bl.a. USA:s, d.v.s. Kungl. Slottet. S:t",
    "ta": "திரு. ராமன் 5.5 லட்சம். ஆம்.",
    "te": "డా. రావు 5.5 లక్షలు. అవును.",
    "yue": "香港係一個好地方。Dr. 陳，No. 5 同 No. 六。",
    "zh": "北京是中国的首都。他说：“好，12,000元。”Dr. 王，No. 5 和 No. 六。中-英",
}


def languages():
    """Every language: a sentence, and random strings of its abbreviations and of pieces that are hard in any."""
    codes = sorted(set(NonbreakingPrefixes().available_langs.values()) | {"ja", "ko"})
    native = {code: [word for word in text.split() if len(word) > 1] for code, text in SENTENCES.items()}
    for number, code in enumerate(codes):
        rng = random.Random(number)
        tokenizer, detokenizer, normalizer = MosesTokenizer(code), MosesDetokenizer(code), MosesPunctNormalizer(code)
        prefixes = sorted(set(tokenizer.NONBREAKING_PREFIXES))
        pieces = [prefix.split(" ")[0] + "." for prefix in rng.sample(prefixes, min(30, len(prefixes)))]
        pieces = pieces * 3 + PIECES + native.get(code, []) * 3 + ["l'", "d'a", " 5 ", "\"", "'"]
        lines = [SENTENCES[code]] if code in SENTENCES else []
        lines += ["".join(rng.choice(pieces) + rng.choice(["", " ", " "]) for _ in range(9)) for _ in range(4)]
        lines += [" ".join(rng.sample(pieces, 3)) + " 5", "Zeile 3 , 5 ? „ a “ “ b „ ! : l' eau 7 ."]
        for line in lines:
            tokens = " ".join(tokenizer.tokenize(line))
            yield code, "tokenize", line, tokens
            yield code, "detokenize", tokens, detokenizer.detokenize(tokens.split())
        yield code, "tokenize+a", lines[0], " ".join(tokenizer.tokenize(lines[0], aggressive_dash_splits=True))
        yield code, "detokenize", lines[0], detokenizer.detokenize(lines[0].split())
        for line in lines[:2]:
            yield code, "normalize", line, normalizer.normalize(line)


def main():
    folder = Path(__file__).parent.parent / "fixtures/moses"
    folder.mkdir(parents=True, exist_ok=True)
    tables = {"tokenize": tokenize, "detokenize": detokenize, "normalize": normalize, "languages": languages}
    for name, make in tables.items():
        rows = make()
        text = "".join("\t".join(map(field, row)) + "\n" for row in rows)
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
