//! The numbers that the layouts of samples of one schema must have.

use nervure_message::array::ArrayLayout;

use crate::misfit::Misfit;

/// The conditions on the numbers of a layout, in their order.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) steps: Box<[Step]>,
}

#[derive(Debug)]
pub(super) enum Step {
    /// Any number.
    Any,
    /// The mark of nulls in an array. Where there must be none, the error.
    Nulls(Option<Box<Misfit>>),
    /// The number of items in the lists of the array of the last mark of nulls, whose length is
    /// `lengths[lists]`. It is the next of the lengths.
    Items {
        lists: usize,
        /// Number of items of each list.
        each: Option<usize>,
        /// Whether the items could only be null, so that there must be none.
        is_empty: bool,
        misfit: Box<Misfit>,
    },
    /// The next of the lengths, without a number: items of lists of one size.
    Multiple { lists: usize, each: usize },
}

impl Plan {
    pub(super) fn check(&self, array: &ArrayLayout) -> Result<(), Misfit> {
        const MOST: usize = 32;
        let mut lengths = Lengths::<MOST>::new(array.len());
        let mut numbers = array.numbers();
        let mut has_nulls = false;
        for step in &self.steps {
            match step {
                Step::Any => {
                    numbers.next();
                }
                Step::Nulls(misfit) => {
                    has_nulls = numbers.next() != Some(0);
                    if let Some(misfit) = misfit.as_ref().filter(|_| has_nulls) {
                        return Err((**misfit).clone());
                    }
                }
                Step::Items {
                    lists,
                    each,
                    is_empty,
                    misfit,
                } => {
                    let items = numbers.next().unwrap_or_default() as usize;
                    let lists = lengths.get(*lists);
                    let fits = match each {
                        None => true,
                        // Null lists have no items.
                        Some(each) if has_nulls => {
                            items <= lists * each && items.is_multiple_of(*each)
                        }
                        Some(each) => items == lists * each,
                    };
                    if !fits || (*is_empty && items > 0) {
                        return Err(Misfit {
                            found: found_items(items, lists, *is_empty),
                            ..(**misfit).clone()
                        });
                    }
                    lengths.push(items);
                }
                Step::Multiple { lists, each } => lengths.push(lengths.get(*lists) * each),
            }
        }
        Ok(())
    }
}

fn found_items(items: usize, lists: usize, is_empty: bool) -> String {
    match (items, lists) {
        (items, _) if is_empty && items > 0 => "a list of nulls".to_owned(),
        (items, 1) => format!("{items}"),
        (items, lists) => format!("{items} in {lists} lists"),
    }
}

/// The lengths of arrays, on the stack as long as there are few.
struct Lengths<const MOST: usize> {
    few: [usize; MOST],
    more: Vec<usize>,
    count: usize,
}

impl<const MOST: usize> Lengths<MOST> {
    fn new(first: usize) -> Self {
        let mut few = [0; MOST];
        few[0] = first;
        Self {
            few,
            more: Vec::new(),
            count: 1,
        }
    }

    fn push(&mut self, length: usize) {
        match self.few.get_mut(self.count) {
            Some(place) => *place = length,
            None => self.more.push(length),
        }
        self.count += 1;
    }

    fn get(&self, index: usize) -> usize {
        let known = self.few.get(index).or_else(|| self.more.get(index - MOST));
        known.copied().unwrap_or_default()
    }
}
