//! The sentences: templates with slots on both sides.

use super::{
    Kind,
    slots::{Filling, Slot},
};

/// A family of sentences. `{slot}` is filled with one of the slot's values, on the German side with its plain
/// form or, for `{slot*}`, with its inflected one; a digit tells two slots of the same sort apart.
pub(super) struct Template {
    pub(super) kind: Kind,
    english: &'static str,
    german: &'static str,
}

const fn template(kind: Kind, english: &'static str, german: &'static str) -> Template {
    Template { kind, english, german }
}

/// All the sentences there are.
pub(super) const TEMPLATES: &[Template] = &[
    template(Kind::Number, "{number}", "{number}"),
    template(Kind::Number, "the answer is {number}", "die antwort ist {number}"),
    template(
        Kind::Number,
        "{person} wrote the number {number} on the board",
        "{person} hat die zahl {number} an die tafel geschrieben",
    ),
    template(
        Kind::Number,
        "i cannot remember the number {number}",
        "ich kann mich nicht an die zahl {number} erinnern",
    ),
    template(Kind::Count, "{few} {group} came", "{few} {group} kamen"),
    template(Kind::Count, "{few} {group} came to {city}", "{few} {group} sind nach {city} gekommen"),
    template(
        Kind::Count,
        "{person} knows that {few} {group} came",
        "{person} weiß dass {few} {group} gekommen sind",
    ),
    template(Kind::Count, "there are {many} {group} in {city}", "in {city} gibt es {many} {group}"),
    template(Kind::Count, "{person} has counted {few} {thing}", "{person} hat {few} {thing} gezählt"),
    template(
        Kind::Count,
        "in {year} only {few} {group} lived here",
        "im jahr {year} haben nur {few} {group} hier gewohnt",
    ),
    template(Kind::Ordinal, "{person} lives on the {ordinal} floor", "{person} wohnt im {ordinal*} stock"),
    template(
        Kind::Ordinal,
        "{person} finished in {ordinal} place",
        "{person} hat den {ordinal*} platz belegt",
    ),
    template(
        Kind::Ordinal,
        "{person} sat in the {ordinal} row on {weekday}",
        "{person} hat am {weekday} in der {ordinal*} reihe gesessen",
    ),
    template(
        Kind::Ordinal,
        "{person} is in {city} for the {ordinal} time",
        "{person} ist zum {ordinal*} mal in {city}",
    ),
    template(Kind::Age, "{person} is {age} years old", "{person} ist {age} jahre alt"),
    template(
        Kind::Age,
        "{person} will be {age} years old on {weekday}",
        "{person} wird am {weekday} {age} jahre alt",
    ),
    template(
        Kind::Age,
        "{person} came to {city} at the age of {age}",
        "{person} ist im alter von {age} jahren nach {city} gekommen",
    ),
    template(Kind::Date, "{day} {year}", "{day} {year}"),
    template(Kind::Date, "today is {weekday} {day}", "heute ist {weekday} {day}"),
    template(Kind::Date, "we met on {day} {year}", "wir haben uns am {day*} {year} getroffen"),
    template(Kind::Date, "{person} was born on {day} {year}", "{person} wurde am {day*} {year} geboren"),
    template(Kind::Date, "the letter arrived on {day} {year}", "der brief ist am {day*} {year} angekommen"),
    template(
        Kind::Date,
        "{person} left {city} on {weekday} {day}",
        "{person} hat {city} am {weekday} dem {day*} verlassen",
    ),
    template(
        Kind::Date,
        "we moved it from {day1} to {day2}",
        "wir haben es vom {day1*} auf den {day2*} verschoben",
    ),
    template(Kind::Year, "{person} was born in {year}", "{person} wurde im jahr {year} geboren"),
    template(
        Kind::Year,
        "the {building} in {city} was built in {year}",
        "{building} in {city} wurde im jahr {year} gebaut",
    ),
    template(Kind::Year, "{person} has lived in {city} since {year}", "{person} wohnt seit {year} in {city}"),
    template(Kind::Year, "{years} {person} lived in {city}", "{years} hat {person} in {city} gewohnt"),
    template(Kind::Time, "it is {time}", "es ist {time}"),
    template(Kind::Time, "the {vehicle} leaves at {time}", "{vehicle} fährt um {time} ab"),
    template(
        Kind::Time,
        "i think that the {vehicle} leaves at {time}",
        "ich glaube dass {vehicle} um {time} abfährt",
    ),
    template(Kind::Time, "the {event} begins at {time}", "{event} fängt um {time} an"),
    template(Kind::Time, "please wake me at {time}", "bitte weck mich um {time} auf"),
    template(Kind::Time, "{person} got up at {time}", "{person} ist um {time} aufgestanden"),
    template(
        Kind::Schedule,
        "the {vehicle} to {city} leaves on {weekday} at {clock}",
        "{vehicle} nach {city} fährt am {weekday} um {clock} ab",
    ),
    template(
        Kind::Schedule,
        "the {vehicle} from {city} arrives on {weekday} at {clock}",
        "{vehicle} aus {city} kommt am {weekday} um {clock} an",
    ),
    template(
        Kind::Schedule,
        "the shop closes at {clock} on {weekday}",
        "am {weekday} schließt der laden um {clock}",
    ),
    template(Kind::Price, "it costs {price}", "das kostet {price}"),
    template(Kind::Price, "the {item} costs {price}", "{item} kostet {price}"),
    template(Kind::Price, "i paid {price} for the {item}", "ich habe für {item*} {price} bezahlt"),
    template(Kind::Price, "she sold the {item} for {price}", "sie hat {item*} für {price} verkauft"),
    template(Kind::Price, "a ticket to {city} costs {price}", "eine fahrkarte nach {city} kostet {price}"),
];

impl Template {
    /// Number of sentences of the template.
    pub(super) fn size(&self) -> u64 {
        slots(self.english).map(|name| Slot::named(name).size() as u64).product()
    }

    /// One of the template's sentences and its translation; `index` is below [`Template::size`].
    pub(super) fn sentence(&self, index: u64) -> (String, String) {
        let mut rest = index;
        let fillings: Vec<(&str, Filling)> = slots(self.english)
            .map(|name| {
                let slot = Slot::named(name);
                let size = slot.size() as u64;
                let filling = slot.fill((rest % size) as usize);
                rest /= size;
                (name, filling)
            })
            .collect();
        let filled = |name| {
            let (_, filling) = fillings.iter().find(|(other, _)| *other == name).expect("both sides agree");
            filling
        };
        let source = render(self.english, |name| &filled(name).english);
        let target = render(self.german, |name| match name.strip_suffix('*') {
            Some(name) => &filled(name).inflected,
            None => &filled(name).german,
        });
        (source, target)
    }
}

/// The names of the slots of a pattern.
fn slots(pattern: &'static str) -> impl Iterator<Item = &'static str> {
    pattern.split(['{', '}']).skip(1).step_by(2)
}

/// A pattern with its slots filled.
fn render<'a>(pattern: &'static str, fill: impl Fn(&'static str) -> &'a str) -> String {
    let pieces = pattern.split(['{', '}']).enumerate();
    pieces.map(|(i, piece)| if i % 2 == 1 { fill(piece) } else { piece }).collect()
}
