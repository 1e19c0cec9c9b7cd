//! Comma-separated values as RFC 4180 has them: quotes, doubled quotes, line ends inside of quotes.

/// The records of a text, each with the line that it begins on, from 1.
pub(super) fn records(text: &str) -> impl Iterator<Item = (u64, Vec<String>)> + '_ {
    let mut chars = text.chars().peekable();
    let mut line = 1;
    std::iter::from_fn(move || {
        chars.peek()?;
        let began = line;
        let mut fields = vec![String::new()];
        let mut quoted = false;
        while let Some(c) = chars.next() {
            let field = fields.last_mut()?;
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => {
                    chars.next();
                    field.push('"');
                }
                '"' if quoted => quoted = false,
                '"' if field.is_empty() => quoted = true,
                ',' if !quoted => fields.push(String::new()),
                '\r' if !quoted && chars.peek() == Some(&'\n') => {}
                '\n' => {
                    line += 1;
                    if !quoted {
                        break;
                    }
                    field.push('\n');
                }
                c => field.push(c),
            }
        }
        Some((began, fields))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_commas_and_line_ends() {
        let text = "a,b\r\n\"x, \"\"y\"\"\nz\",2\n,\nlast";
        let got: Vec<(u64, Vec<String>)> = records(text).collect();
        let own = |f: &[&str]| f.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            got,
            [(1, own(&["a", "b"])), (2, own(&["x, \"y\"\nz", "2"])), (4, own(&["", ""])), (5, own(&["last"]))]
        );
    }
}
