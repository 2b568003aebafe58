//! Types of requests and answers that describe themselves, for the OpenAPI document.

use serde_json::{Map, Value, json};

/// A type with a JSON schema.
pub(crate) trait Described {
    /// Its schema.
    fn schema() -> Value;

    /// Returns true if a field of this type may be missing.
    fn is_optional() -> bool {
        false
    }

    /// Returns true if this value is left out of answers.
    fn is_absent(&self) -> bool {
        false
    }
}

macro_rules! plain {
    ($($type:ty: $schema:tt,)*) => {
        $(impl Described for $type {
            fn schema() -> Value {
                json!($schema)
            }
        })*
    };
}

plain! {
    String: {"type": "string"},
    &'static str: {"type": "string"},
    bool: {"type": "boolean"},
    f32: {"type": "number"},
    f64: {"type": "number"},
    i64: {"type": "integer"},
    u32: {"type": "integer", "minimum": 0},
    u64: {"type": "integer", "minimum": 0},
    usize: {"type": "integer", "minimum": 0},
    Value: {},
}

impl<T: Described> Described for Option<T> {
    fn schema() -> Value {
        T::schema()
    }

    fn is_optional() -> bool {
        true
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T: Described> Described for Vec<T> {
    fn schema() -> Value {
        json!({"type": "array", "items": T::schema()})
    }
}

impl<T: Described> Described for std::collections::BTreeMap<String, T> {
    fn schema() -> Value {
        json!({"type": "object", "additionalProperties": T::schema()})
    }
}

/// One value, or a list of them.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub(crate) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T: Described> Described for OneOrMany<T> {
    fn schema() -> Value {
        json!({"oneOf": [T::schema(), Vec::<T>::schema()]})
    }
}

impl<T> OneOrMany<T> {
    /// As a list.
    pub(crate) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

/// A number, or its digits, as forms send it.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(untagged, expecting = "expected a number")]
pub(crate) enum Count {
    Number(f64),
    Digits(String),
}

impl Described for Count {
    fn schema() -> Value {
        json!({"type": "integer", "minimum": 0, "default": 0})
    }
}

impl Count {
    /// The number; what is below 0 counts as 0.
    pub(crate) fn value(&self) -> Option<usize> {
        match self {
            Self::Number(number) => number.is_finite().then(|| number.max(0.0) as usize),
            Self::Digits(digits) => digits.trim().parse::<i64>().ok().map(|number| number.max(0) as usize),
        }
    }
}

/// A field of an object: its name as the code has it, its documentation, its schema, whether it may be missing.
pub(crate) type Field = (&'static str, &'static [&'static str], Value, bool);

/// The schema of an object.
pub(crate) fn object(about: &[&str], fields: Vec<Field>, rename: fn(&str) -> String) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, about, mut schema, optional) in fields {
        if let Value::Object(schema) = &mut schema {
            schema.insert("description".into(), json!(joined(about)));
        }
        if !optional {
            required.push(rename(name));
        }
        properties.insert(rename(name), schema);
    }
    let mut schema = json!({"type": "object", "description": joined(about), "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn joined(about: &[&str]) -> String {
    about.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// A name as it is.
pub(crate) fn as_is(name: &str) -> String {
    name.to_owned()
}

/// A name in camel case, as serde writes it.
pub(crate) fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let mut letters = word.chars();
        let capital = letters.next().map(|c| c.to_ascii_uppercase());
        name + &capital.map(String::from).unwrap_or_default() + letters.as_str()
    })
}

/// Declares an object that is read (`request`) or written (`answer`), with its schema from its documentation.
macro_rules! described {
    (request $(#[doc = $about:literal])+ $name:ident {
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty,)*
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, serde::Deserialize)]
        pub(crate) struct $name {
            $($(#[doc = $doc])+ pub(crate) $field: $type,)*
        }
        described!(@schema as_is, [$($about)+], $name { $([$($doc)+] $field: $type,)* });
    };
    (answer $(#[doc = $about:literal])+ $name:ident {
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty,)*
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, serde::Serialize)]
        pub(crate) struct $name {
            $($(#[doc = $doc])+
            #[serde(skip_serializing_if = "crate::http::describe::Described::is_absent")]
            pub(crate) $field: $type,)*
        }
        described!(@schema as_is, [$($about)+], $name { $([$($doc)+] $field: $type,)* });
    };
    (answer camel $(#[doc = $about:literal])+ $name:ident {
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty,)*
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $name {
            $($(#[doc = $doc])+
            #[serde(skip_serializing_if = "crate::http::describe::Described::is_absent")]
            pub(crate) $field: $type,)*
        }
        described!(@schema camel, [$($about)+], $name { $([$($doc)+] $field: $type,)* });
    };
    (@schema $rename:ident, [$($about:literal)+], $name:ident { $([$($doc:literal)+] $field:ident: $type:ty,)* }) => {
        impl crate::http::describe::Described for $name {
            fn schema() -> serde_json::Value {
                use crate::http::describe::{Described, Field, object};
                let fields: Vec<Field> = vec![
                    $((stringify!($field), &[$($doc),+], <$type as Described>::schema(), <$type as Described>::is_optional()),)*
                ];
                object(&[$($about),+], fields, crate::http::describe::$rename)
            }
        }
    };
}
pub(crate) use described;

#[cfg(test)]
mod tests {
    use super::*;

    described! {
        answer camel
        /// An answer
        /// in two lines.
        Sample {
            /// The text.
            some_text: String,
            /// Numbers.
            numbers: Option<Vec<u32>>,
        }
    }

    #[test]
    fn schemas_follow_the_code() {
        let want = json!({
            "type": "object",
            "description": "An answer in two lines.",
            "properties": {
                "someText": {"type": "string", "description": "The text."},
                "numbers": {"type": "array", "items": {"type": "integer", "minimum": 0}, "description": "Numbers."},
            },
            "required": ["someText"],
        });
        assert_eq!(Sample::schema(), want);
        let written = serde_json::to_value(Sample { some_text: "a".into(), numbers: None }).unwrap();
        assert_eq!(written, json!({"someText": "a"}));
    }
}
