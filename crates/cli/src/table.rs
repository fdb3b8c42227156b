//! Tables of text.

use std::collections::HashMap;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::output::safe_part;

/// Separates columns.
const GAP: &str = "  ";

/// Minimum width of the first column, which contains names.
const MIN_NAME_WIDTH: usize = 12;

/// The alignment of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// The colour of a value that needs attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Red,
    Yellow,
}

impl Colour {
    fn paint(self, text: &str) -> String {
        let code = match self {
            Self::Red => 31,
            Self::Yellow => 33,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// A table with a heading.
#[derive(Debug)]
pub struct Table {
    aligns: Vec<Align>,
    rows: Vec<Vec<String>>,
    /// Colours by row and column.
    colours: HashMap<(usize, usize), Colour>,
}

impl Table {
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let aligns = columns.iter().map(|(_, align)| *align).collect();
        let heading = columns
            .iter()
            .map(|(name, _)| name.to_uppercase())
            .collect();
        Self {
            aligns,
            rows: vec![heading],
            colours: HashMap::new(),
        }
    }

    /// Adds a row with a value per column.
    pub fn row(&mut self, values: Vec<String>) {
        self.rows.push(
            values
                .iter()
                .map(|value| safe_part(value).into_owned())
                .collect(),
        );
    }

    /// Gives a value of the last row a colour, which [`Table::render_coloured`] shows.
    pub fn colour(&mut self, column: usize, colour: Option<Colour>) {
        if let Some(colour) = colour {
            self.colours.insert((self.rows.len() - 1, column), colour);
        }
    }

    /// Columns by which the table exceeds `max_width` when its names are cut to `name_width`.
    pub fn excess(&self, max_width: usize, name_width: usize) -> usize {
        let mut widths = self.widths();
        widths[0] = widths[0].min(name_width);
        total(&widths).saturating_sub(max_width)
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].width())
                .max()
                .unwrap_or(0)
        };
        (0..self.aligns.len()).map(width).collect()
    }

    /// Renders the table, within `max_width` if given: cuts the first column, which has names, and
    /// then whole lines.
    pub fn render(&self, max_width: Option<usize>) -> String {
        self.lines(max_width, |_| None)
    }

    /// As [`Table::render`], with colours.
    pub fn render_coloured(&self, max_width: Option<usize>) -> String {
        self.lines(max_width, |place| self.colours.get(&place).copied())
    }

    fn lines(
        &self,
        max_width: Option<usize>,
        colour: impl Fn((usize, usize)) -> Option<Colour>,
    ) -> String {
        let mut widths = self.widths();
        let excess = max_width.map_or(0, |max| total(&widths).saturating_sub(max));
        widths[0] = widths[0]
            .saturating_sub(excess)
            .max(widths[0].min(MIN_NAME_WIDTH));
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let line = |colour: &dyn Fn((usize, usize)) -> Option<Colour>| {
                let cells = row.iter().zip(&widths).zip(&self.aligns).enumerate();
                let cells = cells.map(|(column, ((value, width), align))| {
                    let value = cut(value, *width);
                    let space = " ".repeat(width - value.width());
                    let value = match colour((number, column)) {
                        Some(colour) => colour.paint(&value),
                        None => value,
                    };
                    match align {
                        Align::Left => format!("{value}{space}"),
                        Align::Right => format!("{space}{value}"),
                    }
                });
                cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
            };
            let plain = line(&|_| None);
            text.push_str(&match max_width {
                Some(width) if plain.width() > width => cut(&plain, width),
                _ => line(&colour),
            });
            text.push('\n');
        }
        text
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
}

/// The beginning of a line that fits a width.
pub fn cut(line: &str, width: usize) -> String {
    if line.width() <= width {
        return line.to_owned();
    }
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used < width
    };
    let mut kept: String = line.chars().take_while(fits).collect();
    kept.push('\u{2026}');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_fit() {
        let mut table = Table::new(&[
            ("edge", Align::Left),
            ("sent", Align::Right),
            ("why", Align::Left),
        ]);
        table.row(vec!["a/b -> c/d".to_owned(), "5".to_owned(), String::new()]);
        table.row(vec![
            "\u{753b}\u{50cf}/b".to_owned(),
            "12345".to_owned(),
            "full".to_owned(),
        ]);
        let text = table.render(None);
        assert_eq!(
            text,
            "EDGE         SENT  WHY\na/b -> c/d      5\n\u{753b}\u{50cf}/b      12345  full\n"
        );
        let text = table.render(Some(12));
        assert!(text.lines().all(|line| line.width() <= 12), "{text}");
        assert!(text.contains('\u{2026}'));
    }

    #[test]
    fn colours_have_no_width_and_a_cut_line_has_none() {
        let mut table = Table::new(&[("edge", Align::Left), ("lost", Align::Right)]);
        table.row(vec!["a/b".to_owned(), "5".to_owned()]);
        table.colour(1, Some(Colour::Red));
        assert_eq!(table.render(None), "EDGE  LOST\na/b      5\n");
        assert_eq!(
            table.render_coloured(None),
            "EDGE  LOST\na/b      \x1b[31m5\x1b[0m\n"
        );
        assert_eq!(
            table.render_coloured(Some(8)),
            "EDGE  L\u{2026}\na/b    \u{2026}\n"
        );
    }

    #[test]
    fn control_characters_are_escaped() {
        let mut table = Table::new(&[("topic", Align::Left)]);
        table.row(vec!["a\x1b[2J\n".to_owned()]);
        assert_eq!(table.render(None), "TOPIC\na\\u001b[2J\\u000a\n");
    }

    #[test]
    fn names_are_cut_before_figures() {
        let mut table = Table::new(&[("edge", Align::Left), ("lost", Align::Right)]);
        table.row(vec![
            "a_long_name/output -> another/input".to_owned(),
            "17".to_owned(),
        ]);
        assert_eq!(
            table.render(Some(26)),
            "EDGE                  LOST\na_long_name/output \u{2026}    17\n"
        );
    }
}
