//! The view of `top`: selection, order and filter of rows, and the keys that change them.

use std::cmp::Ordering;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use nervure_inspect::{State, edges::Edge, format::count};

use super::tables::{NodeRow, edge_table_of, node_table, title};
use crate::{
    output::safe_part,
    table::{Table, cut},
};

/// Lines besides rows: title, two headings, two empty lines, two counts of hidden rows, and the
/// line of keys.
const FIXED_LINES: usize = 8;

/// The user's choices.
#[derive(Debug, Default)]
pub struct View {
    focus: Pane,
    nodes: List,
    edges: List,
    filter: String,
    /// The user is typing the filter.
    is_typing: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pane {
    #[default]
    Nodes,
    Edges,
}

/// The order and scroll position of a list.
#[derive(Debug, Default)]
struct List {
    /// Index of the order.
    order: usize,
    is_reversed: bool,
    /// The first visible row, the number of visible rows, and the number of all rows.
    first: usize,
    shown: usize,
    total: usize,
}

/// An order of rows. The first one keeps the order of the file if all rows fit, and otherwise sorts
/// by importance.
struct Order<T> {
    name: &'static str,
    compare: fn(&T, &T) -> Ordering,
}

fn node_orders<'a>() -> [Order<NodeRow<'a>>; 5] {
    [
        Order {
            name: "auto",
            compare: |a, b| b.cpu().total_cmp(&a.cpu()),
        },
        Order {
            name: "node",
            compare: |a, b| a.node.declared.id.cmp(&b.node.declared.id),
        },
        Order {
            name: "cpu",
            compare: |a, b| b.cpu().total_cmp(&a.cpu()),
        },
        Order {
            name: "rss",
            compare: |a, b| b.resident_bytes().cmp(&a.resident_bytes()),
        },
        Order {
            name: "restarts",
            compare: |a, b| b.restarts().cmp(&a.restarts()),
        },
    ]
}

fn edge_orders<'a>() -> [Order<&'a Edge>; 7] {
    [
        Order {
            name: "auto",
            compare: |a, b| b.lost().cmp(&a.lost()),
        },
        Order {
            name: "edge",
            compare: |a, b| a.name().cmp(&b.name()),
        },
        Order {
            name: "hz",
            compare: |a, b| b.figures().rate_hz.total_cmp(&a.figures().rate_hz),
        },
        Order {
            name: "mb/s",
            compare: |a, b| {
                b.figures()
                    .bytes_per_second
                    .total_cmp(&a.figures().bytes_per_second)
            },
        },
        Order {
            name: "p99",
            compare: |a, b| b.figures().p99_nanos.cmp(&a.figures().p99_nanos),
        },
        Order {
            name: "queue",
            compare: |a, b| fullness(b).total_cmp(&fullness(a)),
        },
        Order {
            name: "lost",
            compare: |a, b| b.lost().cmp(&a.lost()),
        },
    ]
}

fn fullness(edge: &Edge) -> f64 {
    edge.totals().queued() as f64 / f64::from(edge.queue.depth.max(1))
}

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEffect {
    Show,
    Quit,
}

