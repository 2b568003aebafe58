//! A request's texts as sentences to translate, and the translations put together again.

use super::html::{self, Node};
use super::inline::{self, Run};
use super::sentences::{Part, split};

/// Markup of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Markup {
    /// Plain text.
    #[default]
    Text,
    /// HTML: tags are kept.
    Html,
}

/// Texts cut into sentences.
#[derive(Debug, Default)]
pub struct Plan {
    /// The sentences of all texts, in order.
    pub sentences: Vec<String>,
    texts: Vec<Vec<Block>>,
}

/// A part of a text as its translation needs it.
#[derive(Debug)]
enum Block {
    /// Plain text.
    Text(Pieces),
    /// Markup that is kept.
    Kept(String),
    /// Text of a document, with the elements inside its sentences.
    Run(Run),
}

/// Sentences with what lies between them.
#[derive(Debug, Default)]
pub(super) struct Pieces(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Between(String),
    /// Number of a sentence.
    Sentence(usize),
}

impl Plan {
    /// Cuts texts of a language into sentences.
    pub fn new<S: AsRef<str>>(texts: &[S], language: &str, markup: Markup) -> Self {
        let mut plan = Self::default();
        for text in texts {
            let blocks = match markup {
                Markup::Text => vec![Block::Text(plan.pieces(text.as_ref(), language))],
                Markup::Html => plan.document(text.as_ref(), language),
            };
            plan.texts.push(blocks);
        }
        plan
    }

    /// Adds the sentences of a plain text.
    pub(super) fn pieces(&mut self, text: &str, language: &str) -> Pieces {
        let piece = |part: Part<'_>| match part {
            Part::Between(text) => Piece::Between(text.to_owned()),
            Part::Sentence(text) => {
                self.sentences.push(text.to_owned());
                Piece::Sentence(self.sentences.len() - 1)
            }
        };
        Pieces(split(text, language).into_iter().map(piece).collect())
    }

    fn document(&mut self, text: &str, language: &str) -> Vec<Block> {
        let (mut blocks, mut run) = (Vec::new(), Vec::new());
        for node in html::nodes(text) {
            match node {
                Node::Block(raw) => {
                    self.end_run(&mut run, &mut blocks, language);
                    blocks.push(Block::Kept(raw.to_owned()));
                }
                inside => run.push(inside),
            }
        }
        self.end_run(&mut run, &mut blocks, language);
        blocks
    }

    fn end_run(&mut self, run: &mut Vec<Node<'_>>, blocks: &mut Vec<Block>, language: &str) {
        if !run.is_empty() {
            blocks.push(Block::Run(inline::plan(self, std::mem::take(run), language)));
        }
    }

    /// The texts with translations in place of the sentences.
    pub fn assemble<S: AsRef<str>>(&self, translations: &[S]) -> Vec<String> {
        let translations: Vec<&str> = translations.iter().map(AsRef::as_ref).collect();
        let block = |block: &Block| match block {
            Block::Text(pieces) => pieces.join(&translations),
            Block::Kept(raw) => raw.clone(),
            Block::Run(run) => run.join(&translations),
        };
        self.texts.iter().map(|blocks| blocks.iter().map(block).collect()).collect()
    }
}

impl Pieces {
    pub(super) fn join(&self, translations: &[&str]) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Between(text) => text.clone(),
            Piece::Sentence(number) => translations[*number].to_owned(),
        };
        self.0.iter().map(piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Translates by writing in capitals, in words of another order.
    fn translate(text: &str, markup: Markup) -> String {
        let plan = Plan::new(&[text], "en", markup);
        let shout: Vec<String> = plan.sentences.iter().map(|sentence| sentence.to_uppercase()).collect();
        plan.assemble(&shout).remove(0)
    }

    #[test]
    fn blanks_and_line_ends_come_back() {
        let text = "\tOne.  Two!\r\n\r\n  three \n--\n";
        assert_eq!(translate(text, Markup::Text), text.to_uppercase());
        assert_eq!(translate("", Markup::Text), "");
    }

    #[test]
    fn tags_are_kept_around_their_words() {
        let cases = [
            ("<p>a &amp; b</p>", "<p>A &amp; B</p>"),
            (
                "<p>We like <b>good tea</b> here. And <i>cake</i>!</p>",
                "<p>WE LIKE <b>GOOD TEA</b> HERE. AND <i>CAKE</i>!</p>",
            ),
            ("a <a href=\"x\">b <b>c</b></a> d", "A <a href=\"x\">B <b>C</b></a> D"),
            ("x<br>y <img src='a.png'> z", "X<br>Y <img src='a.png'> Z"),
            ("<ul>\n <li>one\n two</li>\n</ul>", "<ul>\n <li>ONE  TWO</li>\n</ul>"),
            ("run <code>make it</code> now", "RUN <code>make it</code> NOW"),
        ];
        for (page, want) in cases {
            assert_eq!(translate(page, Markup::Html), want);
        }
    }

    #[test]
    fn elements_follow_their_words_to_another_place() {
        let plan = Plan::new(&["see the <b>red</b> house"], "en", Markup::Html);
        let translate = |text: &String| match text.as_str() {
            "see the red house" => "la maison rouge, regarde",
            "red" => "rouge",
            other => panic!("{other}"),
        };
        let found: Vec<&str> =
            plan.sentences.iter().filter(|text| text.len() < 4 || text.len() > 9).map(translate).collect();
        assert_eq!(found.len(), 2);
        let all: Vec<String> = plan
            .sentences
            .iter()
            .map(|text| {
                if matches!(text.as_str(), "red" | "see the red house") {
                    translate(text).into()
                } else {
                    "?".into()
                }
            })
            .collect();
        assert_eq!(plan.assemble(&all), ["la maison <b>rouge</b>, regarde"]);
    }
}
