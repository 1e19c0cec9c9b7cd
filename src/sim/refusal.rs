//! What vLLM answers when it refuses a request: codes and bodies as captured from 0.31.

use serde_json::{Value, json};

/// A refusal: status and body.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Refusal {
    fn new(status: u16, kind: &str, message: String, param: Option<&str>) -> Refusal {
        let body = json!({"error": {"message": message, "type": kind, "param": param, "code": status}});
        Refusal { status, body }
    }

    /// A request whose meaning is wrong; `value` is what was met, if it is quoted.
    pub(super) fn bad_request(message: String, param: Option<&str>, value: Option<i64>) -> Refusal {
        let message = match (param, value) {
            (Some(p), Some(v)) => format!("{message} (parameter={p}, value={v})"),
            (Some(p), None) => format!("{message} (parameter={p})"),
            _ => message,
        };
        Refusal::new(400, "BadRequestError", message, param)
    }

    /// A request whose form is wrong; one entry for each complaint, with the place of the first.
    pub(super) fn invalid(complaints: &[Complaint]) -> Refusal {
        let count = complaints.len();
        let plural = if count == 1 { "" } else { "s" };
        let lines: Vec<String> = complaints.iter().map(Complaint::text).collect();
        let message = format!("{count} validation error{plural}:\n  {}", lines.join("\n  "));
        Refusal::new(400, "Bad Request", message, complaints.first().and_then(|c| c.place.as_deref()))
    }

    /// A model that is not served.
    pub(super) fn no_such_model(model: &str) -> Refusal {
        Refusal::new(404, "NotFoundError", format!("The model `{model}` does not exist."), Some("model"))
    }

    /// A full queue, or a server that takes nothing.
    pub(super) fn busy() -> Refusal {
        let message = "The engine is currently busy and cannot accept new requests. Please try again later or on a \
                       different instance.";
        Refusal::new(503, "Service Unavailable", message.into(), None)
    }

    /// A missing or wrong key.
    pub(super) fn unauthorized() -> Refusal {
        Refusal { status: 401, body: json!({"error": "Unauthorized"}) }
    }

    /// A path that does not exist.
    pub(super) fn not_found() -> Refusal {
        Refusal { status: 404, body: json!({"detail": "Not Found"}) }
    }

    /// A path that exists for another method.
    pub(super) fn method_not_allowed() -> Refusal {
        Refusal { status: 405, body: json!({"detail": "Method Not Allowed"}) }
    }
}

/// One complaint about the form of a body.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Complaint {
    /// Where, as `body.max_tokens`; `None` for the request as a whole.
    place: Option<String>,
    text: String,
}

impl Complaint {
    fn text(&self) -> String {
        self.text.clone()
    }

    fn at(kind: &str, place: &str, message: &str, input: &str, rest: &str) -> Complaint {
        let text = format!("{{'type': '{kind}', 'loc': '{place}', 'msg': '{message}', 'input': {input}{rest}}}");
        Complaint { place: Some(place.into()), text }
    }

    /// A field that must be there; `fields` is how many the body has.
    pub(super) fn missing(field: &str, fields: usize) -> Complaint {
        Complaint::at("missing", &format!("body.{field}"), "Field required", &format!("'<dict of {fields} items>'"), "")
    }

    /// A field of the wrong type.
    pub(super) fn wrong_type(field: &str, wanted: &str, value: &Value) -> Complaint {
        let place = format!("body.{field}");
        let input = match value {
            Value::String(s) => format!("'{s}'"),
            other => python(other),
        };
        match (wanted, value) {
            ("integer", Value::String(_)) => Complaint::at(
                "int_parsing",
                &place,
                "Input should be a valid integer, unable to parse string as an integer",
                &input,
                "",
            ),
            ("number", Value::String(_)) => Complaint::at(
                "float_parsing",
                &place,
                "Input should be a valid number, unable to parse string as a number",
                &input,
                "",
            ),
            ("boolean", Value::String(_)) => Complaint::at(
                "bool_parsing",
                &place,
                "Input should be a valid boolean, unable to interpret input",
                &input,
                "",
            ),
            _ => {
                let kind = match wanted {
                    "integer" => "int_type",
                    "number" => "float_type",
                    "boolean" => "bool_type",
                    other => &format!("{other}_type"),
                };
                Complaint::at(kind, &place, &format!("Input should be a valid {wanted}"), &input, "")
            }
        }
    }

    /// A body that is no JSON; `at` is where reading it failed, in bytes.
    pub(super) fn no_json(at: usize) -> Complaint {
        Complaint::at(
            "json_invalid",
            &format!("body.{at}"),
            "JSON decode error",
            "'<dict of 0 items>'",
            ", 'ctx': {'error': 'Expecting value'}",
        )
    }

    /// A body that does not say that it is JSON.
    pub(super) fn media_type() -> Complaint {
        Complaint { place: None, text: "Unsupported Media Type: Only 'application/json' is allowed".into() }
    }
}

/// A value as Python prints it, as far as complaints need it.
fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Array(items) => format!("'<list of {} items>'", items.len()),
        Value::Object(map) => format!("'<dict of {} items>'", map.len()),
        other => other.to_string(),
    }
}