impl View {
    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> KeyEffect {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return KeyEffect::Quit;
        }
        if self.is_typing {
            self.key_of_filter(key.code);
            return KeyEffect::Show;
        }
        match key.code {
            KeyCode::Char('q') => return KeyEffect::Quit,
            KeyCode::Esc if self.filter.is_empty() => return KeyEffect::Quit,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = if self.focus == Pane::Nodes {
                    Pane::Edges
                } else {
                    Pane::Nodes
                };
            }
            KeyCode::Char('s') => {
                let orders = if self.focus == Pane::Nodes {
                    node_orders().len()
                } else {
                    edge_orders().len()
                };
                let list = self.list();
                (list.order, list.first) = ((list.order + 1) % orders, 0);
            }
            KeyCode::Char('r') => self.list().is_reversed ^= true,
            code => self.list().scroll(code),
        }
        KeyEffect::Show
    }

    fn key_of_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
        (self.nodes.first, self.edges.first) = (0, 0);
    }

    fn list(&mut self) -> &mut List {
        match self.focus {
            Pane::Nodes => &mut self.nodes,
            Pane::Edges => &mut self.edges,
        }
    }

    fn wants(&self, name: &str) -> bool {
        name.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// The lines of the screen.
    pub fn lines(
        &mut self,
        state: &State,
        rows: &[NodeRow<'_>],
        (width, height): (usize, usize),
        coloured: bool,
    ) -> Vec<String> {
        let nodes: Vec<NodeRow<'_>> = rows
            .iter()
            .filter(|row| self.wants(&row.node.declared.id))
            .cloned()
            .collect();
        let edges: Vec<&Edge> = state
            .edges
            .iter()
            .filter(|edge| self.wants(&edge.name()))
            .collect();
        let room = height.saturating_sub(FIXED_LINES).max(2);
        // Half of the lines for each list; unused lines go to the other.
        let node_room = nodes
            .len()
            .min((room / 2).max(room.saturating_sub(edges.len())));
        let nodes = self.nodes.part(nodes, &node_orders(), node_room);
        let edges = self.edges.part(edges, &edge_orders(), room - node_room);
        let render = |table: Table| match coloured {
            true => table.render_coloured(Some(width)),
            false => table.render(Some(width)),
        };
        let mut text = format!(
            "{}\n\n{}",
            title(state, rows.len()),
            render(node_table(state, &nodes))
        );
        text.push_str(&self.nodes.hidden_rows("node"));
        if self.edges.total > 0 {
            text.push_str(&format!("\n{}", render(edge_table_of(edges, Some(width)))));
            text.push_str(&self.edges.hidden_rows("edge"));
        }
        // Lines of tables fit already, and their colours must not count as width.
        let fitting = |line: &str| {
            if line.contains('\x1b') {
                line.to_owned()
            } else {
                cut(line, width)
            }
        };
        let mut lines: Vec<String> = text.lines().map(fitting).collect();
        lines.resize(height.saturating_sub(1), String::new());
        lines.push(cut(&self.footer(), width));
        lines
    }

    fn footer(&self) -> String {
        let filter = safe_part(&self.filter);
        if self.is_typing {
            return format!("filter: {filter}_   Enter keeps it, Esc clears it");
        }
        let (pane, order, list) = match self.focus {
            Pane::Nodes => ("nodes", node_orders()[self.nodes.order].name, &self.nodes),
            Pane::Edges => ("edges", edge_orders()[self.edges.order].name, &self.edges),
        };
        let reversed = if list.is_reversed { " reversed" } else { "" };
        let filter = if filter.is_empty() {
            String::new()
        } else {
            format!(": {filter}")
        };
        format!(
            "q quit   s sort {pane}: {order}{reversed}   r reverse   / filter{filter}   arrows scroll   Tab nodes/edges"
        )
    }
}

impl List {
    fn scroll(&mut self, code: KeyCode) {
        let page = self.shown.max(1);
        let first = match code {
            KeyCode::Up | KeyCode::Char('k') => self.first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.first + 1,
            KeyCode::PageUp => self.first.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.first + page,
            KeyCode::Home => 0,
            KeyCode::End => self.total,
            _ => self.first,
        };
        self.first = first.min(self.total.saturating_sub(self.shown));
    }

    /// The visible rows.
    fn part<T>(&mut self, mut rows: Vec<T>, orders: &[Order<T>], room: usize) -> Vec<T> {
        (self.total, self.shown) = (rows.len(), rows.len().min(room));
        if self.order > 0 || self.total > self.shown {
            rows.sort_by(orders[self.order].compare);
        }
        if self.is_reversed {
            rows.reverse();
        }
        self.first = self.first.min(self.total - self.shown);
        rows.into_iter().skip(self.first).take(self.shown).collect()
    }

    /// A line with the counts of hidden rows.
    fn hidden_rows(&self, noun: &str) -> String {
        match (self.first, self.total - self.first - self.shown) {
            (0, 0) => String::new(),
            (0, below) => format!(".. and {} more\n", count(below, noun)),
            (above, 0) => format!(".. below {} more\n", count(above, noun)),
            (above, below) => format!(".. {above} above, and {} more\n", count(below, noun)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(view: &mut View, keys: &str) -> Vec<KeyEffect> {
        keys.chars()
            .map(|letter| view.key(KeyCode::Char(letter).into()))
            .collect()
    }

    #[test]
    fn q_and_control_c_quit_unless_a_filter_is_typed() {
        let mut view = View::default();
        assert_eq!(press(&mut view, "q"), [KeyEffect::Quit]);
        assert_eq!(press(&mut view, "/q"), [KeyEffect::Show, KeyEffect::Show]);
        assert_eq!(view.filter, "q");
        assert_eq!(
            view.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)),
            KeyEffect::Quit
        );
        assert_eq!(view.key(KeyCode::Enter.into()), KeyEffect::Show);
        assert!(view.wants("a queue") && view.wants("Q") && !view.wants("camera"));
        assert_eq!(
            view.key(KeyCode::Esc.into()),
            KeyEffect::Show,
            "Esc clears the filter first"
        );
        assert_eq!(view.key(KeyCode::Esc.into()), KeyEffect::Quit);
    }

    #[test]
    fn lists_scroll_within_their_rows_and_sort() {
        const ORDERS: [Order<u32>; 2] = [
            Order {
                name: "auto",
                compare: |a, b| b.cmp(a),
            },
            Order {
                name: "number",
                compare: |a, b| a.cmp(b),
            },
        ];
        let rows = || vec![3, 1, 2];
        let mut list = List::default();
        assert_eq!(list.part(rows(), &ORDERS, 5), [3, 1, 2], "as they come");
        assert_eq!(
            list.part(rows(), &ORDERS, 2),
            [3, 2],
            "the most important ones"
        );
        assert_eq!(list.hidden_rows("node"), ".. and 1 node more\n");
        list.order = 1;
        list.scroll(KeyCode::Down);
        assert_eq!(list.part(rows(), &ORDERS, 2), [2, 3]);
        assert_eq!(list.hidden_rows("node"), ".. below 1 node more\n");
        list.scroll(KeyCode::PageDown);
        assert_eq!(list.first, 1, "no further than the last row");
        list.is_reversed = true;
        list.scroll(KeyCode::Home);
        assert_eq!(list.part(rows(), &ORDERS, 2), [3, 2]);
        list.scroll(KeyCode::End);
        assert_eq!(list.part(rows(), &ORDERS, 1), [2], "another height");
        assert_eq!(list.hidden_rows("edge"), ".. 1 above, and 1 edge more\n");
    }
}
