//! Who holds memory of a device, and who of them is a neighbour.

use std::collections::BTreeSet;

use super::card::Process;

/// Who holds memory of a device. Those of the first list are taken to be the server's; a process that comes in the
/// place of one that went (a server that was restarted) too.
#[derive(Debug, Default)]
pub(super) struct Residents {
    own: BTreeSet<u32>,
    /// The last list, the largest first.
    pub(super) now: Option<Vec<Process>>,
    /// Those who are not the server's.
    pub(super) strangers: BTreeSet<u32>,
}

impl Residents {
    /// Takes in a list and tells who is new in it and takes nobody's place.
    pub(super) fn update(&mut self, mut now: Vec<Process>, first: bool) -> Vec<Process> {
        now.sort_by_key(|p| (std::cmp::Reverse(p.bytes), p.pid));
        let pids: BTreeSet<u32> = now.iter().map(|p| p.pid).collect();
        if first || self.now.is_none() {
            self.own = pids;
            self.now = Some(now);
            return Vec::new();
        }
        let mut vacant = self.own.difference(&pids).count();
        self.own.retain(|pid| pids.contains(pid));
        self.strangers.retain(|pid| pids.contains(pid));
        let mut new = Vec::new();
        // The largest newcomers are the successors, since a server takes most of the memory.
        for process in &now {
            if self.own.contains(&process.pid) || self.strangers.contains(&process.pid) {
                continue;
            }
            if vacant > 0 {
                vacant -= 1;
                self.own.insert(process.pid);
            } else {
                self.strangers.insert(process.pid);
                new.push(*process);
            }
        }
        self.now = Some(now);
        new
    }

    /// Number of strangers and the bytes that they hold, as far as known; `None` before the first list.
    pub(super) fn neighbours(&self) -> Option<(usize, u64)> {
        let now = self.now.as_ref()?;
        let held = now.iter().filter(|p| self.strangers.contains(&p.pid)).filter_map(|p| p.bytes).sum();
        Some((self.strangers.len(), held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_is_a_neighbour_unless_it_takes_a_place() {
        let p = |pid: u32, mib: u64| Process { pid, bytes: Some(mib << 20) };
        let mut r = Residents::default();
        assert_eq!(r.neighbours(), None);
        assert!(r.update(vec![p(10, 70_000)], true).is_empty());
        assert_eq!(r.neighbours(), Some((0, 0)));
        assert_eq!(r.update(vec![p(10, 70_000), p(11, 5)], false), [p(11, 5)]);
        assert_eq!(r.neighbours(), Some((1, 5 << 20)));
        assert!(r.update(vec![p(10, 70_000), p(11, 6)], false).is_empty(), "told once");
        assert!(r.update(vec![p(12, 70_000), p(11, 6)], false).is_empty(), "the server was restarted");
        assert_eq!(r.neighbours(), Some((1, 6 << 20)));
        assert!(r.update(vec![p(12, 70_000)], false).is_empty());
        assert_eq!(r.neighbours(), Some((0, 0)));
        assert_eq!(r.update(vec![p(12, 70_000), p(13, 1), p(14, 2)], false), [p(14, 2), p(13, 1)]);
    }

    #[test]
    fn an_empty_first_list_is_a_baseline_of_its_own() {
        let mut r = Residents::default();
        assert!(r.update(vec![], true).is_empty());
        assert_eq!(r.update(vec![Process { pid: 1, bytes: None }], false).len(), 1);
        assert_eq!(r.neighbours(), Some((1, 0)));
    }
}
